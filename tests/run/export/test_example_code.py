"""What the lines make of inputs; `test_export` runs whole cards without assay."""

from __future__ import annotations

import json
from contextlib import chdir
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from assay.run.export import model_card

if TYPE_CHECKING:
    from pathlib import Path

PICTURE = {"name": "inputs", "dtype": "uint8", "shape": ["batch", 3, 6, 8]}
PROBABILITIES = {"names": ["a", "b"], "output": {"kind": "probabilities"}}


def test_a_picture_becomes_what_the_model_takes(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "PICTURE.png")
    names: dict[str, Any] = {"Image": Image, "np": np}
    with chdir(tmp_path):
        exec(model_card._of_arrays(PICTURE, "RGB"), names)  # noqa: S102 - the lines that a user is given
    np.testing.assert_array_equal(names["inputs"]["inputs"], pixels.transpose(2, 0, 1)[None])


def test_any_other_array_is_of_the_shape_and_type() -> None:
    names: dict[str, Any] = {"np": np}
    described = {"name": "x", "dtype": "float32", "shape": ["batch", 2, "width"]}
    exec(model_card._of_arrays(described, ""), names)  # noqa: S102 - the lines that a user is given
    assert (names["inputs"]["x"].shape, names["inputs"]["x"].dtype) == ((1, 2, 64), np.float32)


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ({**PROBABILITIES, "one_of_classes": True}, "b 0.8\na 0.6\n"),
        ({**PROBABILITIES, "one_of_classes": False}, "['b']\n['a']\n"),
        ({"names": [], "output": {"kind": "values"}}, "[[0.2 0.8]\n [0.6 0.4]]\n"),
    ],
)
def test_what_is_said_of_outputs(
    description: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = np.array([[0.2, 0.8], [0.6, 0.4]])
    about = json.loads(json.dumps(description))
    names = {"outputs": outputs, "about": about}
    exec(model_card._said(description), names)  # noqa: S102 - the lines that a user is given
    assert capsys.readouterr().out == said
