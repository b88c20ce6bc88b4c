"""The config that a run's directory holds, which may be somebody else's."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from assay.config.yaml_file import load_mapping
from assay.errors import AssayError, ConfigError, first_line
from assay.files.sealed import yaml_is_whole
from assay.files.symlinks import read_whole
from assay.paths import project_conf
from assay.targets.allowed_targets import check_targets
from assay.targets.own_task import import_tasks
from assay.targets.trust import KEY, Trust, checked_names, project_packages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from omegaconf import DictConfig

log = logging.getLogger(__name__)


def read_config(
    run_dir: Path, trusted_packages: Sequence[str] = (), *, must_be_whole: bool = False
) -> DictConfig:
    """A run's resolved config, every target in it judged by its name; tasks of one's own are imported.

    Args:
        run_dir: Run directory, perhaps somebody else's.
        trusted_packages: As for `load`.
        must_be_whole: Refuse one without its SHA-256 in the last line, too; the log says so otherwise.

    Raises:
        AssayError: There is none, it cannot be read, it is damaged, or it names what is not trusted.
    """
    config = judged_config(run_dir, trusted_packages, must_be_whole=must_be_whole)
    with said_of(run_dir / "config.yaml"):
        import_tasks(config)
    return config


def judged_config(
    run_dir: Path, trusted_packages: Sequence[str] = (), *, must_be_whole: bool = False
) -> DictConfig:
    """As `read_config`; nothing that it names is imported.

    Args:
        run_dir: As for `read_config`.
        trusted_packages: As for `read_config`.
        must_be_whole: As for `read_config`.

    Raises:
        AssayError: As `read_config`.
    """
    path = run_dir / "config.yaml"
    if not path.is_file():
        raise AssayError(
            f"{run_dir} is not a run directory: it has no config.yaml",
            hint="runs lie under outputs/<name>/<date>/",
        )
    try:
        whole = yaml_is_whole(read_whole(path))
    except OSError as error:
        raise AssayError(f"{path} cannot be read: {first_line(error)}") from error
    if whole is False or (must_be_whole and not whole):
        raise AssayError(
            f"{path} is damaged or was changed: it is not as the SHA-256 in its last line says",
            hint="restore it from a copy",
        )
    if whole is None:
        log.warning("%s has no SHA-256 in its last line: whether it is whole is not known", path)
    config = load_mapping(path)
    config.pop("hydra", None)
    if "imbalance" in (config.get("data") or ()):  # what earlier versions call it
        config.data.thin_classes = config.data.pop("imbalance")
    config[KEY] = Trust(project_packages(project_conf()), checked_names(trusted_packages)).packages
    with said_of(path):
        check_targets(config)
    return config


@contextmanager
def said_of(path: Path) -> Iterator[None]:
    """The key of an error is one of that file, not of the job that loads it."""
    try:
        yield
    except ConfigError as error:
        error.add_file(str(path))
        raise
