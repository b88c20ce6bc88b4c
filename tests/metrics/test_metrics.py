"""Metrics against scikit-learn, whatever the batches were."""

from __future__ import annotations

import io
import json
import math
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from omegaconf import OmegaConf
from sklearn import metrics as sk  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.metrics import accuracy_score, f1_score  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.neighbors import NearestNeighbors  # type: ignore[import-untyped]  # scikit-learn ships no types
from tests.forks import Forks
from tests.metrics import sharing_ranks
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix, MulticlassF1Score

from assay.assemble.assembly import assemble
from assay.compose.compose import compose, job_config
from assay.metrics.bits_per_byte import BitsPerByte
from assay.metrics.multitask import Multitask
from assay.metrics.per_target import PerTarget
from assay.metrics.r2 import R2
from assay.metrics.recall_at_k import RecallAtK
from assay.metrics.tracker import Tracker
from assay.torch_internals import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    Step = tuple[Tensor, Tensor, Tensor]
    from tests.conftest import Train


CONF = Path(__file__).parents[2] / "conf" / "metrics"

SPLIT = [1, 30, 30, 17]

N = sum(SPLIT)

Array = NDArray[Any]


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def load(option: str, stage: str) -> MetricCollection:
    spec = {
        "num_classes": 4,
        "num_targets": 2,
        "target_names": ["a", "b"],
        "num_outputs": 4,
        "ignore_index": 255,
        "token_bytes": "0 1*2 3",
    }
    root = OmegaConf.create({"spec": spec, "metrics": OmegaConf.load(CONF / f"{option}.yaml")})
    collection = instantiate(root.metrics[stage])
    assert isinstance(collection, MetricCollection)
    return collection


def multiclass() -> tuple[Tensor, Tensor, dict[str, Any]]:
    y = torch.randint(4, (N,), generator=torch.Generator().manual_seed(0))
    p = (draw(N, 4, seed=1) + 1.5 * torch.nn.functional.one_hot(y, 4)).softmax(1)
    guess = p.argmax(1)
    return (
        p,
        y,
        {**scores(y.numpy(), guess.numpy(), average="macro"), "auroc": auroc(y, p, multi_class="ovr")},
    )


def binary() -> tuple[Tensor, Tensor, dict[str, Any]]:
    y = torch.randint(2, (N,), generator=torch.Generator().manual_seed(0))
    p = (draw(N, seed=1) + y).sigmoid()
    return (
        p,
        y,
        {
            **scores(y.numpy(), (p > 0.5).numpy(), average="binary"),
            "auroc": auroc(y, p),
            "average_precision": sk.average_precision_score(y, p),
        },
    )


def multilabel() -> tuple[Tensor, Tensor, dict[str, Any]]:
    y = torch.randint(2, (N, 4), generator=torch.Generator().manual_seed(0))
    p = (draw(N, 4, seed=1) + y).sigmoid()
    guess = (p > 0.5).numpy()
    expected = {
        **scores(y.numpy(), guess, average="macro"),
        "accuracy": (y.numpy() == guess).mean(),
        "auroc": auroc(y, p, average="macro"),
        "confusion_matrix": sk.multilabel_confusion_matrix(y.numpy(), guess),
    }
    return p, y, expected


def regression() -> tuple[Tensor, Tensor, dict[str, Any]]:
    y, p = draw(N, 2, seed=0), draw(N, 2, seed=1)
    expected: dict[str, Any] = {"r2": sk.r2_score(y.numpy(), p.numpy())}
    for at, name in enumerate("ab"):
        pair = y[:, at].numpy(), p[:, at].numpy()
        mae, mse = sk.mean_absolute_error(*pair), sk.mean_squared_error(*pair)
        expected |= {f"{name}/mae": mae, f"{name}/mse": mse, f"{name}/rmse": mse**0.5}
    return p, y, expected


def retrieval() -> tuple[Tensor, Tensor, dict[str, Any]]:
    y = torch.randint(12, (N,), generator=torch.Generator().manual_seed(0))
    p = draw(N, 3, seed=1) + y.unsqueeze(1) / 3
    distance = sk.pairwise_distances(p.double().numpy())
    np.fill_diagonal(distance, np.inf)
    hit = y.numpy()[distance.argsort(axis=1)] == y.numpy()[:, None]
    return p, y, {"one_nn": hit[:, 0].mean(), "recall_at_5": hit[:, :5].any(axis=1).mean()}


def language_modelling() -> tuple[Tensor, Tensor, dict[str, Any]]:
    y = torch.randint(4, (N, 5), generator=torch.Generator().manual_seed(0))
    p = draw(N, 5, 4, seed=1)
    loss = sk.log_loss(y.flatten().numpy(), p.double().softmax(-1).flatten(0, 1).numpy(), labels=range(4))
    num_bytes = np.array([0, 1, 1, 3])[y.numpy()].sum()
    return p, y, {"perplexity": np.exp(loss), "bits_per_byte": loss / np.log(2) * y.numel() / num_bytes}


def scores(y: Array, guess: Array, average: str) -> dict[str, Any]:
    return {
        "accuracy": sk.accuracy_score(y, guess),
        "precision": sk.precision_score(y, guess, average=average),
        "recall": sk.recall_score(y, guess, average=average),
        "f1": sk.f1_score(y, guess, average=average),
        **({} if y.ndim > 1 else {"confusion_matrix": sk.confusion_matrix(y, guess)}),
    }


def auroc(y: Tensor, p: Tensor, **how: str) -> float:
    chances = p.double().numpy()
    if how.get("multi_class"):  # rows must sum to 1 in double precision too
        chances = chances / chances.sum(axis=1, keepdims=True)
    return float(sk.roc_auc_score(y.numpy(), chances, **how))


def segmentation() -> tuple[Tensor, Tensor, dict[str, Any]]:
    y = torch.randint(4, (N, 3, 5), generator=torch.Generator().manual_seed(0))
    p = (draw(N, 4, 3, 5, seed=1) + 1.5 * torch.nn.functional.one_hot(y, 4).movedim(-1, 1)).softmax(1)
    y[:, 0, :2] = 255
    there = (y != 255).numpy()
    true, guess = y.numpy()[there], p.argmax(1).numpy()[there]
    expected = {
        "mean_iou": sk.jaccard_score(true, guess, average="macro"),
        "mean_dice": sk.f1_score(true, guess, average="macro"),
        "pixel_accuracy": sk.accuracy_score(true, guess),
        "confusion_matrix": sk.confusion_matrix(true, guess),
    }
    return p, y, expected


TASKS = {
    f.__name__: f
    for f in (multiclass, binary, multilabel, regression, retrieval, segmentation, language_modelling)
}


def compare(computed: dict[str, Tensor], expected: dict[str, Any]) -> None:
    assert computed.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(computed[name].numpy(), value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("task", TASKS)
def test_uneven_batches_agree_with_scikit_learn(task: str) -> None:
    p, y, expected = TASKS[task]()
    collection = load(task, "eval")
    for _ in range(2):  # twice: a reset forgets, and compute groups are in place the second time
        for batch in zip(torch.split(p, SPLIT), torch.split(y, SPLIT), strict=True):
            collection.update(*batch)
        compare(collection.compute(), expected)
        collection.reset()


@pytest.mark.parametrize("task", TASKS)
def test_the_states_of_two_ranks_merge(task: str) -> None:
    p, y, expected = TASKS[task]()
    first, second = load(task, "eval"), load(task, "eval")
    first.update(p[:11], y[:11])
    second.update(p[11:50], y[11:50])
    second.update(p[50:], y[50:])
    computed = {}
    for name in expected:
        first[name].merge_state(second[name])
        computed[name] = first[name].compute()
    compare(computed, expected)


@pytest.mark.parametrize("task", TASKS)
def test_training_tracks_one_cheap_metric_at_most(task: str) -> None:
    p, y, expected = TASKS[task]()
    collection = load(task, "train")
    collection.update(p, y)
    others = {
        "regression": {"a/mae", "b/mae"},
        "retrieval": set(),
        "language_modelling": set(),
        "segmentation": {"mean_iou"},
    }
    cheap = others.get(task, {"accuracy"})
    assert collection.keys() == cheap
    compare(collection.compute(), {name: expected[name] for name in cheap})


LABELS = torch.randint(5, (60,), generator=torch.Generator().manual_seed(0))

POINTS = torch.randn(60, 4, generator=torch.Generator().manual_seed(1)) + LABELS.unsqueeze(1) / 2


def recall(points: torch.Tensor, labels: torch.Tensor, k: int) -> float:
    """scikit-learn's neighbours of every sample but itself."""
    neighbours = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(points.numpy())
    nearest = neighbours.kneighbors(return_distance=False)
    return float((labels.numpy()[nearest] == labels.numpy()[:, None]).any(axis=1).mean())


def test_autocast_does_not_blur_neighbours() -> None:
    metric = RecallAtK(1)
    metric.update(POINTS, LABELS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert metric.compute().item() == pytest.approx(recall(POINTS, LABELS, 1))


def test_millions_of_tokens_cost_no_digits() -> None:
    metric = BitsPerByte()
    logits, targets = torch.tensor([[[1.0, 0.0]]]).expand(1, 1000, 2), torch.zeros(1, 1000, dtype=torch.long)
    metric.update(logits, targets)
    expected = float(metric.compute())
    metric.bits, metric.num_bytes = metric.bits * 10**6, metric.num_bytes * 10**6
    for _ in range(100):
        metric.update(logits, targets)
    assert float(metric.compute()) == pytest.approx(expected, rel=1e-7)


def computed(
    num_targets: int, names: tuple[str, ...], outputs: torch.Tensor, targets: torch.Tensor
) -> dict[str, float]:
    metrics = {"mae": MeanAbsoluteError(), "mse": MeanSquaredError(), "r2": R2(num_targets)}
    tracker = Tracker(PerTarget(metrics, num_targets, names), "val")
    for rows in torch.tensor_split(torch.arange(len(outputs)), 7):
        tracker.update(torch.tensor(0.5), outputs[rows], targets[rows])
    state = tracker.state()
    again = Tracker(PerTarget(metrics, num_targets, names), "val")
    again.restore(state)
    found = {name: float(value) for name, value in tracker.compute().items()}
    assert {name: float(value) for name, value in again.compute().items()} == found, "as a checkpoint has it"
    del found["val/loss"]
    return found


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (("price", "days"), ("price", "days")),
        ((), ("target_0", "target_1")),
        (("a.b", "a_b"), ("a_b_0", "a_b_1")),
    ],
)
def test_each_target_has_its_own_unit(names: tuple[str, ...], keys: tuple[str, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    targets = torch.randn(50, 2, generator=generator) * torch.tensor([1e5, 10.0])
    outputs = targets + torch.randn(50, 2, generator=generator) * torch.tensor([1e4, 1.0])
    found = computed(2, names, outputs, targets)
    assert list(found) == sorted(
        [*(f"val/{key}/{metric}" for key in keys for metric in ("mae", "mse")), "val/r2"]
    )
    for at, key in enumerate(keys):
        expected = sk.mean_absolute_error(targets[:, at].numpy(), outputs[:, at].numpy())
        assert found[f"val/{key}/mae"] == pytest.approx(float(expected), rel=1e-5)
    assert found["val/r2"] == pytest.approx(float(sk.r2_score(targets.numpy(), outputs.numpy())), rel=1e-5)


@pytest.mark.parametrize("num_targets", [1, 17])
def test_one_target_and_very_many_keep_the_names(num_targets: int) -> None:
    targets = torch.randn(30, num_targets, generator=torch.Generator().manual_seed(0))
    found = computed(num_targets, (), targets * 2, targets)
    assert sorted(found) == ["val/mae", "val/mse", "val/r2"]
    assert found["val/mae"] == pytest.approx(float(targets.abs().mean()), rel=1e-5)


NAMES = ["kind=a", "kind=b", "kind=c", "size", "sex=f", "sex=m"]


@pytest.fixture
def said() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    targets = torch.stack(
        [torch.arange(60) % 3, torch.randn(60, generator=generator), torch.arange(60) % 2], 1
    )
    return torch.rand(60, 6, generator=generator), targets


def test_each_metric_sees_its_own_head(said: tuple[torch.Tensor, torch.Tensor]) -> None:
    outputs, targets = said
    tracker = Tracker(Multitask(NAMES), "val")
    for rows in torch.tensor_split(torch.arange(60), 9):
        tracker.update(torch.tensor(0.5), outputs[rows], targets[rows])
    values = {name: float(value) for name, value in tracker.compute().items()}
    kind, sex = outputs[:, :3].argmax(1).numpy(), outputs[:, 4:].argmax(1).numpy()
    size, (right_kind, right_size, right_sex) = outputs[:, 3].numpy(), targets.numpy().T
    expected = {
        "val/loss": 0.5,
        "val/kind/accuracy": sk.accuracy_score(right_kind, kind),
        "val/kind/f1": sk.f1_score(right_kind, kind, average="macro"),
        "val/size/mae": sk.mean_absolute_error(right_size, size),
        "val/size/rmse": np.sqrt(((right_size - size) ** 2).mean()),
        "val/size/r2": sk.r2_score(right_size, size),
        "val/sex/accuracy": sk.accuracy_score(right_sex, sex),
        "val/sex/f1": sk.f1_score(right_sex, sex, average="macro"),
    }
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        assert values[name] == pytest.approx(float(value), abs=1e-5), name


@pytest.mark.parametrize("widest", [torch.float64, torch.float32], ids=["float64", "float32, as on mps"])
@pytest.mark.parametrize(
    ("mean", "spread", "rows"), [(1e5, 1.0, 200_000), (288.0, 10.0, 200_000), (0.0, 1.0, 100), (1e6, 40, 50)]
)
def test_r2_keeps_its_digits_far_from_0(
    mean: float, spread: float, rows: int, widest: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.metrics.r2.widest_float", lambda _: widest)
    draw = torch.Generator().manual_seed(0)
    targets = (mean + spread * torch.randn(rows, 2, generator=draw)).float()
    outputs = (targets + 0.1 * spread * torch.randn(rows, 2, generator=draw)).float()
    metric = R2(2)
    for part in torch.tensor_split(torch.arange(rows), 30):
        metric.update(outputs[part], targets[part])
    expected = sk.r2_score(targets.double().numpy(), outputs.double().numpy())
    assert metric.compute().item() == pytest.approx(expected, abs=1e-6 if widest == torch.float64 else 1e-4)


@given(
    parts=st.lists(st.lists(st.integers(-3, 3), max_size=5), min_size=1, max_size=4),
    offset=st.sampled_from([0, 0.1, 1e4]),
)
@settings(max_examples=60, deadline=None)
def test_r2_of_ranks_is_that_of_all_samples(parts: list[list[int]], offset: float) -> None:
    """Some ranks have no samples; targets may all be equal."""
    metrics, all_targets = [R2() for _ in parts], torch.tensor([*chain(*parts)]) + offset
    outputs = all_targets + (torch.arange(len(all_targets)) % 2)
    start = 0
    for metric, part in zip(metrics, parts, strict=True):
        rows = slice(start, start := start + len(part))
        metric.update(outputs[rows, None], all_targets[rows, None])
    whole = R2()
    whole.update(torch.zeros(0, 1), torch.zeros(0, 1))
    whole.sums = torch.stack([metric.sums.double() for metric in metrics])
    if len(all_targets) < 2:
        assert math.isnan(whole.compute())
        return
    expected = sk.r2_score(all_targets.double().numpy(), outputs.double().numpy())
    assert float(whole.compute()) == pytest.approx(expected, rel=1e-6)


UNFIT: list[tuple[Metric, Any, Any, str]] = [
    (R2(), (4, 1), torch.zeros(4), r"\[B, 1\]"),
    (R2(), (4, 2), torch.zeros(4, 2), r"\[B, 1\]"),
    (RecallAtK(1), (4,), torch.zeros(4).long(), "retrieval needs embeddings"),
    (RecallAtK(1), (4, 2), torch.zeros(4), "retrieval needs embeddings"),
]


@pytest.mark.parametrize(("metric", "shape", "targets", "message"), UNFIT)
def test_batches_that_do_not_fit(metric: Metric, shape: Any, targets: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metric.update(torch.zeros(shape), targets)


def test_too_few_samples_have_no_score() -> None:
    r2, recall_at_1 = R2(), RecallAtK(1)
    r2.update(torch.ones(1, 1), torch.zeros(1, 1))
    recall_at_1.update(torch.zeros(1, 3), torch.tensor([0]))
    assert all(math.isnan(metric.compute()) for metric in (r2, recall_at_1))


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
    f1 = f1_score(targets, guesses, labels=np.unique(targets), average="macro")
    assert float(found["val/f1"]) == pytest.approx(f1)


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


def test_a_curve_that_is_too_large_is_told_once(
    train: Train, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("assay.module.LARGEST", 100)
    run = train("data=breast_cancer", "model=linear", "trainer.max_epochs=2", CURVES[0])
    assert not {"val/roc", "test/roc"} & {*run.record["matrices"]}
    notes = [one.getMessage().split() for one in caplog.records if one.name == "assay.notes"]
    assert [words[1] for words in notes if "kept;" in words] == ["val/roc", "test/roc"]


def test_ranks_without_a_sample_take_part_in_each_collective(tmp_path: Path) -> None:
    with Forks() as forks:
        forks.start(cwd=tmp_path, module="tests.metrics.sharing_ranks")
        assert forks.wait().code == 0, (tmp_path / "output.txt").read_text()
    alone = {kind: sharing_ranks.computed(kind, 0) for kind in sharing_ranks.KINDS}
    for rank in range(sharing_ranks.SIZE):
        found = json.loads((tmp_path / f"rank{rank}.json").read_text())
        for kind, values in alone.items():
            for name, value in values.items():
                np.testing.assert_allclose(found[kind][name], value, rtol=1e-6, err_msg=f"{kind} {name}")
    predictions, targets = (column.numpy() for column in sharing_ranks.samples("multiclass"))
    expected = sk.roc_auc_score(targets, predictions, multi_class="ovr", average="macro")
    assert alone["multiclass"]["val/auroc"] == pytest.approx(expected)
