"""The checks for plugins find what is wrong with a component."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

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

if TYPE_CHECKING:
    from collections.abc import Callable

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


def broken(kind: type, **members: Any) -> Any:
    """A component of that kind with these members in place of its own."""
    return type("Bad", (kind,), members)()


def test_a_loss_that_keeps_its_promises_passes() -> None:
    check_loss(Loss(), OUTPUTS, CLASSES)


def overflowing(_: Any, outputs: Tensor, targets: Tensor) -> Tensor:
    chances = outputs.exp() / outputs.exp().sum(1, keepdim=True)
    return -chances.log()[range(len(targets)), targets].mean()


def narrow(_: Any, outputs: Tensor, targets: Tensor) -> Tensor:
    chances = outputs.softmax(1).clamp_min(1e-3)
    return -chances.log()[range(len(targets)), targets].mean().to(outputs.dtype)


def ordered(_: Any, outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs * torch.linspace(1, 2, len(outputs))[:, None], targets)


@pytest.mark.parametrize(
    ("name", "method", "message"),
    [
        ("forward", lambda _, o, t: F.cross_entropy(o, t, reduction="none"), r"expected a scalar, got \[8\]"),
        ("forward", lambda _, o, t: F.cross_entropy(o.detach().float(), t), "does not require grad"),
        ("forward", overflowing, "expected a finite loss, got nan"),
        ("forward", ordered, "the loss in another order: Scalars are not close! Expected"),
        ("forward", narrow, "the loss of bfloat16"),
        ("forward", lambda _, o, t: F.cross_entropy(o.float(), t, reduction="sum"), "the mean of batches"),
        (
            "forward",
            lambda _, o, t: F.cross_entropy(o[: len(t)].float(), t),
            "targets of fewer samples: expected a ValueError, got none",
        ),
        ("probabilities", lambda _, o: o.float().sigmoid(), "sum of the probabilities of a sample"),
        ("probabilities", lambda _, o: o.float(), "probabilities: expected 0 to 1, got"),
    ],
)
def test_a_loss_that_breaks_one_is_named(name: str, method: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=rf"(?s)^Bad: .*{message}"):
        check_loss(broken(Loss, **{name: method}), OUTPUTS, CLASSES)


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


def reverse(self: Grades, outputs: Tensor, targets: Tensor, kind: Any) -> tuple[Tensor, Tensor]:
    outputs, targets = Grades.kept(self, outputs, targets, kind)
    return outputs.cumsum(0), targets


def scored(score: Callable[[Any, Any], float]) -> Callable[..., list[Score]]:
    return lambda _, predictions: [Score("score", score(predictions.outputs, predictions.targets))]


def zero_where_absent(outputs: Any, targets: Any) -> float:
    """Mean recall in which a class without samples counts as 0."""
    guess = outputs.argmax(1)
    hits = np.bincount(targets[guess == targets], minlength=3)
    return float((hits / np.bincount(targets, minlength=3).clip(1)).mean())


def test_a_task_that_keeps_its_promises_passes() -> None:
    check_task(Grades(), Loss(), MetricCollection({}))


@pytest.mark.parametrize(
    ("name", "method", "message"),
    [
        ("as_targets", lambda _, values: values.float(), r"as_targets\(\) of targets"),
        ("check", lambda *_: None, r"check\(\) of 5 dimensions: expected a ValueError, got none"),
        ("loss_kinds", frozenset(), "loss_kinds: expected one with multiclass"),
        ("kept", reverse, "what is kept in another order"),
        ("scores", scored(lambda *_: float("nan")), r"scores: expected finite ones, got \{'score': nan\}"),
        ("scores", scored(lambda outputs, _: float(outputs[0, 0])), "scores in another order"),
        ("scores", scored(zero_where_absent), "score of perfect predictions without a class"),
        (
            "error_scores",
            lambda _, predictions: np.arange(len(predictions.outputs), dtype=float),
            "error_scores in another order",
        ),
        (
            "typed",
            lambda self, outputs, kind, names: Grades.typed(self, outputs[:-1], kind, names),
            "table of predictions: expected 24 rows, got 23",
        ),
    ],
)
def test_a_task_that_breaks_one_is_named(name: str, method: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=rf"(?s)^Bad: .*{message}"):
        check_task(broken(Grades, **{name: method}), Loss(), MetricCollection({}))
