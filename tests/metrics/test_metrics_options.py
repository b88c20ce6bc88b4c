"""Every option of `metrics` builds from its YAML and agrees with scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import OmegaConf
from sklearn import metrics as sk  # type: ignore[import-untyped]  # scikit-learn ships no types
from torch import Tensor
from torchmetrics import MetricCollection

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


def test_the_options_are_these() -> None:
    # Each of these has a test file of its own, or holds nothing.
    own = {"multitask", "reconstruction", "image_reconstruction", "linear_probe", "none"}
    assert {path.stem for path in CONF.glob("*.yaml")} - own == TASKS.keys()


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


@pytest.mark.parametrize("task", TASKS)
def test_no_metric_checks_values_at_every_step(task: str) -> None:
    for stage in ("train", "eval"):
        for metric in load(task, stage).values():
            assert not getattr(metric, "validate_args", False)
            assert getattr(metric, "thresholds", None) is None


def test_r2_takes_one_target_in_a_column() -> None:
    spec = {"num_targets": 1, "target_names": ["a"]}
    root = OmegaConf.create({"spec": spec, "metrics": OmegaConf.load(CONF / "regression.yaml")})
    collection = instantiate(root.metrics.eval)
    y, p = draw(N, 1, seed=0), draw(N, 1, seed=1)
    collection.update(p, y)
    computed = collection.compute()
    assert all(value.shape == () for value in computed.values())
    assert computed["r2"].item() == pytest.approx(sk.r2_score(y.numpy(), p.numpy()), rel=1e-5)


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_option_says_what_it_is_in_its_first_line(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith(".")
