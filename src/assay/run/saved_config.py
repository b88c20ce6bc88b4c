"""The config that a run's directory holds, which may be somebody else's, and where that run ended."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omegaconf import OmegaConf

from assay.config.tree import walk
from assay.config.yaml_file import load_mapping
from assay.errors import AssayError, ConfigError, first_line
from assay.files.checksum import is_yaml_intact
from assay.files.symlinks import read_whole
from assay.paths import project_conf
from assay.record.run_lock import is_written
from assay.record.run_record import RunRecord, no_run_error
from assay.targets.allowed_targets import check_targets
from assay.targets.resolve import import_tasks
from assay.targets.trust import KEY, Trust, project_packages, validate_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from omegaconf import DictConfig

log = logging.getLogger(__name__)


def read_config(
    run_dir: Path, trusted_packages: Sequence[str] = (), *, must_be_whole: bool = False
) -> DictConfig:
    """A run's resolved config, every target in it judged by its name; tasks of one's own are imported."""
    config = load_checked_config(run_dir, trusted_packages, must_be_whole=must_be_whole)
    with name_file_in_errors(run_dir / "config.yaml"):
        import_tasks(config)
    return config


def load_checked_config(
    run_dir: Path, trusted_packages: Sequence[str] = (), *, must_be_whole: bool = False
) -> DictConfig:
    """As `read_config`; nothing that it names is imported."""
    path = run_dir / "config.yaml"
    if not path.is_file():
        raise no_run_error(run_dir)
    try:
        intact = is_yaml_intact(read_whole(path))
    except OSError as error:
        raise AssayError(f"{path} cannot be read: {first_line(error)}") from error
    if intact is False or (must_be_whole and not intact):
        message = f"{path} is damaged or was changed: the SHA-256 in its last line does not match"
        raise AssayError(message, hint="restore it from a copy")
    if intact is None:
        log.warning("%s has no SHA-256 in its last line, so it cannot be verified", path)
    config = load_mapping(path)
    config.pop("hydra", None)
    config[KEY] = Trust(
        project_packages(project_conf()), validate_names(trusted_packages)
    ).packages
    with name_file_in_errors(path):
        check_targets(config)
        for key, text in interpolations(config).items():
            if key.startswith("spec."):  # it could name the environment, and would be predicted
                raise ConfigError(
                    f"expected a value, got {text}", key=key, hint="restore the file"
                )
    return config


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """The key of an error is one of that file, not of the job that loads it."""
    try:
        yield
    except ConfigError as error:
        error.add_file(str(path))
        raise


_ENDED = {"interrupted": "was interrupted", "failed": "failed", "pruned": "was pruned"}


def describe_ending(run_dir: Path, checkpoint: Path) -> list[str]:
    """One sentence on how the run ended and which weights these are; none where it has finished."""
    try:
        record = RunRecord.load(run_dir)
    except AssayError as error:  # of a run that was killed early
        return [f"{error.message}: how the run ended is not known"]
    if record.status == "finished":
        return []
    otherwise = "was killed"
    if is_written(run_dir):
        otherwise = "has not ended"
    ended = _ENDED.get(record.status, otherwise)
    which = "last checkpoint"
    if checkpoint.name == record.checkpoints.get("best"):
        best = record.best.get("epoch")
        epoch = ""
        if isinstance(best, int):
            epoch = f" (epoch {best})"
        which = f"best checkpoint so far{epoch}"
    return [f"the run {ended}: these are the weights of its {which}"]


_REFERENCES = re.compile(r"(?:[^$]|\$\{[\w.]+\}|\$\{oc\.select:[\w.]+(?:,[\w.-]*)?\})+", re.ASCII)
"""Text with references to other keys; no call of another resolver, which could read the environment."""


def interpolations(config: DictConfig) -> dict[str, str]:
    """Everything that a job says as `${…}`, as it is written, by its full key."""
    return {entry.key: str(entry.raw) for entry in walk(config) if entry.is_interpolation}


def restore_interpolations(
    config: DictConfig, written: Mapping[str, str], *, references_only: bool = False
) -> DictConfig:
    """A resolved config as it was before; to be resolved again with references alone."""
    before = config.copy()
    # not selected: that would ask for what is not yet known
    existing = {entry.key for entry in walk(config)}
    for key, text in written.items():
        if key in existing and (_is_reference(key, text) or not references_only):
            OmegaConf.update(before, key, text)
    return before


def _is_reference(key: str, text: str) -> bool:
    parts = re.split(r"[.\[\]]+", key)
    return (
        "_target_" not in parts and KEY not in parts and _REFERENCES.fullmatch(text) is not None
    )
