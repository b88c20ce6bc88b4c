"""Are the files and folders there that a job reads?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.tree import walk
from assay.data.source_paths import SOURCE_PATHS, SourcePath, check_path, missing
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TORCHVISION = SourcePath("root", "the files of the data set", downloads=False)
"""Its data sets download where they are told to."""


def check_data_root(config: DictConfig) -> None:
    """Refuse paths of nothing, and paths of something else than what is read from them.

    Args:
        config: A job; relative paths are relative to the current directory.

    Raises:
        ConfigError: Naming the key and the absolute path.
    """
    for key, node in _targets(config):
        target = str(node.get("_target_"))
        try:
            if target == "assay.load":
                _check_run(f"{key}.run", _path(f"{key}.run", node, "run"))
            for source in SOURCE_PATHS.get(target, ()):
                _check(key, node, source)
            if target.startswith("torchvision.datasets.") and "root" in node:
                _check_download(key, node, _TORCHVISION)
        except OSError as error:  # too long, or not to be looked into
            raise ConfigError(
                f"{error.strerror}: {str(error.filename)[:80]}", key=key, hint="another path"
            ) from error


def _targets(config: DictConfig) -> Iterator[tuple[str, DictConfig]]:
    for entry in walk(config):
        if entry.is_container and isinstance(entry.node, DictConfig) and "_target_" in entry.node:
            yield entry.key, entry.node


def _check(key: str, node: DictConfig, source: SourcePath) -> None:
    if source.downloads:
        _check_download(key, node, source)
        return
    full = f"{key}.{source.argument}"
    if (path := _path(full, node, source.argument)) is not None:
        check_path(path, source, full)


def _check_download(key: str, node: DictConfig, source: SourcePath) -> None:
    if node.get("_partial_"):  # its root comes from somewhere else
        return
    full, download = f"{key}.{source.argument}", _given(node, "download")
    path = _path(full, node, source.argument)
    if path is None or not isinstance(download, bool | None):
        return  # that one is said when arguments are looked at
    path = path.expanduser()  # as torchvision does
    if path.exists():
        check_path(path, source, full)
    elif not (source.downloads if download is None else download):
        what = "folder" if download is None else f"folder, and {key}.download is false"
        raise missing(full, path, what, f"to have it downloaded: {key}.download=true")


def _check_run(full: str, path: Path | None) -> None:
    if path is None:
        return
    if not path.is_dir():
        raise missing(full, path, "run directory", "runs lie under outputs/<name>/<date>/")
    if not (path / "config.yaml").is_file():
        raise ConfigError(
            f"{path.absolute()} is not a run directory: it has no config.yaml",
            key=full,
            hint="runs lie under outputs/<name>/<date>/",
        )


def _given(node: DictConfig, name: str) -> object:
    try:
        return OmegaConf.select(node, name, throw_on_missing=False)
    except OmegaConfBaseException:
        return None  # said elsewhere


def _path(full: str, node: DictConfig, name: str) -> Path | None:
    value = _given(node, name)
    if value == "":
        raise ConfigError("a path was expected", key=full, hint=f"{full}=PATH")
    return Path(value) if isinstance(value, str) else None
