"""What a job's config tells by itself, before torch is imported and data is read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from assay.build.trainer_options import refuse_foreign_ranks
from assay.check.output_paths import check_data_root, check_output_paths
from assay.check.values import check_values
from assay.compose.recipe import check_fused
from assay.config.did_you_mean import did_you_mean
from assay.config.omegaconf_internals import root_of
from assay.config.tree import OF_SPEC, walk
from assay.config.unread_keys import OUR_DATA, OUR_MODULE
from assay.errors import ConfigError, first_line
from assay.record.secrets import STRUCK, holds_secret, note_given
from assay.targets.allowed_targets import check_targets
from assay.targets.optional_packages import check_installed
from assay.targets.own_task import check_tasks

if TYPE_CHECKING:
    from assay.config.tree import Entry


_RAISED = re.compile(r"^\w+ raised while resolving interpolation: ")
_NO_MAPPING = re.compile(r"node `([^`]+)` is not a container")
_NAMES_OF_FILES = ("name", "run_dir", "dirpath", "filename", "save_dir", "path")


def check_job(config: DictConfig) -> None:
    """Refuse a job with holes, dangling interpolations, values out of range, or things that are not here."""
    refuse_foreign_ranks()
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
