"""The module's steps against the same computations written out in torch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torchmetrics import MeanSquaredError, MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from assay.data.core.normalize import TargetScale
from assay.loss.cross_entropy import CrossEntropy
from assay.loss.triplet import Triplet
from assay.module import Module
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from torch import Tensor

DRAW = torch.Generator().manual_seed(0)
INPUTS, CLASSES = torch.randn(6, 4, generator=DRAW), torch.randint(3, (6,), generator=DRAW)


def classifier(**parts: Any) -> Module:
    torch.manual_seed(1)
    metrics = MetricCollection({"accuracy": MulticlassAccuracy(3, average="micro")})
    given: dict[str, Any] = {
        "model": nn.Linear(4, 3),
        "task": task_of("multiclass"),
        "loss": CrossEntropy(),
        "optimizer": partial(torch.optim.SGD, lr=0.5),
        "metrics": {"train": metrics, "eval": metrics},
    }
    return Module(**given | parts)


@pytest.mark.parametrize("form", ["pair", "mapping"])
def test_the_loss_and_scores_of_a_batch(form: str) -> None:
    module = classifier()
    batch: Any = (INPUTS, CLASSES) if form == "pair" else {"image": INPUTS, "label": CLASSES}
    logits = module.model(INPUTS)
    assert torch.equal(module.training_step(batch, 0), F.cross_entropy(logits, CLASSES))
    module.validation_step(batch, 0)
    found = module.val_tracker.compute()
    assert float(found["val/accuracy"]) == pytest.approx(float((logits.argmax(1) == CLASSES).float().mean()))
    module.test_step(batch, 0)
    assert module.test_tracker.compute()["test/loss"] == found["val/loss"]
    assert module.train_tracker.compute() == {}, "a step counts once it is over"


class Members(nn.Module):
    """Three linear layers, as an ensemble gives their outputs."""

    members = 3

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 3) for _ in range(3))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = torch.stack([layer(inputs) for layer in self.layers], 1)
        return outputs if self.training else outputs.mean(1)


def test_each_member_of_an_ensemble_has_a_loss_of_its_own() -> None:
    torch.manual_seed(0)
    model = Members()
    module = classifier(model=model)
    inputs, targets = torch.randn(6, 4), torch.tensor([0, 1, 2, 2, 1, 0])
    loss = module.training_step((inputs, targets), 0)
    alone = [F.cross_entropy(layer(inputs), targets) for layer in model.layers]
    torch.testing.assert_close(loss, torch.stack(alone).mean())
    module.eval()
    expected = F.cross_entropy(model(inputs), targets)
    torch.testing.assert_close(module.evaluated((inputs, targets))[0], expected)


def test_an_embedding_loss_compares_samples_not_members() -> None:
    torch.manual_seed(0)
    model = Members()
    module = classifier(model=model, loss=Triplet())
    inputs, targets = torch.randn(6, 4), torch.tensor([0, 1, 2, 2, 1, 0])
    mean = torch.stack([layer(inputs) for layer in model.layers], 1).mean(1)
    torch.testing.assert_close(module.training_step((inputs, targets), 0), Triplet()(mean, targets))


def test_a_batch_is_augmented_once_in_training_alone() -> None:
    calls: list[int] = []

    def mixed(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(1)
        return inputs.flip(0) / 2 + inputs / 2, F.one_hot(targets.flip(0), 3) / 2 + F.one_hot(targets, 3) / 2

    module = classifier(augment=mixed)
    batch = (INPUTS, CLASSES)
    losses = {module.training_step(batch, 0).item() for _ in range(3)}  # as L-BFGS calls its closure
    assert (len(calls), len(losses)) == (1, 1)
    assert losses == {F.cross_entropy(module.model(mixed(*batch)[0]), mixed(*batch)[1]).item()}
    module.validation_step(batch, 0)
    assert len(calls) == 3, "two of them by the test"


def test_a_regression_is_trained_in_deviations_and_scored_in_units() -> None:
    targets = torch.randn(6, 1, generator=DRAW) * 50 + 300
    metrics = MetricCollection({"mse": MeanSquaredError()})
    module = classifier(
        model=nn.Linear(4, 1),
        task=task_of("regression"),
        loss=nn.MSELoss(),
        metrics={"train": metrics, "eval": metrics},
        target_scale=TargetScale([300.0], [50.0]),
    )
    outputs = module(INPUTS)
    expected = F.mse_loss(outputs, (targets - 300) / 50)
    torch.testing.assert_close(module.training_step((INPUTS, targets), 0), expected)
    module.validation_step((INPUTS, targets), 0)
    torch.testing.assert_close(
        module.val_tracker.compute()["val/mse"], F.mse_loss(outputs.detach() * 50 + 300, targets)
    )


@pytest.mark.parametrize("learns", [False, True])
def test_outputs_become_predictions_in_blocks_unless_the_loss_learns(learns: bool) -> None:
    class Tempered(CrossEntropy):  # type: ignore[misc]  # final, and its checks are wanted here
        calls = 0

        def __init__(self) -> None:
            super().__init__()
            self.temperature: Any = nn.Parameter(torch.ones(())) if learns else torch.ones(())

        def probabilities(self, outputs: Tensor) -> Tensor:
            self.calls += 1
            warm: Tensor = outputs / self.temperature
            return warm.softmax(1)

    loss = Tempered()
    module: Any = classifier(loss=loss)
    expected, steps = [], 10
    for _ in range(steps):
        module.validation_step((INPUTS, CLASSES), 0)
        expected.append((module.model(INPUTS) / loss.temperature).softmax(1))
        with torch.no_grad():
            module.model.weight.mul_(1.5)
            if learns:
                loss.temperature.mul_(-2)  # turns the order of the classes around
    assert loss.calls == (steps if learns else 0)
    hits = (torch.cat(expected).argmax(1) == CLASSES.repeat(steps)).float().mean()
    assert module.val_tracker.compute()["val/accuracy"].item() == pytest.approx(hits.item())
    assert loss.calls == (steps if learns else 1)
    kept = module.test_step((INPUTS, CLASSES), 0)["predictions"]
    assert torch.equal(kept, (module.model(INPUTS) / loss.temperature).softmax(1))


def test_channels_last_reaches_the_model() -> None:
    seen: list[bool] = []
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.LazyLinear(3))
    model(torch.zeros(1, 3, 8, 8))
    module = classifier(model=model, channels_last=True)
    model[0].register_forward_pre_hook(
        lambda _, given: seen.append(given[0].is_contiguous(memory_format=torch.channels_last))
    )
    module(torch.randn(2, 3, 8, 8))
    assert seen == [True]
    assert next(model[0].parameters()).is_contiguous(memory_format=torch.channels_last)
