from __future__ import annotations

import pytest
import torch

from assay.loss.targets import binary_targets, one_label

LABELS = torch.tensor([0, 1, 1, 0])
SOFT = torch.tensor([[1.0, 0.0], [0.25, 0.75], [0.0, 1.0], [0.5, 0.5]])


@pytest.mark.parametrize("outputs", [torch.ones(4), torch.ones(4, 1), torch.ones(4, 1).bfloat16()])
@pytest.mark.parametrize("targets", [LABELS, LABELS[:, None], LABELS.float(), LABELS.bool()])
def test_one_label_in_any_form(outputs: torch.Tensor, targets: torch.Tensor) -> None:
    values, found = binary_targets(outputs, targets)
    assert values.shape == found.shape == (4,)
    assert values.dtype == found.dtype == torch.float32
    assert found.tolist() == [0, 1, 1, 0]


def test_the_chance_of_yes_is_the_soft_target() -> None:
    assert binary_targets(torch.ones(4, 1), SOFT)[1].tolist() == [0, 0.75, 1, 0.5]


def test_several_labels_stay_as_they_are() -> None:
    outputs = torch.ones(4, 2).double()
    values, found = binary_targets(outputs, SOFT)
    assert torch.equal(found, SOFT.double())
    assert values is outputs
    assert one_label(outputs).shape == (4, 2)


@pytest.mark.parametrize(
    ("outputs", "targets", "says"),
    [
        (torch.ones(4, 2), LABELS, "loss=cross_entropy"),
        (torch.ones(4), SOFT.long(), "do not fit"),
        (torch.ones(3), LABELS, "do not fit"),
        (torch.ones(4, 1, 1), LABELS, "one output per label"),
        (torch.ones(4).long(), LABELS, "as floats"),
    ],
)
def test_what_does_not_fit(outputs: torch.Tensor, targets: torch.Tensor, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        binary_targets(outputs, targets)
