"""Where a run writes: places that can be made and written to, asked before anything is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.tree import called_nodes
from assay.data.source_info import info_of
from assay.data.source_paths import SourcePath, check_path, missing
from assay.errors import ConfigError

_TORCHVISION = SourcePath("root", "the files of the data set", downloads=False)
"""Its data sets download where they are told to."""


def check_data_root(config: DictConfig) -> None:
    """Refuse paths of nothing, and paths of something else than what is read from them."""
    for key, node in called_nodes(config):
        target = str(node.get("_target_"))
        try:
            if target == "assay.load":
                _check_run(f"{key}.run", _path(f"{key}.run", node, "run"))
            for source in info_of(target).paths:
                _check(key, node, source)
            if target.startswith("torchvision.datasets.") and "root" in node:
                _check_download(key, node, _TORCHVISION)
        except OSError as error:  # too long, or not to be looked into
            raise ConfigError(
                f"{error.strerror}: {str(error.filename)[:80]}", key=key, hint="another path"
            ) from error


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


_LONGEST_PART: Final = 255
TEMPORARY: Final = len(f"..{'0' * 12}.tmp")
"""Bytes by which a file's name is longer while it is being written."""


def check_output_paths(config: DictConfig) -> None:
    """Refuse a job that could not write its run directory, or whose checkpoints would lie elsewhere."""
    run_dir = str(config.get("run_dir") or "")
    check_folder("hydra.run.dir", run_dir, str(config.get("name")))
    wanted = os.path.normpath(os.path.join(run_dir, "checkpoints"))  # noqa: PTH118 - nothing is opened
    for name, node in (config.get("callbacks") or {}).items():
        if not isinstance(node, DictConfig):
            continue
        if "dirpath" not in node and not str(node.get("_target_")).endswith(".ModelCheckpoint"):
            continue
        value = _given(node, "dirpath")
        if value is None or os.path.normpath(str(value)) != wanted:
            key = f"callbacks.{name}.dirpath"
            raise ConfigError(
                f"a run keeps its checkpoints in its own directory, not in {value}",
                key=key,
                hint=f"{key}='${{run_dir}}/checkpoints', and hydra.run.dir=… for the whole run elsewhere",
            )


def check_folder(key: str, path: str, name: str = "", instead: str = "SOMEWHERE/ELSE") -> None:
    """Refuse a directory for a run or a sweep that cannot be made, or cannot be written to."""
    if why := _why_not(path):
        if any(map(too_long, name.split("/"))):
            key, instead = "name", "my_experiment"
        short = repr(path) if len(path) <= 80 else f"'{path[:40]}…{path[-30:]}'"
        raise ConfigError(f"{short}: {why}" if path else why, key=key, hint=f"{key}={instead}")


def too_long(part: str, more: int = 0) -> str:
    """Why a name is too long for a file or folder; empty where it is not."""
    size = len(part.encode(errors="surrogateescape")) + more
    return f"a name of {size} bytes; a file system takes {_LONGEST_PART}" if size > _LONGEST_PART else ""


def _why_not(path: str) -> str:
    """Why nothing can be written to a folder; empty where it can."""
    if not path or "\0" in path:
        return "expected a folder"
    there = Path(os.path.abspath(path))  # noqa: PTH100 - links stay as they are
    if why := next(filter(None, map(too_long, there.parts)), ""):
        return why
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        return f"{there} is not a folder"
    return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written to"
