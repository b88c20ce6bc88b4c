"""Stored predictions fit together; typed ones are what a user asks, prints and writes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from assay.task.language_modelling import decode_run_lengths, encode_run_lengths
from assay.task.predictions import (
    MOST_COLUMNS,
    ClassPredictions,
    MultitaskPredictions,
    ReconstructionPredictions,
    StoredPredictions,
    mask_png,
    palette,
    side_by_side,
)
from assay.task.task_of import task_of

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.5, 0.0]], dtype=np.float32)
NAMES = ("a", "b\x1b[31m", "c")


def stored(**changed: Any) -> StoredPredictions:
    values: dict[str, Any] = {
        "task": "multiclass",
        "kind": "probabilities",
        "keys": ("0", "1"),
        "outputs": np.full((2, 3), 1 / 3, np.float32),
        "targets": np.array([0, 2]),
        "class_names": ("a", "b", "c"),
    }
    return StoredPredictions(**values | changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "logits"}, "one of probabilities"),
        ({"keys": ("0",)}, "1 keys"),
        ({"class_names": ("a", "b")}, "2 class names for 3 outputs"),
        ({"targets": np.array([0])}, "do not have the same number of samples"),
    ],
)
def test_what_does_not_go_together_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stored(**changed)


def typed(task: str, outputs: Any, kind: Any, names: tuple[str, ...]) -> Any:
    return task_of(task).typed(outputs, kind, names)


def test_classes() -> None:
    found = typed("multiclass", SCORES, "probabilities", NAMES)
    assert (len(found), found.labels) == (2, ["b\x1b[31m", "a"])  # of equals the first, as argmax has it
    assert found.top_k(9)[1] == [("a", 0.5), ("b\x1b[31m", 0.5), ("c", 0.0)]
    assert (found[0].index, found[0].probability) == (1, float(SCORES[0, 1]))
    assert found[0].labels == [found[0].label]
    for name in ("index", "label", "probability"):
        with pytest.raises(TypeError, match=r"predictions of 2 samples; \[0\] is the first one"):
            getattr(found, name)
    assert str(found[0]) == "b\\x1b[31m 0.7000, c 0.2000, a 0.1000"
    assert str(found).splitlines()[1].startswith("1  a 0.5000")
    frame = found.to_frame(top_k=2)
    assert list(frame)[:4] == ["prediction", "probability", "top_2", "probability_2"]
    assert frame["probability c"].tolist() == pytest.approx([0.2, 0.0])
    assert frame["probability"].dtype == np.float32
    assert [one.label for one in found[1:]] == ["a"]
    names = tuple(map(str, range(MOST_COLUMNS + 1)))
    many = ClassPredictions(np.ones((3, len(names)), np.float32), names)
    assert list(many.columns(top_k=1)) == ["prediction", "probability"]


def test_scores_are_not_called_probabilities() -> None:
    found = typed("multiclass", 4 * SCORES, "scores", NAMES)
    assert found[0].label == NAMES[1]
    assert "score" in found.columns()
    with pytest.raises(AttributeError, match="defines no probabilities"):
        found.probabilities  # noqa: B018 - the point


def test_labels_values_and_embeddings() -> None:
    found = typed("multilabel", SCORES + np.float32(0.3), "probabilities", NAMES)
    assert found.labels == [("b\x1b[31m",), ("a", "b\x1b[31m")]
    assert found.columns()["prediction"] == ["b\x1b[31m", "a;b\x1b[31m"]
    values = typed("regression", SCORES[:, :1], "values", ("price",))
    assert float(values[1]) == 0.5
    assert list(values.to_frame()) == ["prediction"]
    embeddings = typed("multiclass", SCORES, "embeddings", NAMES)
    assert list(embeddings.to_frame()) == ["embedding_0", "embedding_1", "embedding_2"]
    assert str(embeddings[:0]) == "no predictions"


def test_reconstructions_unfold() -> None:
    made = ReconstructionPredictions(np.arange(14, dtype=np.float32).reshape(2, 7), (1, 2, 2))
    assert made.errors.tolist() == [0, 7]
    assert made.latents.tolist() == [[1, 2], [8, 9]]
    assert made[1].reconstructions.tolist() == [[[10, 11], [12, 13]]]
    assert list(made.columns()) == ["reconstruction_error", "latent_0", "latent_1"]
    assert made[:1].reconstructions.shape == (1, 1, 2, 2)


def test_targets_of_several_tasks() -> None:
    outputs = np.array([[0.75, 0.25, 1.5], [0.1, 0.9, 2.5], [0.5, 0.5, -1]], np.float32)
    found = MultitaskPredictions(outputs, ("kind=a", "kind=b", "size"))
    assert found["kind"].labels == ["a", "b", "a"]
    assert found["size"].values[:, 0].tolist() == [1.5, 2.5, -1.0]
    with pytest.raises(KeyError):
        found.of("colour")
    assert str(found[1]) == "kind: b 0.9000, a 0.1000; size 2.5"
    frame = found.to_frame(top_k=1)
    assert list(frame) == ["kind", "kind probability", "kind probability a", "kind probability b", "size"]
    assert found[1].to_frame(top_k=1).equals(frame[1:2].reset_index(drop=True))
    np.testing.assert_array_equal(frame["size"], outputs[:, 2])


def masks(sizes: list[tuple[int, int]]) -> Any:
    scores = np.random.default_rng(0).random((2, 2, 6, 8), dtype=np.float32)
    return typed("segmentation", scores, "probabilities", NAMES[:2]).resized(sizes)


@pytest.mark.parametrize("size", [(6, 8), (13, 17), (3, 30), (1, 1)])
def test_masks_are_scaled_as_torch_does(size: tuple[int, int]) -> None:
    one = masks([size, (6, 8)])[0]
    small = torch.from_numpy(one.scores)[None]
    wanted = torch.nn.functional.interpolate(small, size, mode="bilinear", antialias=True)[0]
    np.testing.assert_array_equal(one.mask, wanted.argmax(0).numpy())
    assert sum(one.shares.values()) == pytest.approx(1)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(one.png()))), one.mask)


def test_the_border_of_an_enlarged_mask_is_no_staircase() -> None:
    rows, columns = np.mgrid[:16, :16]
    tilted = 1 / (1 + np.exp(rows - 0.3 * columns - 5.25))
    one = typed("segmentation", np.stack([tilted, 1 - tilted])[None], "probabilities", NAMES[:2])
    found = one.resized([(128, 128)])[0].mask
    rows, columns = (np.mgrid[:128, :128] + 0.5) / 8 - 0.5
    assert (found != (rows > 0.3 * columns + 5.25)).mean() < 0.01


def test_a_table_of_masks() -> None:
    several = masks([(12, 16), (6, 8)])
    assert [mask.shape for mask in several.masks] == [(12, 16), (6, 8)]
    frame = several.to_frame()
    assert list(frame) == ["prediction", "share a", "share b\x1b[31m"]
    assert frame["share a"].tolist() == pytest.approx([(mask == 0).mean() for mask in several.masks])
    assert several[1:][0].mask.shape == (6, 8)
    assert [mask.shape for mask in several[[1, 0]].masks] == [(6, 8), (12, 16)]
    assert several[1].to_frame().equals(frame[1:].reset_index(drop=True))
    assert "\x1b" not in str(several[0])


def test_pictures_of_masks() -> None:
    mask = np.array([[0, 1, 2], [254, 255, 3]], np.uint8)
    opened = Image.open(io.BytesIO(mask_png(mask)))
    np.testing.assert_array_equal(np.asarray(opened), mask)
    np.testing.assert_array_equal(np.asarray(opened.convert("RGB")), palette()[mask])
    file = io.BytesIO()
    Image.new("RGB", (20, 10), (0, 0, 0)).save(file, "PNG")
    target, predicted = np.zeros((5, 10), int), np.full((5, 10), 7)
    shown = np.asarray(Image.open(io.BytesIO(side_by_side(file.getvalue(), target, predicted))))
    assert shown.shape == (80, 3 * 160 + 8, 3), "small pictures are made larger"
    np.testing.assert_allclose(shown[40, 244], 0.6 * palette()[0], atol=1)
    np.testing.assert_allclose(shown[40, -80], 0.6 * palette()[7], atol=1)


@given(st.lists(st.sampled_from([0, 1, 2, 10**6]), max_size=30))
def test_run_lengths_there_and_back(values: list[int]) -> None:
    assert decode_run_lengths(encode_run_lengths(values)) == values
