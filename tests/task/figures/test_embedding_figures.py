from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA  # type: ignore[import-untyped]  # it has no stubs
from tests.task.made_predictions import of_embeddings

from assay.figure.figure import Points
from assay.metrics.recall_at_k import RecallAtK
from assay.task.figures.embedding_figures import embedding_figures, embedding_scores


def test_recall_is_what_the_run_measures() -> None:
    said = of_embeddings()
    metric = RecallAtK(k=1)
    metric.update(torch.from_numpy(said.outputs), torch.from_numpy(said.targets))
    (score,) = embedding_scores(said)
    assert score.value == pytest.approx(float(metric.compute()))


def test_the_projection_is_scikit_learns() -> None:
    said = of_embeddings()
    assert said.targets is not None
    (figure,) = embedding_figures(said)
    places = PCA(2, random_state=0).fit_transform(said.outputs.astype(float))
    for label, cloud in enumerate(figure.marks):
        assert isinstance(cloud, Points)
        assert cloud.name == "abc"[label]
        assert cloud.x == pytest.approx(places[said.targets == label, 0])


def test_one_point_has_no_projection() -> None:
    said = of_embeddings(5)
    assert embedding_figures(replace(said, outputs=np.ones_like(said.outputs))) == []
