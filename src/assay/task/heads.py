"""The heads of a multitask model, as the names of its outputs tell them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Sequence

SIGN: Final = "="
"""Between the name of a head and that of a class, such as `species=setosa`; no head's name holds it."""


@final
@dataclass(frozen=True)
class Head:
    """What predicts one target."""

    name: str
    column: int
    start: int
    class_names: tuple[str, ...] = ()

    @property
    def num_outputs(self) -> int:
        """One for each class, or a single one."""
        return len(self.class_names) or 1

    def of(self, outputs: Any) -> Any:
        """Its part of all outputs."""
        return outputs[..., self.start : self.start + self.num_outputs]

    def targets_of(self, targets: Any) -> Any:
        """Its part of all targets, in the form of a task of its own."""
        column = targets[:, self.column]
        return column.long() if self.class_names else column[:, None]


def heads_of(output_names: Sequence[str]) -> tuple[Head, ...]:
    """The heads, in the order of their outputs and targets."""
    heads: list[Head] = []
    for index, output_name in enumerate(output_names):
        name, sign, class_name = output_name.partition(SIGN)
        if sign and heads and heads[-1].name == name:
            last = heads[-1]
            heads[-1] = Head(name, last.column, last.start, (*last.class_names, class_name))
        else:
            heads.append(Head(name, len(heads), index, (class_name,) if sign else ()))
    return tuple(heads)


def output_names(name: str, class_names: Sequence[str] = ()) -> list[str]:
    """Names of the outputs of a head, from which `heads_of` makes it again."""
    return [f"{name}{SIGN}{one}" for one in class_names] or [name]


def metric_keys(names: Sequence[str]) -> list[str]:
    """Names of targets as those of metrics begin: torch takes no dot there, and each is another.

    >>> metric_keys(["price.eur", "rent", "price_eur"])
    ['price_eur_0', 'rent', 'price_eur_2']
    """
    keys = [name.replace(".", "_") for name in names]
    return [key if keys.count(key) == 1 else f"{key}_{at}" for at, key in enumerate(keys)]
