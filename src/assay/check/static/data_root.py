"""Are the files and folders there that a job reads?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.did_you_mean import did_you_mean
from assay.config.tree import walk
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DOWNLOADS = "assay.data.torchvision_images.TorchvisionImages"
"""Unless it is told not to; torchvision's own classes do when they are told to."""
_PATHS = ("root", "path", "test_path", "run")


def check_data_root(config: DictConfig) -> None:
    """Refuse paths of nothing, and paths of something else than what is read from them.

    Args:
        config: A job; relative paths are relative to the current directory.

    Raises:
        ConfigError: Naming the key and the absolute path.
    """
    for key, node in _targets(config):
        target = str(node.get("_target_"))
        check = _CHECKS.get(target)
        if check is None and target.startswith("torchvision.datasets.") and "root" in node:
            check = _downloaded
        if check is None:
            continue
        for name in _PATHS:
            if _given(node, name) == "":
                raise ConfigError("a path was expected", key=f"{key}.{name}", hint=f"{key}.{name}=PATH")
        try:
            check(key, node)
        except OSError as error:  # too long, or not to be looked into
            raise ConfigError(
                f"{error.strerror}: {str(error.filename)[:80]}", key=key, hint="another path"
            ) from error


def _targets(config: DictConfig) -> Iterator[tuple[str, DictConfig]]:
    for entry in walk(config):
        if entry.is_container and isinstance(entry.node, DictConfig) and "_target_" in entry.node:
            yield entry.key, entry.node


def _images(key: str, node: DictConfig) -> None:
    _folder(key, node, "root", "one folder a class was expected: root/<class>/*.jpg")


def _arrays(key: str, node: DictConfig) -> None:
    path = _path(node, "root")
    if path is not None and not path.exists():
        raise _missing(f"{key}.root", path, "file or folder", "a .npz archive or a folder of .npy files")


def _table(key: str, node: DictConfig) -> None:
    for name in ("path", "test_path"):
        path = _path(node, name)
        if path is None:
            continue
        if ".csv" not in path.name.lower() and path.suffix.lower() not in (".parquet", ".pq"):
            raise ConfigError(
                f"{path}: a .csv or .parquet file was expected", key=f"{key}.{name}", hint="convert it to one"
            )
        if not path.exists():
            raise _missing(f"{key}.{name}", path, "file", "a .csv or .parquet file")
        if path.is_dir() and path.suffix.lower() not in (".parquet", ".pq"):
            raise ConfigError(
                f"{path.absolute()} is a folder",
                key=f"{key}.{name}",
                hint="a .csv or .parquet file was expected",
            )


def _downloaded(key: str, node: DictConfig) -> None:
    if node.get("_partial_"):  # its root comes from somewhere else
        return
    path, download = _path(node, "root"), _given(node, "download")
    if not isinstance(download, bool | None):
        return  # said when arguments are looked at
    if download is True or (download is None and node._target_ == _DOWNLOADS):
        if path is not None and path.exists() and not path.is_dir():
            raise _no_folder(f"{key}.root", path)
        return
    if download is False and path is not None and not path.exists():
        expected = f"to have it downloaded: {key}.download=true"
        raise _missing(f"{key}.root", path, f"folder, and {key}.download is false", expected)
    _folder(key, node, "root", f"to have it downloaded: {key}.download=true")


def _run(key: str, node: DictConfig) -> None:
    path = _path(node, "run")
    if path is None:
        return
    if not path.is_dir():
        raise _missing(f"{key}.run", path, "run directory", "runs lie under outputs/<name>/<date>/")
    if not (path / "config.yaml").is_file():
        raise ConfigError(
            f"{path.absolute()} is no run directory: it has no config.yaml",
            key=f"{key}.run",
            hint="runs lie under outputs/<name>/<date>/",
        )


_CHECKS: dict[str, Callable[[str, DictConfig], None]] = {
    "assay.data.image_folder.ImageFolder": _images,
    "assay.data.arrays.Arrays": _arrays,
    "assay.data.table.Table": _table,
    _DOWNLOADS: _downloaded,
    "assay.load": _run,
}


def _given(node: DictConfig, name: str) -> object:
    try:
        return OmegaConf.select(node, name, throw_on_missing=False)
    except OmegaConfBaseException:
        return None  # said elsewhere


def _path(node: DictConfig, name: str) -> Path | None:
    value = _given(node, name)
    return Path(value).expanduser() if isinstance(value, str) and value else None


def _folder(key: str, node: DictConfig, name: str, expected: str) -> None:
    path = _path(node, name)
    if path is None or path.is_dir():
        return
    raise (
        _no_folder(f"{key}.{name}", path)
        if path.exists()
        else _missing(f"{key}.{name}", path, "folder", expected)
    )


def _no_folder(key: str, path: Path) -> ConfigError:
    return ConfigError(f"{path.absolute()} is no folder", key=key, hint=f"{key}=FOLDER")


def _missing(key: str, path: Path, what: str, expected: str) -> ConfigError:
    """There is nothing: which part of the path is the first that is not there, and what there is instead."""
    whole = path.absolute()
    first = next(one for one in (*reversed(whole.parents), whole) if not one.exists())
    try:
        names = sorted(one.name for one in first.parent.iterdir())
    except OSError:
        names = []
    there = "" if first == whole else f"; {first.parent} has no {first.name!r}"
    return ConfigError(
        f"there is no such {what}: {whole}{there}{did_you_mean(first.name, names, '; ')}",
        key=key,
        hint=expected,
    )
