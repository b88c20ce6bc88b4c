"""Features, judged by labels where there are some."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from assay.task.prediction.predictions import Predictions
from assay.task.task_of import SelfSupervised

TASK = SelfSupervised()


def made(targets: np.ndarray | None) -> Predictions:
    points = np.array([[0.0, 0], [0, 1], [9, 9], [9, 8]], np.float32)
    return Predictions("self_supervised", "embeddings", ("a", "b", "c", "d"), points, targets, ())


def test_the_nearest_neighbour_judges() -> None:
    (score,) = TASK.scores(made(np.array([0, 0, 1, 0])))
    assert (score.name, score.value) == ("recall@1", 0.5)
    right = TASK.is_right(made(np.array([0, 0, 1, 0])))
    assert right is not None
    assert right.tolist() == [True, True, False, False]


def test_without_labels_there_is_a_picture_and_no_score() -> None:
    assert TASK.scores(made(None)) == []
    assert [one.name for one in TASK.figures(made(None))] == ["embeddings"]
    assert TASK.said(made(None), 0) == ""
    assert np.isnan(TASK.badness(made(None))).all()


@pytest.mark.parametrize("loss", [nn.MSELoss, nn.CrossEntropyLoss])
def test_losses_of_torch(loss: type[nn.Module]) -> None:
    problem = TASK.loss_problem({}, loss)
    assert problem is not None
    assert "loss=nt_xent" in problem[1]
