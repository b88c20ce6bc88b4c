"""What a job's config tells by itself, before torch is imported and data is read."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from assay.analysis.objective import BASELINES
from assay.build.trainer_options import refuse_foreign_ranks
from assay.check.output_paths import check_data_root, check_output_paths
from assay.check.trainer import check_trainer
from assay.compose.recipe import check_fused
from assay.config.did_you_mean import did_you_mean
from assay.config.omegaconf_internals import root_of
from assay.config.serialize import LARGEST_SEED, check_choice, check_whole_number, is_number, shown, value_of
from assay.config.tree import OF_SPEC, walk
from assay.config.unread_keys import OUR_DATA, OUR_MODULE
from assay.data.limits import NAMES, check_limits
from assay.errors import ConfigError, first_line
from assay.record.secrets import STRUCK, holds_secret, note_given
from assay.targets.allowed_targets import check_targets
from assay.targets.optional_packages import check_installed
from assay.targets.own_task import check_tasks

if TYPE_CHECKING:
    from assay.config.tree import Entry


def _check_nan(entries: list[Entry]) -> None:
    """Refuse NaN, which compares with no bound of a constructor."""
    for entry in entries:
        value = None if entry.is_container or entry.is_missing else entry.raw
        if isinstance(value, float) and math.isnan(value) and entry.key.startswith(_COMPUTING):
            raise ConfigError("expected a number, got nan", key=entry.key)


_COMPUTING = ("optimizer.", "scheduler.", "model.", "augment.", "loss.")
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
    _check_predictions(config)
    check_whole_number("seed", OmegaConf.select(config, "seed"), 0, LARGEST_SEED)
    if (frequency := value_of(config, "scheduler.frequency")) is not None:
        check_whole_number("scheduler.frequency", frequency, 1)
    for key, choices in _CHOICES.items():
        check_choice(key, value_of(config, key), choices)
    monitor = value_of(config, "scheduler.monitor")
    if monitor is not None and not isinstance(monitor, str):
        raise ConfigError(
            f"{monitor} was given; the name of a metric was expected",
            key="scheduler.monitor",
            hint="scheduler.monitor=val/loss",
        )
    if str(value_of(config, "scheduler._target_")).endswith(".ReduceLROnPlateau"):
        _check_plateau(config)
    if value_of(config, "data._target_") == OUR_DATA:
        _check_data(config)


def _check_predictions(config: DictConfig) -> None:
    for name, largest in (("max_megabytes", 1000), ("num_samples", 1000)):
        key = f"predictions.{name}"
        if value_of(config, "predictions") is not None:
            check_whole_number(key, value_of(config, key), 0, largest)


def _check_plateau(config: DictConfig) -> None:
    if not value_of(config, "scheduler.monitor"):
        raise ConfigError(
            "the learning rate follows a metric; none is named",
            key="scheduler.monitor",
            hint="scheduler.monitor=val/loss",
        )


def _check_name_and_tags(config: DictConfig) -> None:
    name, tags = value_of(config, "name"), value_of(config, "tags")
    if not (is_number(name) or isinstance(name, str)) or not str(name).strip():
        raise ConfigError(f"{shown(name)} was given; a name was expected", key="name", hint="name=my_run")
    if tags is not None and not isinstance(tags, list):
        raise ConfigError(f"{shown(tags)} was given; a list was expected", key="tags", hint=f"tags=[{tags}]")
    for tag in tags or []:
        if not isinstance(tag, str | int | float):
            raise ConfigError(f"{shown(tag)} is not a tag", key="tags", hint="tags=[baseline,week_3]")


def _check_data(config: DictConfig) -> None:
    for key in ("data.seed", "data.split.seed"):
        if (value := value_of(config, key)) is not None:
            check_whole_number(key, value, 0, LARGEST_SEED)
    check_limits({name: value_of(config, f"data.{name}") for name in NAMES})


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
    _check_nan(entries)
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
            raise ConfigError(
                "names no class: it has no _target_",
                key=key,
                hint=f"~{key}"
                if key.startswith(("callbacks.", "logger."))
                else f"{key}._target_=…, or leave {key} as it is",
            )
