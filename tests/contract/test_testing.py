"""The checks for plugins find what is wrong with a component."""

# ruff: noqa: ARG002 - an interface's arguments

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MetricCollection

from assay.data.core.samples import Samples
from assay.data.core.source_files import SourcePath
from assay.data.core.source_info import SourceInfo
from assay.task.classification import SingleLabel
from assay.task.evaluator import Score
from assay.testing import check_loss, check_source, check_task

DRAW = torch.Generator().manual_seed(0)
OUTPUTS = torch.randn(8, 3, generator=DRAW)
CLASSES = torch.arange(8) % 3


class Loss(nn.Module):
    """A cross-entropy that keeps every promise."""

    kind = "multiclass"
    mean_over_samples = True

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.float(), targets)

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.float().softmax(1)


class PerSample(Loss):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none")


class Detached(Loss):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().forward(outputs.detach(), targets)


class Overflowing(Loss):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (
            -(outputs.exp() / outputs.exp().sum(1, keepdim=True)).log()[range(len(targets)), targets].mean()
        )


class Ordered(Loss):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().forward(outputs * torch.linspace(1, 2, len(outputs))[:, None], targets)


class Narrow(Loss):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (
            -outputs.softmax(1).clamp_min(1e-3).log()[range(len(targets)), targets].mean().to(outputs.dtype)
        )


class Summed(Loss):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.float(), targets, reduction="sum")


class Unnormalised(Loss):
    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.float().sigmoid()


class Negative(Loss):
    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.float()


class Lenient(Loss):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().forward(outputs[: len(targets)], targets)


def test_a_loss_that_keeps_its_promises_passes() -> None:
    check_loss(Loss(), OUTPUTS, CLASSES)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (PerSample, r"expected a scalar, got \[8\]"),
        (Detached, "does not require grad"),
        (Overflowing, "expected a finite loss, got nan"),
        (Ordered, "the loss in another order: Scalars are not close! Expected"),
        (Narrow, "the loss of bfloat16"),
        (Summed, "the mean of batches"),
        (Unnormalised, "sum of the probabilities of a sample"),
        (Negative, "probabilities: expected 0 to 1, got"),
        (Lenient, "targets of fewer samples: expected a ValueError, got none"),
    ],
)
def test_a_loss_that_breaks_one_is_named(broken: type[Loss], message: str) -> None:
    with pytest.raises(AssertionError, match=rf"(?s)^{broken.__name__}: .*{message}"):
        check_loss(broken(), OUTPUTS, CLASSES)


class Source:
    """Twenty samples of two classes, from a file that `path` names."""

    info = SourceInfo(paths=(SourcePath("path", "a file"),), find_task=lambda _: "binary")
    task: Any = "binary"
    class_names = ("a", "b")

    def __init__(self, path: str = "here") -> None:
        self.path = path

    def read(self) -> dict[str, Samples]:
        if self.path != "here":
            raise ValueError(f"{self.path}: no such file")
        return {"all": Samples(torch.arange(60.0).reshape(20, 3), torch.arange(20) % 2)}


class Unpicklable(Source):
    def __init__(self, path: str = "here") -> None:
        super().__init__(path)
        self.read_row = lambda row: row


class Drawing(Source):
    def read(self) -> dict[str, Samples]:
        torch.rand(1)
        return super().read()


class Changing(Source):
    def read(self) -> dict[str, Samples]:
        inputs = np.random.default_rng().random((20, 3), dtype=np.float32)
        return {"all": Samples(torch.from_numpy(inputs), torch.arange(20) % 2)}


class Changed(Source):
    """Other samples each time."""

    changes: ClassVar[dict[str, Any]] = {}

    def read(self) -> dict[str, Samples]:
        return {"all": replace(super().read()["all"], **self.changes)}


class Uneven(Changed):
    changes: ClassVar = {"names": ["a"] * 19}


class Misnamed(Changed):
    changes: ClassVar = {"columns": ["a", "b"]}


class Unknown(Changed):
    changes: ClassVar = {"targets": torch.arange(20) % 3}


class Parts(Source):
    def read(self) -> dict[str, Samples]:
        return {"first": super().read()["all"]}


class Raw(Source):
    info = SourceInfo(raw_input="images")


class OtherTask(Source):
    info = SourceInfo(find_task=lambda _: "regression")


class Forgiving(Source):
    def read(self) -> dict[str, Samples]:
        self.path = "here"
        return super().read()


class Opening(Source):
    """Leaves the refusal of a file that is not there to `open`."""

    def read(self) -> dict[str, Samples]:
        if self.path == "nowhere":
            Path(self.path).read_text(encoding="utf-8")
        return super().read()


class Mistyped(Source):
    info = SourceInfo(paths=(SourcePath("file", "a file"),))


def test_a_source_that_keeps_its_promises_passes() -> None:
    check_source(Source(), {})
    check_source(Opening(), {})


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Unpicklable, "Can't pickle"),
        (Drawing, "expected no draws from torch's random numbers, got some"),
        (Changing, "expected the same all each time, got another one"),
        (Uneven, r"all: expected equally many inputs and targets, got \{"),
        (Misnamed, r"all: expected names of columns, got \(2, 3\)"),
        (Unknown, "has targets from 0 to 2"),
        (Parts, "first"),
        (Raw, "raw_input=images: expected decoding, got none"),
        (OtherTask, "info.find_task: expected binary, got regression"),
        (Forgiving, "path=nowhere: expected a ValueError, got none"),
        (Mistyped, "unexpected keyword argument 'file'"),
    ],
)
def test_a_source_that_breaks_one_is_named(broken: type[Source], message: str) -> None:
    with pytest.raises(AssertionError, match=rf"(?s)^{broken.__name__}: .*{message}"):
        check_source(broken(), {})


class Grades(SingleLabel):
    """A task that keeps every promise."""

    suits = ""
    loss_kinds = frozenset({"multiclass"})
    form = "one grade per sample"


class FloatTargets(Grades):
    def as_targets(self, values: Tensor) -> Tensor:
        return values.float()


class AnyTargets(Grades):
    def check(self, subset: str, targets: Tensor, class_names: Any) -> None:
        pass


class OtherLosses(Grades):
    loss_kinds = frozenset()


class Reversed(Grades):
    def kept(self, outputs: Tensor, targets: Tensor, kind: Any) -> tuple[Tensor, Tensor]:
        outputs, targets = super().kept(outputs, targets, kind)
        return outputs.cumsum(0), targets


class Scored(Grades):
    """With one score, which a subclass computes."""

    def score(self, outputs: Any, targets: Any) -> float:
        raise NotImplementedError

    def scores(self, predictions: Any) -> list[Score]:
        return [Score("score", self.score(predictions.outputs, predictions.targets))]


class NotFinite(Scored):
    def score(self, outputs: Any, targets: Any) -> float:
        return float("nan")


class FirstOnly(Scored):
    def score(self, outputs: Any, targets: Any) -> float:
        return float(outputs[0, 0])


class ZeroWhereAbsent(Scored):
    """Mean recall in which a class without samples counts as 0."""

    def score(self, outputs: Any, targets: Any) -> float:
        guess = outputs.argmax(1)
        hits = np.bincount(targets[guess == targets], minlength=3)
        return float((hits / np.bincount(targets, minlength=3).clip(1)).mean())


class Errors(Grades):
    def error_scores(self, predictions: Any) -> Any:
        return np.arange(len(predictions.outputs), dtype=float)


class ShortTable(Grades):
    def typed(self, outputs: Any, kind: Any, names: Any) -> Any:
        return super().typed(outputs[:-1], kind, names)


def test_a_task_that_keeps_its_promises_passes() -> None:
    check_task(Grades(), Loss(), MetricCollection({}))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (FloatTargets, r"as_targets\(\) of targets"),
        (AnyTargets, r"check\(\) of 5 dimensions: expected a ValueError, got none"),
        (OtherLosses, "loss_kinds: expected one with multiclass"),
        (Reversed, "what is kept in another order"),
        (NotFinite, r"scores: expected finite ones, got \{'score': nan\}"),
        (FirstOnly, "scores in another order"),
        (ZeroWhereAbsent, "score of perfect predictions without a class"),
        (Errors, "error_scores in another order"),
        (ShortTable, "table of predictions: expected 24 rows, got 23"),
    ],
)
def test_a_task_that_breaks_one_is_named(broken: type[Grades], message: str) -> None:
    with pytest.raises(AssertionError, match=rf"(?s)^{broken.__name__}: .*{message}"):
        check_task(broken(), Loss(), MetricCollection({}))
