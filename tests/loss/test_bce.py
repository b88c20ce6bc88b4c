from __future__ import annotations

import pytest
import torch
from sklearn.metrics import log_loss  # type: ignore[import-untyped]  # scikit-learn ships no types
from torch.nn import functional as F

from assay.loss.bce import BCE

P = torch.rand(16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randint(2, (16,), generator=torch.Generator().manual_seed(1))


def test_one_label_is_scikit_learns_log_loss() -> None:
    assert BCE()(P, Y).item() == pytest.approx(log_loss(Y.numpy(), P.numpy()))


def test_several_labels_are_averaged() -> None:
    p, y = P.reshape(4, 4), Y.reshape(4, 4)
    assert BCE()(p, y).item() == pytest.approx(log_loss(Y.numpy(), P.numpy()))


@pytest.mark.parametrize("outputs", [P, P.unsqueeze(1)], ids=["[B]", "[B, 1]"])
@pytest.mark.parametrize(
    "targets",
    [Y, Y.double(), Y.unsqueeze(1), torch.stack([1 - Y, Y], dim=1).double()],
    ids=["int", "float", "column", "soft"],
)
def test_every_shape_of_one_label_means_the_same(outputs: torch.Tensor, targets: torch.Tensor) -> None:
    torch.testing.assert_close(BCE()(outputs, targets), BCE()(P, Y))


def test_soft_targets_take_the_chance_of_yes() -> None:
    yes = torch.linspace(0, 1, 16, dtype=torch.float64)
    expected = torch.nn.BCELoss()(P, yes)
    torch.testing.assert_close(BCE()(P, torch.stack([1 - yes, yes], dim=1)), expected)


def test_logits_are_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match="bce_with_logits"):
        BCE()(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))


def test_autocast_does_not_refuse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stock = F.binary_cross_entropy

    def as_on_cuda(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        assert not torch.is_autocast_enabled("cpu")  # there torch raises, here it does not
        return stock(outputs, targets)

    monkeypatch.setattr(F, "binary_cross_entropy", as_on_cuda)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = BCE()(P.bfloat16(), Y)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(log_loss(Y.numpy(), P.numpy()), rel=0.05)


def test_probabilities_are_the_outputs() -> None:
    torch.testing.assert_close(BCE().probabilities(P.unsqueeze(1)), P)
    torch.testing.assert_close(BCE().probabilities(P.reshape(4, 4)), P.reshape(4, 4))


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        (torch.rand(4), torch.zeros(4, 3)),
        (torch.rand(4), torch.zeros(4, 2, dtype=torch.long)),
        (torch.rand(4, 3), torch.zeros(4, dtype=torch.long)),
        (torch.rand(4, 3), torch.zeros(4, 2)),
        (torch.rand(4, 3, 2), torch.zeros(4, 3, 2)),
        (torch.ones(4, dtype=torch.long), torch.zeros(4)),
    ],
)
def test_shapes_that_do_not_fit(outputs: torch.Tensor, targets: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"loss"):
        BCE()(outputs, targets)
