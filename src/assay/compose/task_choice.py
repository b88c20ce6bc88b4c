"""What data of one's own has to be predicted, known before the job is composed: loss and metrics follow."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zipfile import BadZipFile

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from assay.config.serialize import value_of
from assay.config.unread_keys import OUR_MODULE
from assay.errors import AssayError, ConfigError
from assay.model.hf_folder import network_of
from assay.task.reconstruction import Reconstruction
from assay.task.task_of import TASKS, Binary, infer_task

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

_ARRAYS: Final = "assay.data.arrays.Arrays"
_FOR_IMAGES: Final = "small_cnn"
"""The model of `train.yaml`, which vectors do not fit."""
_CHOSEN: Final = ("model.", "loss.", "metrics.", "augment.")
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def task_to_choose(config: DictConfig, overrides: Sequence[str], options: Collection[str]) -> list[str]:
    """The overrides that choose the loss and metrics of the data's task, and a model that suits it."""
    if _typed("task", overrides) or _typed("data.task", overrides):
        return []
    try:
        source: Any = config.data.source
        if not isinstance(source, DictConfig):
            return []  # which is refused with its key, when nodes are looked at
        source = OmegaConf.to_container(source, resolve=True)
        name = source.get("task")
    except (OmegaConfBaseException, AttributeError):
        return []
    if name in ("auto", None):
        look = _SOURCES.get(str(source.get("_target_")))
        name = look(source) if look is not None else ""
    if OmegaConf.select(config, "module._target_") != OUR_MODULE:
        return []
    option = _WORDS.sub("_", str(name).rpartition(".")[2]).lower()
    chosen = option in options and not (option == Binary.name and _says_several(overrides))
    task = [f"task={option}", *suited([*overrides, f"task={option}"])] if chosen else []
    by_default = OmegaConf.select(config, "hydra.runtime.choices.model") == _FOR_IMAGES
    if by_default and not _typed("model", [*overrides, *task]) and _are_vectors(source):
        task.append("model=mlp")
    return task


def _says_several(overrides: Sequence[str]) -> bool:
    """Whether a loss or metrics were chosen, of which those of several classes take two as well."""
    return any(_typed(group, overrides) for group in ("loss", "metrics", "experiment"))


def suited(overrides: Sequence[str]) -> list[str]:
    """What goes with a typed task that takes the place of the data's own, for which the data has chosen."""
    named = [
        one.partition("=")[2] for one in overrides if one.lstrip("+").startswith(("task=", "data.task="))
    ]
    task = TASKS.get(named[-1]) if named else None
    if task is None or not task.learns_from_inputs or _typed("experiment", overrides):
        return []
    return [one for one in task.suits.split() if not _typed(one.partition("=")[0], overrides)]


def is_of_task(key: str) -> bool:
    """Whether a key lies in a part that the task of the data may choose, which has it only then.

    >>> is_of_task("model.latent_size"), is_of_task("model"), is_of_task("data.batch_size")
    (True, False, False)
    """
    return key.lstrip("+~").startswith(_CHOSEN)


def _typed(group: str, overrides: Sequence[str]) -> bool:
    return any(override.lstrip("+~").startswith(f"{group}=") for override in overrides)


def _of_table(source: dict[str, Any]) -> str:
    """By the target's columns; nothing where they cannot be read, which is said when the data is."""
    targets = source.get("target")
    if targets is None and "tokenizer" not in source:  # texts are not reconstructed
        return Reconstruction.name
    if not isinstance(targets, str | list) or "???" in (source.get("path"), targets):
        return ""
    from assay.data.tabular.feature_choice import task_of_columns
    from assay.data.tabular.table_file import read_table  # pandas takes half a second to import

    names = [targets] if isinstance(targets, str) else [str(name) for name in targets]
    options = {key: source[key] for key in ("decimal", "encoding", "sheet") if source.get(key) is not None}
    try:
        frame = read_table(
            str(source["path"]),
            separator=_one(source.get("separator", "auto")),
            na_values=source.get("na_values") or (),
            columns=names,
            **options,
        )
        return task_of_columns(frame, names)[0]
    except (AssayError, LookupError, TypeError, ValueError):
        return ""


def _are_vectors(source: dict[str, Any]) -> bool:
    """Whether arrays hold numbers by sample and feature, or series by channel; bytes may be pictures."""
    header = _header_of(source, "inputs") if str(source.get("_target_")) == _ARRAYS else None
    if header is None or source.get("layout") is not None:
        return False
    shape, dtype = header
    return len(shape) == 2 or (len(shape) == 3 and dtype.kind == "f")


def _header_of(source: dict[str, Any], argument: str) -> tuple[tuple[int, ...], Any] | None:
    """Shape and type of an array; nothing where there is none, which is said when the data is read."""
    root, name = source.get("root"), source.get(argument)
    if "???" in (root, name) or not isinstance(root, str) or not isinstance(name, str):
        return None
    from assay.data.array_file import NoArrayError, header_of

    try:
        shape, dtype = header_of(Path(root), name)
    except (NoArrayError, OSError, ValueError, BadZipFile):
        return None
    return (shape, dtype) if shape and dtype.kind in "biuf" else None


def _of_arrays(source: dict[str, Any]) -> str:
    if source.get("targets") is None:
        return Reconstruction.name
    if (header := _header_of(source, "targets")) is None:
        return ""
    shape, dtype = header
    num_columns, num_classes = math.prod(shape[1:]), 0
    if dtype.kind != "f" and num_columns == 1:
        from numpy import unique  # torch is not needed, but numpy takes a tenth of a second to import

        from assay.data.array_file import NoArrayError, read_array

        try:
            num_classes = len(unique(read_array(Path(source["root"]), source["targets"])))
        except (NoArrayError, OSError, ValueError, BadZipFile):
            return ""
    return infer_task(is_real=dtype.kind == "f", num_columns=num_columns, num_classes=num_classes)


def _of_folders(source: dict[str, Any]) -> str:
    """Two folders of classes are yes and no."""
    root = Path(str(source.get("root")))
    if source.get("classes") is False or not root.is_dir():
        return ""
    names = [entry.name for entry in root.iterdir() if entry.is_dir() and entry.name[0] != "."]
    if "train" in names and {*names} <= {"train", "val", "test"}:
        names = [
            entry.name for entry in (root / "train").iterdir() if entry.is_dir() and entry.name[0] != "."
        ]
    return infer_task(is_real=False, num_columns=1, num_classes=len(names)) if len(names) == 2 else ""


_SOURCES: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    _ARRAYS: _of_arrays,
    "assay.data.image_folder.ImageFolder": _of_folders,
    "assay.data.table.Table": _of_table,
    "assay.data.text_table.TextTable": _of_table,
}
"""Sources that find out themselves, by a look at their targets."""


def _one(separator: Any) -> str:
    """A regular expression, which pandas would take, may never end."""
    text = str(separator)
    if len(text) != 1 and text not in (r"\s+", "auto"):
        raise ValueError(text)
    return text


DECIDE: Final = ("model.weights", "model.config")
"""Keys that decide it."""
_TARGET: Final = "assay.model.hf_text.HFText"


def settle_network(config: DictConfig) -> None:
    """Replace `model.config: auto` by what the folder in `model.weights` says: the run no longer needs it."""
    if value_of(config, "model._target_") != _TARGET or value_of(config, "model.config") != "auto":
        return
    try:
        settings = network_of(value_of(config, "model.weights"))
    except ConfigError:
        return
    with open_dict(config):
        config.model.config = settings
