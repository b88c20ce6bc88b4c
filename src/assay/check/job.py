"""What a job's config tells by itself, before torch is imported and data is read."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from assay.analysis.objective import BASELINES
from assay.build.trainer_options import refuse_foreign_ranks
from assay.check.output_paths import check_data_root, check_output_paths
from assay.check.trainer import check_trainer
from assay.compose.recipe import check_fused
from assay.config.did_you_mean import did_you_mean
from assay.config.omegaconf_internals import (
    child_node,
    child_values,
    is_interpolation,
    is_missing,
    is_null,
    raw_value,
    root_of,
)
from assay.config.serialize import LARGEST_SEED, check_choice, check_whole_number, is_number, shown, value_of
from assay.config.tree import OF_SPEC, walk, written_at
from assay.config.unread_keys import OUR_DATA, OUR_MODULE
from assay.data.limits import NAMES, check_limits
from assay.errors import ConfigError, first_line
from assay.record.secrets import STRUCK, holds_secret, note_given
from assay.targets.allowed_targets import check_targets
from assay.targets.optional_packages import check_installed
from assay.targets.own_task import check_tasks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.config.tree import Entry


_LIBRARIES = ("torch", "torchvision", "torchmetrics", "lightning", "assay")


@final
@dataclass(frozen=True)
class Range:
    """Where a number may lie."""

    least: float
    most: float = math.inf
    above: bool = False
    below: bool = False
    never: float | None = None
    such_as: float = 0.1
    whole: bool = False
    instead: str = ""

    def __contains__(self, value: float) -> bool:
        low = value > self.least if self.above else value >= self.least
        high = value < self.most if self.below else value <= self.most
        return low and high and value != self.never and (not self.whole or float(value).is_integer())

    def in_words(self) -> str:
        """As a person would say it."""
        if self.most == self.least:
            text = f"of {self.least:g}"
        elif self.most == math.inf:
            text = f"above {self.least:g}" if self.above else f"of at least {self.least:g}"
        elif self.above:
            text = f"above {self.least:g} and {'below' if self.below else 'at most'} {self.most:g}"
        else:
            text = f"from {self.least:g} to {'below ' if self.below else ''}{self.most:g}"
        return text if self.never is None else f"{text}, not {self.never:g}"


COUNTS = {
    **dict.fromkeys(("T_0", "T_max", "T_mult", "epochs", "milestones", "step_size", "step_size_down"), 1),
    **dict.fromkeys(("step_size_up", "steps_per_epoch", "total_iters", "total_steps"), 1),
    **dict.fromkeys(("cooldown", "patience"), 0),
}
"""Arguments of torch's schedulers that count steps or epochs, and the least that each may be."""
_SHARE, _BELOW_ONE = Range(0, 1), Range(0, 1, below=True)
_NOT_NEGATIVE, _POSITIVE, _COUNT = Range(0), Range(0, above=True), Range(1)
_SIZE = Range(1, 10**9)
"""Of something that is to be made."""
_RANGES: Mapping[str, Mapping[str, Range]] = {
    "optimizer": {
        "lr": Range(0, 100, above=True, such_as=0.001),
        "weight_decay": Range(0, 100),
        "eps": Range(0, 1, above=True, such_as=1e-8),
        **dict.fromkeys(("momentum", "alpha"), _BELOW_ONE),
        "dampening": _SHARE,
        **dict.fromkeys(("max_iter", "max_eval", "ns_steps"), _COUNT),
        "history_size": Range(1, 100_000),  # places for as many vectors are made
        **dict.fromkeys(
            ("lr_decay", "tolerance_grad", "tolerance_change", "initial_accumulator_value"), _NOT_NEGATIVE
        ),
    },
    "scheduler": {
        "last_epoch": Range(-1, -1, instead="leave it out; `assay resume` goes on where a run was"),
        "gamma": Range(0, 10, above=True),
        "factor": Range(0, 1, above=True, below=True),
        "power": Range(0, 10, above=True),
        **dict.fromkeys(("max_lr", "base_lr"), Range(0, 100, above=True, such_as=0.001)),
        **dict.fromkeys(("eta_min", "min_lr"), Range(0, 100)),
        **{name: Range(least, whole=True) for name, least in COUNTS.items()},
        **dict.fromkeys(("threshold", "eps"), _NOT_NEGATIVE),
        **dict.fromkeys(("base_momentum", "max_momentum"), _BELOW_ONE),
        "pct_start": _SHARE,
        **dict.fromkeys(("div_factor", "final_div_factor"), _COUNT),
    },
    "callbacks": {
        **dict.fromkeys(("patience", "min_delta"), _NOT_NEGATIVE),
        "decay": _BELOW_ONE,
        **dict.fromkeys(("update_every_n_steps", "every_n_train_steps", "every_n_epochs"), _COUNT),
        **dict.fromkeys(("update_starting_at_step", "update_starting_at_epoch"), _NOT_NEGATIVE),
        "save_top_k": Range(-1, never=0),
        "max_depth": Range(-1),
    },
    "model": {
        **dict.fromkeys(("dropout", "attention_dropout", "stochastic_depth_prob"), _BELOW_ONE),
        "num_layers": Range(1, 10_000),  # each of them is made, if only without its weights
        **dict.fromkeys(("patch_size", "num_heads", "hidden_dim", "mlp_dim"), _SIZE),
        **dict.fromkeys(("groups", "width_per_group", "in_features", "out_features"), _SIZE),
        **dict.fromkeys(("num_outputs", "num_classes"), _SIZE),
    },
    "loss": {"delta": _POSITIVE},
    "augment": {"alpha": _POSITIVE, "p": _SHARE, "padding": _NOT_NEGATIVE, "num_classes": _SIZE},
    "data": {
        "p": _SHARE,
        "padding": _NOT_NEGATIVE,
        **dict.fromkeys(("size", "image_size", "num_classes"), Range(1, 10**8)),
    },
}
"""By group and argument: the libraries mean the same by a name in all classes of a kind."""


def check_ranges(config: DictConfig) -> None:
    """Refuse numbers with which a class of a known library does nothing, or nothing that anyone means."""
    for entry in walk(config):
        if not isinstance(entry.parent, DictConfig) or isinstance(entry.node, DictConfig):
            continue
        if entry.is_missing or not _is_of_a_library(entry.parent):
            continue
        key, node = entry.key, entry.node
        wanted = _RANGES.get(key.partition(".")[0], {}).get(str(entry.name))
        if entry.is_interpolation:
            key, node = _taken_from(config, key) if wanted is not None else ("", None)
            if node is None:
                continue
        given = node if isinstance(node, ListConfig) and not is_null(node) else raw_value(node)
        if isinstance(given, ListConfig):
            for number, value in enumerate(child_values(given)):
                _check(f"{key}[{number}]", value, wanted)
        else:
            _check(key, given, wanted)


def _is_of_a_library(node: DictConfig) -> bool:
    target = child_node(node, "_target_") if "_target_" in node else None
    written = raw_value(target) if target is not None else None
    return isinstance(written, str) and written.partition(".")[0] in _LIBRARIES


def _taken_from(config: DictConfig, key: str) -> tuple[str, Any]:
    """The key to blame for an interpolated value, and its node; none where it comes with the data."""
    at = written_at(config, key)
    parent, _, name = at.rpartition(".")
    around = OmegaConf.select(config, parent) if parent else config
    if at == key or not isinstance(around, DictConfig) or name not in around:
        return at, None
    node = child_node(around, name)
    known = node is not None and not (is_interpolation(node) or is_missing(node))
    return key if _is_of_a_library(around) else at, node if known else None


def _check(key: str, value: Any, wanted: Range | None) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    group = key.partition(".")[0]
    if wanted is None and isinstance(value, int) and group in ("model", "augment") and value > _SIZE.most:
        wanted = _SIZE
    if wanted is None and (math.isfinite(value) or (value == math.inf and group == "model")):
        return  # infinity has a meaning for activations
    if wanted is not None and math.isfinite(value) and value in wanted:
        return
    words, hint = "a finite number", ""
    if wanted is not None:
        words = f"a {'whole ' if wanted.whole else ''}number {wanted.in_words()}"
        typed = key.replace("[", ".").replace("]", "")
        hint = wanted.instead or f"for example {typed}={wanted.such_as if wanted.above else wanted.least:g}"
    raise ConfigError(f"{value} was given; {words} was expected", key=key, hint=hint)


_CHOICES: dict[str, tuple[object, ...]] = {
    "baseline": ("auto", "none", *BASELINES),
    "enforce_clean_git": (True, False),
    "optimizer.fused": ("auto", True, False),
    "optimizer.line_search_fn": ("strong_wolfe",),
    "scheduler.interval": ("step", "epoch"),
    "trainer.gradient_clip_algorithm": ("norm", "value"),
    "trainer.matmul_precision": ("highest", "high", "medium"),
    "trainer.precision": (
        *("16-mixed", "bf16-mixed", "32-true", "64-true", "bf16-true", "16-true", "transformer-engine"),
        *("transformer-engine-float16", "16", "32", "64", "bf16", 16, 32, 64),
    ),
}


def check_values(config: DictConfig) -> None:
    """Refuse values that no run can use, whatever else was chosen."""
    _check_name_and_tags(config)
    if value_of(config, "predictions") is not None:
        for name in ("max_megabytes", "num_samples"):
            key = f"predictions.{name}"
            check_whole_number(key, value_of(config, key), 0, 1000)
    check_whole_number("seed", OmegaConf.select(config, "seed"), 0, LARGEST_SEED)
    if (frequency := value_of(config, "scheduler.frequency")) is not None:
        check_whole_number("scheduler.frequency", frequency, 1)
    for key, choices in _CHOICES.items():
        check_choice(key, value_of(config, key), choices)
    monitor = value_of(config, "scheduler.monitor")
    is_plateau = str(value_of(config, "scheduler._target_")).endswith(".ReduceLROnPlateau")
    if (not isinstance(monitor, str | None)) or (is_plateau and not monitor):
        raise ConfigError(
            f"{shown(monitor)} was given; the name of a metric was expected",
            key="scheduler.monitor",
            hint="scheduler.monitor=val/loss",
        )
    if is_plateau:
        _check_plateau(config)
    if value_of(config, "data._target_") == OUR_DATA:
        for key in ("data.seed", "data.split.seed"):
            if (value := value_of(config, key)) is not None:
                check_whole_number(key, value, 0, LARGEST_SEED)
        check_limits({name: value_of(config, f"data.{name}") for name in NAMES})


def _check_plateau(config: DictConfig) -> None:
    lr = value_of(config, "optimizer.lr")
    for name in ("min_lr", "eps"):
        value = value_of(config, f"scheduler.{name}")
        if is_number(value) and is_number(lr) and value >= lr > 0:
            raise ConfigError(
                f"{value} was given; with optimizer.lr={lr} the learning rate would never be lowered",
                key=f"scheduler.{name}",
                hint=f"scheduler.{name}=0.0",
            )


def _check_name_and_tags(config: DictConfig) -> None:
    name, tags = value_of(config, "name"), value_of(config, "tags")
    key, message, hint = "tags", "", "tags=[baseline,week_3]"
    if not (is_number(name) or isinstance(name, str)) or not str(name).strip():
        key, message, hint = "name", f"{shown(name)} was given; a name was expected", "name=my_run"
    elif tags is not None and not isinstance(tags, list):
        message, hint = f"{shown(tags)} was given; a list was expected", f"tags=[{tags}]"
    elif wrong := [tag for tag in tags or [] if not isinstance(tag, str | int | float)]:
        message = f"{shown(wrong[0])} is not a tag"
    if message:
        raise ConfigError(message, key=key, hint=hint)


_RAISED = re.compile(r"^\w+ raised while resolving interpolation: ")
_NO_MAPPING = re.compile(r"node `([^`]+)` is not a container")
_NAMES_OF_FILES = ("name", "run_dir", "dirpath", "filename", "save_dir", "path")


def check_job(config: DictConfig) -> None:
    """Refuse a job with holes, dangling interpolations, values out of range, or things that are not here."""
    refuse_foreign_ranks()
    if "seed" not in config:  # data and others ask for it
        check_whole_number("seed", None, 0, LARGEST_SEED)
    entries = list(walk(config))
    missing = sorted(entry.key for entry in entries if entry.is_missing)
    if missing:
        raise ConfigError(
            "this must be given" if len(missing) == 1 else "each of these must be given",
            key=", ".join(missing),
            hint=f"add {' '.join(f'{key}=…' for key in missing)}",
        )
    _check_secrets(entries)
    check_targets(config)
    check_tasks(config)
    for entry in entries:
        if entry.is_interpolation:
            _check_interpolation(entry, [other.key for other in entries])
    _check_targets(config)
    check_values(config)
    check_fused(config)
    check_ranges(config)
    check_trainer(config)
    check_installed(config)
    check_data_root(config)
    check_output_paths(config)


def _check_secrets(entries: list[Entry]) -> None:
    """No file is named after a secret, and none is asked for that a run directory did not keep."""
    for entry in entries:
        text = entry.raw if not entry.is_container else None
        if not isinstance(text, str):
            continue
        note_given(text, entry.key.rpartition(".")[2].partition("[")[0])
        if text == STRUCK or f"://{STRUCK}@" in text:
            raise ConfigError(
                "a secret stood here, which the run directory does not hold",
                key=entry.key,
                hint=f"{entry.key}=${{oc.env:NAME}}, with the secret in the environment variable NAME",
            )
        if entry.name in _NAMES_OF_FILES and holds_secret(text):
            raise ConfigError(
                "a file or folder would be named after a secret",
                key="hydra.run.dir" if entry.key == "run_dir" else entry.key,
                hint="take the secret out of the name",
            )


def _check_interpolation(entry: Entry, keys: list[str]) -> None:
    """What is interpolated must be there; `${spec.…}` comes with the data."""
    if OF_SPEC.fullmatch(str(entry.raw)) and "spec" not in root_of(entry.node):
        return  # most of them, and OmegaConf's errors are slow
    try:
        entry.parent[entry.name]
    except InterpolationKeyError as error:
        asked = str(error).partition("Interpolation key '")[2].partition("'")[0]
        if asked.partition(".")[0] == "spec":
            return
        raise ConfigError(
            f"there is no {asked!r} to take the value from{did_you_mean(asked, keys, '; ')}",
            key=entry.key,
            hint=f"{entry.key}=VALUE, or ${{…}} of a key that `assay train --cfg` shows",
        ) from error
    except OmegaConfBaseException as error:
        text = _RAISED.sub("", first_line(error))
        if match := _NO_MAPPING.search(text):
            text = f"a mapping was expected, from which {entry.key} takes its value"
            raise ConfigError(text, key=match[1], hint=f"leave {match[1]} as it is") from error
        raise ConfigError(text, key=entry.key, hint=f"{entry.key}=VALUE") from error


def _check_targets(config: DictConfig) -> None:
    """The nodes that no run can do without, and those of groups whose options add up."""
    ours = OmegaConf.select(config, "module._target_") == OUR_MODULE
    needed = ["trainer", "module", "data"]
    if OmegaConf.select(config, "data._target_") == OUR_DATA and "source" in config.data:
        needed.append("data.source")
    if ours:
        needed += ["model", "loss", "optimizer", "metrics.train", "metrics.eval"]
        needed += [key for key in ("param_groups", "scheduler", "augment", "finetune") if config.get(key)]
    for group in ("callbacks", "logger"):
        needed += [f"{group}.{name}" for name, node in (config.get(group) or {}).items() if node is not None]
    for key in needed:
        node = OmegaConf.select(config, key)
        if not isinstance(node, DictConfig) or not node.get("_target_"):
            may_go = key.startswith(("callbacks.", "logger."))
            hint = f"~{key}" if may_go else f"{key}._target_=…, or leave {key} as it is"
            raise ConfigError("names no class: it has no _target_", key=key, hint=hint)
