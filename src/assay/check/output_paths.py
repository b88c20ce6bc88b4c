"""Where a run writes: places that can be made and written to, asked before anything is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omegaconf import DictConfig

from assay.config.serialize import value_of
from assay.config.tree import target_nodes, walk
from assay.data.source_files import SourcePath, check_path, missing_path_error
from assay.data.source_info import info_of
from assay.errors import ConfigError
from assay.files.symlinks import TEXTS
from assay.record.run_record import no_run_error
from assay.targets.external_values import WRITING, is_path

if TYPE_CHECKING:
    from collections.abc import Iterator


_TORCHVISION = SourcePath("root", "the files of the data set", downloads=False)
"""Its data sets download where they are told to."""


def check_data_root(config: DictConfig) -> None:
    """Refuse paths that do not exist or are of the wrong kind."""
    for key, node in target_nodes(config):
        target = str(node.get("_target_"))
        try:
            if target == "assay.load":
                _check_run(f"{key}.run", _path(f"{key}.run", node, "run"))
            for source in info_of(target).paths:
                full = f"{key}.{source.argument}"
                if source.downloads:
                    _check_download(key, node, source)
                elif source.or_url and "://" in str(value_of(node, source.argument)):
                    continue
                elif (path := _path(full, node, source.argument)) is not None:
                    check_path(path, source, full)
            if target.startswith("torchvision.datasets.") and "root" in node:
                _check_download(key, node, _TORCHVISION)
        except OSError as error:  # too long, or not to be looked into
            raise ConfigError(
                f"{error.strerror}: {str(error.filename)[:80]}", key=key, hint="choose another path"
            ) from error


def _check_download(key: str, node: DictConfig, source: SourcePath) -> None:
    if node.get("_partial_"):  # its root comes from somewhere else
        return
    full, download = f"{key}.{source.argument}", value_of(node, "download")
    path = _path(full, node, source.argument)
    if path is None or not isinstance(download, bool | None):
        return  # reported when arguments are checked
    path = path.expanduser()  # as torchvision does
    if path.exists():
        check_path(path, source, full)
    elif not (source.downloads if download is None else download):
        expected = "folder" if download is None else f"folder, and {key}.download is false"
        raise missing_path_error(full, path, expected, f"to have it downloaded: {key}.download=true")


def _check_run(full: str, path: Path | None) -> None:
    hint = "runs lie under outputs/<name>/<date>/"
    if path is not None and not path.is_dir():
        raise missing_path_error(full, path, "run directory", hint)
    if path is not None and not (path / "config.yaml").is_file():
        error = no_run_error(path.absolute())
        raise ConfigError(error.message, key=full, hint=error.hint)


def _path(full: str, node: DictConfig, name: str) -> Path | None:
    value = value_of(node, name)
    if value == "":
        raise ConfigError("expected a path, got an empty text", key=full, hint=f"{full}=PATH")
    return Path(value) if isinstance(value, str) else None


_KIND: Final = ".ModelCheckpoint"
_LIBRARIES: Final = ("assay.", "lightning.")
_FILES: Final = ("path", "file", "filepath")
"""Arguments of theirs that name a file; other paths are folders."""
_LOCAL: Final = ("sqlite:///", "file://", "file:")
_OWN: Final = (*TEXTS, "record.json", "log.txt", ".lock", "checkpoints")
"""What assay itself writes into a run directory, beside its metrics.csv."""


def check_output_paths(config: DictConfig) -> None:
    """Refuse a job that could not write its run directory, or what its callbacks and loggers are to write."""
    run_dir = str(config.get("run_dir") or "")
    check_folder("hydra.run.dir", run_dir)
    _check_checkpoint_dirs(config, run_dir)
    for key, value, is_file in _places(config):
        if not value:
            kind = "file" if is_file else "folder"
            raise ConfigError(
                f"expected a {kind}, got an empty path", key=key, hint=f"{key}='${{run_dir}}/…'"
            )
        if why := _why_unwritable(value, is_file=is_file):
            raise ConfigError(f"{value!r}: {why}", key=key, hint=f"{key}='${{run_dir}}/…'")
        if is_file and os.path.dirname(value) == run_dir and os.path.basename(value) in _OWN:  # noqa: PTH119, PTH120 - nothing is opened
            raise ConfigError(
                "the run itself writes this file", key=key, hint=f"{key}='${{run_dir}}/metrics.csv'"
            )


def check_folder(key: str, path: str) -> None:
    """Refuse a directory for a run or a sweep that cannot be made, or is not writable."""
    why = _why_unwritable(path) if path else "expected a folder, got an empty path"
    if why:
        raise ConfigError(f"{path!r}: {why}" if path else why, key=key, hint=f"{key}=SOMEWHERE/ELSE")


def _why_unwritable(path: str, *, is_file: bool = False) -> str:
    """Why nothing can be written there; empty where it can."""
    full_path = Path(os.path.abspath(path))  # noqa: PTH100 - links stay as they are
    existing = next(place for place in (full_path, *full_path.parents) if os.path.lexists(place))
    if existing == full_path and existing.is_dir() is is_file:
        return "expected a file, but this is a folder" if is_file else "this is not a folder"
    if existing != full_path and not existing.is_dir():
        return f"{existing} is not a folder"
    return "" if os.access(existing, os.W_OK) else f"{existing} is not writable"


def _check_checkpoint_dirs(config: DictConfig, run_dir: str) -> None:
    """Refuse checkpoints that resuming, testing and comparing would not find."""
    expected = os.path.normpath(os.path.join(run_dir, "checkpoints"))  # noqa: PTH118 - nothing is opened
    for name, node in (config.get("callbacks") or {}).items():
        if not (
            isinstance(node, DictConfig) and ("dirpath" in node or str(node.get("_target_")).endswith(_KIND))
        ):
            continue
        key = f"callbacks.{name}.dirpath"
        value = value_of(node, "dirpath")
        if value is None or os.path.normpath(str(value)) != expected:
            raise ConfigError(
                f"a run keeps its checkpoints in its own directory, not in {value}",
                key=key,
                hint=f"{key}='${{run_dir}}/checkpoints', and hydra.run.dir=… for the whole run elsewhere",
            )


def _places(config: DictConfig) -> Iterator[tuple[str, str, bool]]:
    """Key and value of each path that a class of a known library writes to, and whether it is a file's."""
    for group in WRITING:
        node = config.get(group)
        for entry in walk(node, group) if isinstance(node, DictConfig) else ():
            if not isinstance(entry.parent, DictConfig) or entry.is_container:
                continue
            if not str(entry.parent.get("_target_")).startswith(_LIBRARIES):
                continue  # custom code may do anything with a path
            name, value = str(entry.name), value_of(entry.parent, entry.name)
            if not isinstance(value, str):
                continue
            local = next((value[len(scheme) :] for scheme in _LOCAL if value.startswith(scheme)), None)
            if local is not None:
                yield entry.key, local, value.startswith("sqlite")
            elif is_path(name) and "://" not in value:
                yield entry.key, value, name in _FILES
