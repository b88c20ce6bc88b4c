from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.model_selection import LeaveOneOut, cross_val_score  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.metrics import recall_at_k
from assay.metrics.recall_at_k import RecallAtK

SIZES = [1, 20, 32, 7]
LABELS = torch.randint(5, (60,), generator=torch.Generator().manual_seed(0))
POINTS = torch.randn(60, 4, generator=torch.Generator().manual_seed(1)) + LABELS.unsqueeze(1) / 2


def recall(points: torch.Tensor, labels: torch.Tensor, k: int) -> float:
    """scikit-learn's neighbours of every sample but itself."""
    neighbours = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(points.numpy())
    nearest = neighbours.kneighbors(return_distance=False)
    return float((labels.numpy()[nearest] == labels.numpy()[:, None]).any(axis=1).mean())


def test_k_1_is_scikit_learns_leave_one_out_accuracy() -> None:
    classifier = KNeighborsClassifier(n_neighbors=1, algorithm="brute")
    expected = cross_val_score(classifier, POINTS.numpy(), LABELS.numpy(), cv=LeaveOneOut()).mean()
    metric = RecallAtK(1)
    metric.update(POINTS, LABELS)
    assert 0.2 < expected < 0.9
    assert metric.compute().item() == pytest.approx(expected)


@pytest.mark.parametrize("k", [1, 2, 5, 59, 100])
def test_uneven_batches_give_scikit_learns_neighbours(k: int) -> None:
    metric = RecallAtK(k)
    for points, labels in zip(torch.split(POINTS, SIZES), torch.split(LABELS, SIZES), strict=True):
        metric.update(points, labels)
    assert metric.compute().item() == pytest.approx(recall(POINTS, LABELS, min(k, 59)))


def test_the_states_of_two_ranks_merge() -> None:
    first, second = RecallAtK(3), RecallAtK(3)
    first.update(POINTS[:13], LABELS[:13])
    second.update(POINTS[13:40], LABELS[13:40])
    second.update(POINTS[40:], LABELS[40:])
    first.merge_state(second)
    assert first.compute().item() == pytest.approx(recall(POINTS, LABELS, 3))


@pytest.mark.parametrize("pairs", [1, 70, 60 * 7, 60 * 60])
def test_blocks_of_queries_change_nothing(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall_at_k, "_PAIRS_AT_ONCE", pairs)
    metric = RecallAtK(5)
    metric.update(POINTS, LABELS)
    assert metric.compute().item() == pytest.approx(recall(POINTS, LABELS, 5))


def test_never_all_pairs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall_at_k, "_PAIRS_AT_ONCE", 200)
    sizes: list[int] = []
    addmm = torch.addmm

    def observed(*args: torch.Tensor, alpha: float) -> torch.Tensor:
        distance = addmm(*args, alpha=alpha)
        sizes.append(distance.numel())
        return distance

    monkeypatch.setattr(torch, "addmm", observed)
    metric = RecallAtK(1)
    metric.update(POINTS, LABELS)
    metric.compute()
    assert sum(sizes) == 60 * 60
    assert max(sizes) <= 200


def test_a_cloud_far_from_0_keeps_its_neighbours() -> None:
    metric = RecallAtK(1)
    metric.update(POINTS + 1e3, LABELS)
    assert metric.compute().item() == pytest.approx(recall((POINTS + 1e3).double(), LABELS, 1))


def test_autocast_does_not_blur_neighbours() -> None:
    metric = RecallAtK(1)
    metric.update(POINTS, LABELS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert metric.compute().item() == pytest.approx(recall(POINTS, LABELS, 1))


def test_half_precision_embeddings_are_widened() -> None:
    metric = RecallAtK(1)
    metric.update(POINTS.bfloat16(), LABELS)
    assert metric.compute().item() == pytest.approx(recall(POINTS.bfloat16().float(), LABELS, 1))


def test_a_copy_of_a_sample_is_its_neighbour_and_the_sample_is_not() -> None:
    metric = RecallAtK(1)
    metric.update(torch.tensor([[0.0], [0.0], [5.0], [6.0]]), torch.tensor([0, 0, 1, 2]))
    assert metric.compute().item() == 0.5


def test_one_sample_has_no_gallery() -> None:
    metric = RecallAtK(1)
    metric.update(torch.zeros(1, 3), torch.tensor([0]))
    assert np.isnan(metric.compute().item())


def test_reset_forgets() -> None:
    metric = RecallAtK(1)
    metric.update(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 0]))
    assert metric.compute().item() == 1
    metric.reset()
    metric.update(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]))
    assert metric.compute().item() == 0


@pytest.mark.parametrize(
    ("points", "labels"),
    [
        (torch.zeros(4), torch.zeros(4).long()),
        (torch.zeros(4, 2), torch.zeros(4)),
        (torch.zeros(4, 2), torch.zeros(3).long()),
    ],
)
def test_shapes_that_do_not_fit(points: torch.Tensor, labels: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="retrieval needs embeddings"):
        RecallAtK(1).update(points, labels)


def test_k_out_of_range() -> None:
    with pytest.raises(ValueError, match="k must be at least 1"):
        RecallAtK(0)
