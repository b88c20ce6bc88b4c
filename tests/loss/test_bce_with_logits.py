from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit  # type: ignore[import-untyped]  # scipy ships no types
from sklearn.metrics import log_loss  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.loss.bce_with_logits import BCEWithLogits

Z = 2 * torch.randn(24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randint(2, (24,), generator=torch.Generator().manual_seed(1))


def weighted(z: np.ndarray, y: np.ndarray, pos_weight: np.ndarray) -> float:
    p = expit(z)
    return float(-(pos_weight * y * np.log(p) + (1 - y) * np.log(1 - p)).mean())


def test_one_label_is_scikit_learns_log_loss() -> None:
    assert BCEWithLogits()(Z, Y).item() == pytest.approx(log_loss(Y.numpy(), expit(Z.numpy())))


@pytest.mark.parametrize("outputs", [Z, Z.unsqueeze(1)], ids=["[B]", "[B, 1]"])
@pytest.mark.parametrize("pos_weight", [None, 3.0])
def test_every_shape_of_one_label_means_the_same(outputs: torch.Tensor, pos_weight: float | None) -> None:
    loss = BCEWithLogits(pos_weight).double()
    one_hot = torch.stack([1 - Y, Y], dim=1).double()
    expected = weighted(Z.numpy(), Y.numpy(), np.array(1.0 if pos_weight is None else pos_weight))
    for targets in (Y, Y.double(), Y.unsqueeze(1), one_hot):
        assert loss(outputs, targets).item() == pytest.approx(expected, abs=1e-9)


def test_soft_targets_take_the_chance_of_yes() -> None:
    yes = torch.linspace(0, 1, 24, dtype=torch.float64)
    expected = weighted(Z.numpy(), yes.numpy(), np.array(2.0))
    soft = torch.stack([1 - yes, yes], dim=1)
    assert BCEWithLogits(2.0).double()(Z, soft).item() == pytest.approx(expected)


def test_balanced_for_one_label() -> None:
    assert BCEWithLogits("balanced", [30, 10]).pos_weight.tolist() == [3.0]


def test_balanced_for_several_labels() -> None:
    loss = BCEWithLogits("balanced", [10, 20, 5], num_train=40, task="multilabel").double()
    np.testing.assert_allclose(loss.pos_weight.numpy(), [3.0, 1.0, 7.0])
    z, y = Z.reshape(8, 3), Y.reshape(8, 3)
    expected = weighted(z.numpy(), y.numpy(), np.array([3.0, 1.0, 7.0]))
    assert loss(z, y).item() == pytest.approx(expected)
    assert loss(z, y.double()).item() == pytest.approx(expected)


def test_two_labels_are_not_taken_for_two_classes() -> None:
    loss = BCEWithLogits("balanced", [30, 10], num_train=40, task="multilabel")
    np.testing.assert_allclose(loss.pos_weight.numpy(), [1 / 3, 3.0])


def test_balanced_gives_both_sides_the_same_weight() -> None:
    labels = torch.tensor([1] * 4 + [0] * 12)
    loss = BCEWithLogits("balanced", [12, 4])
    logit = torch.zeros((), requires_grad=True)
    (slope,) = torch.autograd.grad(loss(logit.expand(16), labels), logit)
    assert slope.item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pos_weight": "balance"}, "got 'balance'"),
        ({"pos_weight": 0.0}, "above 0"),
        ({"pos_weight": [1.0, -2.0]}, "above 0"),
        ({"pos_weight": []}, "above 0"),
        ({"pos_weight": "balanced"}, "needs class_counts"),
        ({"pos_weight": "balanced", "class_counts": [3, 0]}, "label 0: it has 0 positive and 3 negative"),
        (
            {"pos_weight": "balanced", "class_counts": [4, 8], "num_train": 8, "task": "multilabel"},
            "label 1: it has 8 positive and 0 negative",
        ),
        ({"pos_weight": "balanced", "class_counts": [4, 8], "task": "multilabel"}, "with num_train"),
        ({"pos_weight": "balanced", "class_counts": [4, 8, 2]}, "two class_counts"),
    ],
)
def test_weights_that_cannot_be_used(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BCEWithLogits(**arguments)  # type: ignore[arg-type]  # a table of wrong arguments


def test_more_weights_than_logits() -> None:
    with pytest.raises(ValueError, match="2 numbers, the model returns 3 logits"):
        BCEWithLogits([1.0, 2.0])(torch.zeros(4, 3), torch.zeros(4, 3))


def test_probabilities_are_the_sigmoid() -> None:
    np.testing.assert_allclose(BCEWithLogits().probabilities(Z.unsqueeze(1)).numpy(), expit(Z.numpy()))
    np.testing.assert_allclose(
        BCEWithLogits().probabilities(Z.reshape(8, 3)).numpy(), expit(Z.reshape(8, 3).numpy())
    )


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="cross_entropy"):
        BCEWithLogits()(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))


def test_the_weight_follows_the_loss_and_is_never_saved() -> None:
    loss = BCEWithLogits("balanced", [30, 10]).to("meta")
    assert loss.pos_weight.device.type == "meta"
    assert loss.state_dict() == {}
