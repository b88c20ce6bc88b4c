"""What begins late in training: weights of classes; averages of weights are in `test_weight_average`."""

from __future__ import annotations

from decimal import Decimal, getcontext
from typing import TYPE_CHECKING, Any

import lightning as L
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.callbacks.quiet_trainer import quiet_trainer
from torch import Tensor, nn
from typing_extensions import override

from assay.callbacks.deferred_reweighting import DeferredReweighting, effective_number_weight
from assay.callbacks.swa import SWA
from assay.loss.cross_entropy import CrossEntropy

if TYPE_CHECKING:
    from collections.abc import Iterator


# Lightning flattens its loaders with a class that torch has deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated"),
]

COUNTS = [100, 10, 1]


class Loss(nn.Module):
    """Cross entropy that remembers the weights of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight: Tensor | None = torch.full((3,), 7.0)
        self.seen: list[list[float] | None] = []

    def set_class_weight(self, weight: Tensor | None) -> None:
        self.weight = weight

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.seen.append(None if self.weight is None else self.weight.tolist())
        return nn.functional.cross_entropy(outputs, targets, self.weight)


class Batches:
    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(2):
            yield torch.ones(3, 4), torch.arange(3)


class Classifier(L.LightningModule):
    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.model = nn.Linear(4, 3)
        self.loss = loss

    @override
    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        loss: Tensor = self.loss(self.model(batch[0]), batch[1])
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(callback: DeferredReweighting, **options: Any) -> Loss:
    loss = Loss()
    quiet_trainer(callback, **options).fit(Classifier(loss), Batches())
    return loss


def paper(counts: list[int], beta: float) -> list[float]:
    """The formula with 60 digits."""
    getcontext().prec = 60
    exact = Decimal(beta)
    weights = [(1 - exact) / (1 - exact**count) for count in counts]
    return [float(weight * len(counts) / sum(weights)) for weight in weights]


@given(
    counts=st.lists(st.integers(1, 100_000), min_size=1, max_size=12),
    beta=st.sampled_from([0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 1 - 1e-9, 1 - 1e-12]),
)
def test_weights_are_the_papers(counts: list[int], beta: float) -> None:
    weight = effective_number_weight(counts, beta)
    np.testing.assert_allclose(weight.numpy(), paper(counts, beta), rtol=1e-5)
    assert float(weight.sum()) == pytest.approx(len(counts), rel=1e-5)


@pytest.mark.parametrize(
    ("start", "first"), [({"start_fraction": 0.5}, 2), ({"start_fraction": 0.0}, 0), ({}, 3)]
)
def test_weights_begin_at_the_start_and_none_before(start: dict[str, Any], first: int) -> None:
    loss = fit(DeferredReweighting(COUNTS, **start, beta=0.99), max_epochs=4)
    expected = effective_number_weight(COUNTS, 0.99).tolist()
    assert loss.seen == [None] * 2 * first + [expected] * 2 * (4 - first)


def test_validation_and_test_have_no_weights() -> None:
    class Validated(Classifier):
        def validation_step(self, batch: tuple[Tensor, Tensor]) -> None:
            self.loss(self.model(batch[0]), batch[1])

        test_step = validation_step

    loss = Loss()
    trainer = quiet_trainer(DeferredReweighting(COUNTS, 0.0), max_epochs=2, val_check_interval=1)
    trainer.fit(module := Validated(loss), Batches(), Batches())
    weight = effective_number_weight(COUNTS, 0.9999).tolist()
    assert loss.seen[2:] == [weight, None, None] * 4
    trainer.test(module, Batches(), verbose=False)
    trainer.validate(module, Batches(), verbose=False)
    assert loss.seen[14:] == [None] * 4


def test_needs_a_loss_that_can_be_reweighted() -> None:
    message = "callbacks=drw needs a loss that can be re-weighted: ldam, cross_entropy or focal"
    callback = DeferredReweighting(COUNTS, start_fraction=1.0)
    with pytest.raises(ValueError, match=message):
        quiet_trainer(callback, max_epochs=1).fit(Classifier(nn.CrossEntropyLoss()), Batches())


def test_other_weights_would_count_for_nothing() -> None:
    callback = DeferredReweighting(COUNTS, start_fraction=1.0)
    module = Classifier(CrossEntropy(class_weight=[1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match=r"remove one of them \(loss.class_weight=null\)"):
        quiet_trainer(callback, max_epochs=1).fit(module, Batches())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"class_counts": []}, "class counts of a classification task"),
        ({"class_counts": COUNTS, "start_fraction": 1.5}, "start_fraction=1.5: expected"),
        ({"class_counts": COUNTS, "beta": 1.0}, "beta=1.0: expected"),
    ],
)
def test_refuses_settings_that_mean_nothing(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeferredReweighting(**settings)


@pytest.mark.parametrize("start", [-0.1, 1.0])
def test_refuses_a_start_that_is_none(start: float) -> None:
    with pytest.raises(ValueError, match="expected a number in"):
        SWA(start)
