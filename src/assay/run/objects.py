"""A model and data given to `assay.train` as objects: what of the config they are."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import lightning as L
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.data import Dataset, TensorDataset

from assay.checkpoint.weights_hash import weights_sha256
from assay.errors import ConfigError
from assay.targets.objects import TARGET, kind_of, place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import ArrayLike

    Data = pd.DataFrame | Dataset[Any] | L.LightningDataModule | tuple[ArrayLike, ArrayLike]

_PLAIN: Final = (bool, int, float, str, type(None))


def as_objects(model: nn.Module | None, data: Data | None) -> dict[str, Any]:
    """What `take` is to return, by argument.

    Raises:
        ConfigError: One of them is something else.
    """
    import pandas as pd  # half a second, which a run without tables need not wait

    if model is not None and not isinstance(model, nn.Module):
        raise ConfigError(
            f"model takes a torch.nn.Module or a LightningModule, not {model!r}",
            hint='name an option of the group: assay.train(["model=mlp"])',
        )
    if not (_is_pair(data) or isinstance(data, pd.DataFrame | Dataset | L.LightningDataModule | None)):
        raise ConfigError(
            "data takes a pandas DataFrame, a torch Dataset, a LightningDataModule or (inputs, targets), "
            f"not a {type(data).__name__}",
            hint='name an option of the group: assay.train(["data=wine"])',
        )
    return {name: one for name, one in (("model", model), ("data", data)) if one is not None}


def with_objects(objects: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Overrides, and those that put the objects into their places.

    Args:
        objects: From `as_objects`.
        overrides: As typed.

    Raises:
        ConfigError: One of the places is typed, too.
    """
    typed = [one.lstrip("+~").partition("=")[0] for one in overrides]
    chosen: list[str] = []
    placed: dict[str, list[str]] = {}
    if (model := objects.get("model")) is not None:
        node = "module" if isinstance(model, L.LightningModule) else "model"
        placed["model"] = [*_node(node, "model", model), f"+{node}.digest={_digest(model)}"]
    if (data := objects.get("data")) is not None:
        option, placed["data"] = _of_data(data)
        if option and "data" not in typed:
            chosen.append(f"data={option}")
        if option == "custom" and "data.num_workers" not in typed:
            chosen.append("data.num_workers=0")  # what is in memory needs no processes that read it
    for argument, implied in placed.items():
        keys = [one.lstrip("+").partition("=")[0] for one in implied]
        if twice := next((key for key in typed if key in keys or f"{key}._target_" in keys), ""):
            raise ConfigError(
                f"given twice: as an override and as {argument}=OBJECT",
                key=twice,
                hint="leave one of them out",
            )
    return [*chosen, *overrides, *(one for implied in placed.values() for one in implied)]


def _of_data(data: Any) -> tuple[str, list[str]]:
    """The option of group `data` that reads an object, and what puts it there."""
    if isinstance(data, L.LightningDataModule):
        return "", _node("data", "data", data)
    if isinstance(data, Dataset) and not _is_pair(data):
        return "custom", _node("data.source.dataset", "data", data)
    option, path = ("arrays", "root") if _is_pair(data) else ("table", "path")
    return option, [f"data.source.{path}={place(data)}"]


def _node(key: str, argument: str, one: Any) -> list[str]:
    return [f"{key}._target_={TARGET}", f"+{key}.argument={argument}", f'+{key}.kind="{kind_of(one)}"']


def _is_pair(data: Any) -> bool:
    """Whether data is inputs and targets, all in memory."""
    given = data.tensors if type(data) is TensorDataset else data
    return isinstance(given, tuple | list) and len(given) == 2


def _digest(model: nn.Module) -> str:
    """Stands for a model's weights and its plain attributes: two that differ in these are two configs."""
    digest = hashlib.sha256()
    for name, part in model.named_modules():
        plain = {key: one for key, one in vars(part).items() if isinstance(one, _PLAIN)}
        digest.update(f"{name} {kind_of(part)} {sorted(plain.items())};".encode())
    made = {
        key: one for key, one in model.state_dict().items() if not is_lazy(one)
    }  # others have no weights yet
    digest.update(weights_sha256(made).encode())
    return digest.hexdigest()[:16]
