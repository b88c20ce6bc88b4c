"""Whatever the batches were, the epoch's figures are those of all samples at once."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score  # type: ignore[import-untyped]  # scikit-learn ships no types
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix, MulticlassF1Score

from assay.build.assembly import assemble
from assay.compose.compose import compose, job_config
from assay.metrics.tracker import Tracker
from assay.torch_internals import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    Step = tuple[Tensor, Tensor, Tensor]
    from tests.conftest import Train


EVEN, UNEVEN = [4] * 70, [1, 7, 3, 16, 2, 5] * 12


"""More than the steps that are handed to the metrics at once."""


def collection() -> MetricCollection:
    return MetricCollection(
        {
            "accuracy": MulticlassAccuracy(3, average="micro"),
            "f1": MulticlassF1Score(3, average="macro"),
            "matrix": MulticlassConfusionMatrix(3),
        }
    )


def steps(sizes: Sequence[int], seed: int = 0) -> list[Step]:
    draw = torch.Generator().manual_seed(seed)
    return [
        (
            torch.rand((), generator=draw),
            torch.rand(size, 3, generator=draw),
            torch.randint(3, (size,), generator=draw),
        )
        for size in sizes
    ]


def fed(given: Sequence[Step]) -> Tracker:
    tracker = Tracker(collection(), "val")
    for step in given:
        tracker.update(*step)
    return tracker


@pytest.mark.parametrize("sizes", [[5], EVEN, UNEVEN], ids=len)
def test_as_scikit_learn_says_of_all_samples(sizes: list[int]) -> None:
    given = steps(sizes)
    found = fed(given).compute()
    guesses = torch.cat([step[1] for step in given]).argmax(1).numpy()
    targets = torch.cat([step[2] for step in given]).numpy()
    mean = np.average([float(step[0]) for step in given], weights=sizes)
    assert found.keys() == {"val/loss", "val/accuracy", "val/f1", "val/matrix"}
    assert float(found["val/loss"]) == pytest.approx(mean, rel=1e-6)
    assert float(found["val/accuracy"]) == pytest.approx(accuracy_score(targets, guesses))
    assert float(found["val/f1"]) == pytest.approx(f1_score(targets, guesses, average="macro"))


@pytest.mark.parametrize("given", [[], steps([3, 2])], ids=["without samples", "restored"])
def test_sums_are_reduced_on_the_device_of_the_ranks(
    given: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint brings them on the CPU, with which NCCL can do nothing."""
    before = fed(given)
    before.flush()
    after = Tracker(collection(), "val")
    after.restore(before.state(), torch.device("meta"))
    reduced: list[torch.device] = []

    def all_reduce(pair: Tensor) -> None:
        reduced.append(pair.device)
        raise RuntimeError("as far as it goes")

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    with pytest.raises(RuntimeError, match="as far as it goes"):
        after.compute(torch.device("meta"))
    assert reduced == [torch.device("meta")]
    assert {metric.device for metric in after.metrics.values(copy_state=False)} == {torch.device("meta")}


@pytest.mark.parametrize("at", [0, 3, 64, 70])
def test_taken_up_from_a_file_it_is_the_same_to_the_bit(at: int) -> None:
    given = steps(UNEVEN)
    file = io.BytesIO()
    torch.save(fed(given[:at]).state(), file)
    file.seek(0)
    tracker = fed(steps([9], seed=1))  # what it has seen before counts for nothing
    tracker.restore(torch.load(file, weights_only=True))
    for step in given[at:]:
        tracker.update(*step)
    whole = fed(given).compute()
    assert all(torch.equal(value, whole[name]) for name, value in tracker.compute().items())


class Waits(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Counts what the host has to wait for on an accelerator: the value of a tensor."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("data", ["digits", "breast_cancer", "diabetes"])
def test_nothing_waits_for_the_device_before_an_epoch_is_over(data: str, tmp_path: Path) -> None:
    assembly = assemble(
        job_config(compose([f"data={data}", "model=mlp", "device=cpu", f"hydra.run.dir={tmp_path}/run"]))
    )
    module: Any = assembly.module
    datamodule: Any = assembly.datamodule
    module.trainer = assembly.trainer
    module.trainer.accumulate_grad_batches = 1000  # the loss of a whole step is written, and waited for
    batch = datamodule.on_after_batch_transfer(next(iter(datamodule.train_dataloader())), 0)
    before = 0
    with Waits() as waits:  # type: ignore[no-untyped-call]  # torch leaves it untyped
        for number in range(130):  # more than two blocks
            loss = module.training_step(batch, number)
            module.on_train_batch_end({"loss": loss.detach()}, batch, number)
            module.validation_step(batch, number)
            module.test_step(batch, number)
            # On the CPU alone torchmetrics looks, once a block, whether it was given probabilities.
            assert waits.count == 0 or data != "diabetes"
            assert waits.count == before or (number + 1) % 64 == 0
            before = waits.count
        assert float(module.train_tracker.compute()["train/loss"]) == pytest.approx(loss.item())
        assert waits.count > before, "what is counted has another name now"


PLACE = "torchmetrics.classification"


CURVES = (
    f"+metrics.eval.metrics.roc={{_target_:{PLACE}.BinaryROC}}",
    f"+metrics.eval.metrics.pr={{_target_:{PLACE}.BinaryPrecisionRecallCurve,thresholds:50}}",
    f"+metrics.train.metrics.confusion={{_target_:{PLACE}.BinaryConfusionMatrix}}",
)


def test_curves_are_kept_in_the_record(train: Train) -> None:
    run = train("data=breast_cancer", "model=linear", "trainer.max_epochs=2", *CURVES)
    matrices, metrics = run.record["matrices"], run.record["metrics"]
    false_positive, true_positive, thresholds = matrices["test/roc"]
    assert len(false_positive) == len(true_positive) == len(thresholds) > 2
    # The area under the curve is the metric that is computed apart from it.
    assert np.trapezoid(true_positive, false_positive) == pytest.approx(metrics["test/auroc"], abs=1e-5)
    precision, recall, thresholds = matrices["val/pr"]
    assert (len(precision), len(recall), len(thresholds)) == (51, 51, 50)
    assert np.sum(matrices["train/confusion"]) > 300
    assert "test/roc" not in metrics
    assert not any("roc" in name.split("/") for name in run.rows[0])
