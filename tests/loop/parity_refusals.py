"""Which settings of the parity suite do not go together, and how Lightning says so."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.loop.parity_axes import AXES, CALLBACKS

if TYPE_CHECKING:
    from collections.abc import Mapping

Settings = dict[str, set[str]]
MANUAL = {"manual", "manual, two"}
STOPPING = {"early stopping", "early stopping on train", "early stopping in validation"}
SAVING = {name for name in CALLBACKS if name.startswith("checkpoint")} | {"on exception"}
SHOWN = {"rich bar", "tqdm bar", "assay bar"}
LOGGING = {"lr monitor", "lr monitor, epoch", "device stats", "assay log"}
NO_SCORE = r"`ModelCheckpoint\(monitor='val/seen'\)` could not find"
NO_GRADIENTS = r"RuntimeError: Expected !nested_tensorlist\[0\].empty\(\)"


@dataclass(frozen=True)
class Refused:
    """Settings of which any values, one of each axis, end in an error together.

    Attributes:
        settings: The values of each axis.
        error: How the error begins, as a pattern.
    """

    settings: Settings
    error: str


MISCONFIGURED = "MisconfigurationException: "
REFUSED: tuple[Refused, ...] = (
    Refused({"optimization": MANUAL, "accumulation": {"3"}}, MISCONFIGURED + "Automatic gradient accum"),
    Refused(
        {"optimization": MANUAL, "clipping": {"norm", "value"}}, MISCONFIGURED + "Automatic gradient clip"
    ),
    Refused(
        {"optimization": MANUAL, "callbacks": {"accumulation scheduler"}}, "RuntimeError: Automatic gradient"
    ),
    Refused({"optimization": {"manual, two"}, "callbacks": {"swa"}}, MISCONFIGURED + "SWA"),
    Refused({"optimization": {"manual, two"}, "callbacks": {"lr finder"}}, MISCONFIGURED),
    Refused({"optimization": {"lbfgs"}, "precision": {"16-mixed"}}, MISCONFIGURED + "AMP and the LBFGS"),
    Refused({"optimization": {"lbfgs"}, "returns": {"none", "sometimes none"}}, "TypeError: float"),
    Refused({"data": {"stream"}, "limits": {"half"}}, MISCONFIGURED + "When using an `IterableDataset`"),
    Refused(
        {"data": {"stream"}, "validation": {"0.5", "0.5, every 2 epochs"}},
        MISCONFIGURED + "When using an IterableDataset",
    ),
    Refused({"data": {"stream"}, "callbacks": {"swa"}}, "AssertionError: Iterable-style datasets"),
    Refused({"data": {"two"}, "signature": {"no index"}}, "RuntimeError: You provided multiple"),
    Refused({"data": {"two"}, "limits": {"half"}}, MISCONFIGURED + "You requested to check 0.5"),
    # What is logged of several dataloaders has their numbers in its name.
    Refused(
        {"data": {"two"}, "callbacks": {"checkpoint, best", "checkpoint, two"}}, MISCONFIGURED + NO_SCORE
    ),
    Refused(
        {"data": {"two"}, "callbacks": {"early stopping", "early stopping in validation"}},
        "RuntimeError: Early stopping conditioned",
    ),
    Refused({"accumulation": {"3"}, "callbacks": {"accumulation scheduler"}}, "ValueError: You have set"),
    Refused({"calls": {"more"}, "callbacks": {"accumulation scheduler"}}, "ValueError: You have set"),
    Refused(
        {"validation": {"by time", "by time, across epochs"}, "callbacks": {"early stopping"}},
        "AttributeError: 'Trainer' object has no attribute 'val_check_interval'",
    ),
    Refused({"precision": {"64-true"}, "callbacks": {"assay ema"}}, "RuntimeError: expected dtype"),
    Refused({"precision": {"64-true"}, "callbacks": {"pruning"}}, "RuntimeError: mat1 and mat2"),
    Refused({"returns": {"nan"}, "callbacks": {"finetuning"}}, "ValueError: some parameters appear in more"),
    Refused({"returns": {"nan"}, "callbacks": {"assay non finite"}}, "NonFiniteError: "),
    Refused({"returns": {"nan"}, "other": {"anomalies"}}, "RuntimeError: Function '.*' returned nan"),
    Refused({"precision": {"16-mixed"}, "other": {"anomalies"}}, "RuntimeError: Function '.*' returned nan"),
    Refused({"clipping": {"value"}, "callbacks": {"swa"}}, NO_GRADIENTS),
    Refused({"clipping": {"value"}, "returns": {"none"}}, NO_GRADIENTS),
    Refused({"clipping": {"value"}, "returns": {"sometimes none"}, "accumulation": {"1"}}, NO_GRADIENTS),
    Refused({"clipping": {"value"}, "returns": {"sometimes none"}, "signature": {"iterator"}}, NO_GRADIENTS),
    Refused({"other": {"barebones"}, "limits": {"fast", "fast 2"}}, "ValueError: `Trainer\\(barebones"),
    Refused({"other": {"barebones"}, "profiler": {"simple"}}, "ValueError: `Trainer\\(barebones"),
    Refused({"other": {"barebones"}, "callbacks": SHOWN | SAVING}, "ValueError: `Trainer\\(barebones"),
    Refused({"other": {"barebones"}, "callbacks": LOGGING}, MISCONFIGURED + "Cannot use"),
    Refused({"other": {"barebones"}, "callbacks": STOPPING}, "RuntimeError: Early stopping conditioned"),
)
"""What Lightning, or the callback itself, does not take together."""
UNTRIED: dict[str, Settings] = {
    "nobody is there to do the deed": {"observer": {"none"}, "deed": set(AXES["deed"]) - {"none"}},
    "the finder loads a state into a loop that is done before it begins; ours goes on from it": {
        "length": {"no epoch"},
        "callbacks": {"lr finder"},
    },
    "no time passes in the step that finds the iterator at its end, which the monitor may not like": {
        "callbacks": {"throughput"},
        "signature": {"iterator"},
        "data": {"stream"},
    },
    "each closure of a step takes the next batch from the iterator, and may find none": {
        "optimization": {"lbfgs"},
        "signature": {"iterator"},
        "limits": {"half", "few", "overfit", "fast", "fast 2"},
    },
}
"""What is not compared, though Lightning may take it, and why."""
_APART = [*(one.settings for one in REFUSED), *UNTRIED.values()]


def possible(row: Mapping[str, str]) -> bool:
    """Whether some values, of some axes, can go together."""
    return not any(all(row.get(axis) in values for axis, values in one.items()) for one in _APART)


def refused_rows() -> list[tuple[dict[str, str], str]]:
    """Each combination that is refused, and how the error begins."""
    return [
        (dict(zip(one.settings, values, strict=True)), one.error)
        for one in REFUSED
        for values in itertools.product(*(sorted(values) for values in one.settings.values()))
    ]
