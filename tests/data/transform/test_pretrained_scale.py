from __future__ import annotations

import pytest
import torch

from assay.data.transforms import PretrainedScale

IMAGENET = {"mean": (0.4, 0.5, 0.6), "std": (0.2, 0.2, 0.2), "size": (224, 224), "source": "timm's resnet18"}
BYTES, ONES = torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.ones(2, 3, 224, 224)


def test_the_statistics_of_the_weights_are_taken_and_said() -> None:
    known = PretrainedScale(IMAGENET, "auto")
    assert known.scale(ONES, None) == ((0.4, 0.5, 0.6), (0.2, 0.2, 0.2))
    assert len(known.notes) == 1
    assert "as those of timm's resnet18 were (mean [0.4, 0.5, 0.6], std [0.2, 0.2, 0.2])" in known.notes[0]


def test_grey_images_are_as_three_equal_channels() -> None:
    mean, std = PretrainedScale(IMAGENET, "auto").scale(BYTES[:, :1], None) or ((), ())
    assert mean == pytest.approx([0.5])
    assert std == pytest.approx([0.2])


@pytest.mark.parametrize(
    ("first", "why"),
    [(torch.zeros(2, 5, 8, 8), "the data has 5 channels"), (ONES * 16, "the data is not in [0, 1]")],
)
def test_where_they_make_no_sense_the_datas_own_are_taken_and_that_is_said(
    first: torch.Tensor, why: str
) -> None:
    known = PretrainedScale(IMAGENET, "auto")
    assert known.scale(first, None) is None
    assert known.notes[-1].startswith(f"{why}, so inputs are normalised with the data's own statistics")


def test_those_of_a_run_are_in_the_datas_own_unit() -> None:
    run = {"mean": (5.0,), "std": (6.0,), "size": (8, 8), "source": "the run outputs/a"}
    assert PretrainedScale(run, "auto").scale(torch.ones(2, 1, 8, 8) * 16, None) == ((5.0,), (6.0,))


@pytest.mark.parametrize(
    ("by", "given"), [("data", None), ("imagenet", ((0.1,) * 3, (0.2,) * 3)), (None, ((), ()))]
)
def test_what_contradicts_the_weights_is_kept_and_said(by: str | None, given: object) -> None:
    known = PretrainedScale(IMAGENET, by)
    assert known.scale(ONES, given) is None  # type: ignore[arg-type]  # as a parametrization gives it
    assert "were trained with mean [0.4, 0.5, 0.6], std" in known.notes[0]
    assert "normalize=auto takes these" in known.notes[0]
    same = PretrainedScale(IMAGENET, "imagenet")
    assert same.scale(ONES, ((0.4, 0.5, 0.6), (0.2, 0.2, 0.2))) is None
    assert same.notes == ()


def test_another_size_is_said_and_nothing_without_weights() -> None:
    known = PretrainedScale(IMAGENET, "auto")
    known.scale(BYTES, None)
    assert "trained on images of 224×224 pixels, the data has 8×8" in known.notes[0]
    none = PretrainedScale(None, "auto")
    assert none.scale(ONES, None) is None
    assert none.notes == ()
