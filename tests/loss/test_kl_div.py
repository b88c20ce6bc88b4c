from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import rel_entr, softmax  # type: ignore[import-untyped]  # scipy ships no types

from assay.loss.kl_div import KLDiv

LOGITS = torch.randn(10, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TEACHER = torch.randn(10, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
HARD = torch.randint(5, (10,), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_soft_targets_follow_the_formula(temperature: float) -> None:
    teacher = softmax(TEACHER.numpy() / temperature, axis=1)
    student = softmax(LOGITS.numpy() / temperature, axis=1)
    expected = temperature**2 * rel_entr(teacher, student).sum(1).mean()
    assert KLDiv(temperature)(LOGITS, torch.from_numpy(teacher)).item() == pytest.approx(expected)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_hard_targets_follow_the_formula(temperature: float) -> None:
    student = softmax(LOGITS.numpy() / temperature, axis=1)
    expected = temperature**2 * -np.log(student[np.arange(10), HARD.numpy()]).mean()
    assert KLDiv(temperature)(LOGITS, HARD).item() == pytest.approx(expected)


def test_a_student_that_equals_its_teacher_has_no_loss_and_no_slope() -> None:
    logits = TEACHER.clone().requires_grad_()
    loss = KLDiv(4.0)(logits, (TEACHER / 4).softmax(1))
    (slope,) = torch.autograd.grad(loss, logits)
    assert abs(loss.item()) < 1e-12
    assert slope.abs().max() < 1e-12


def test_probabilities_are_at_temperature_1() -> None:
    torch.testing.assert_close(KLDiv(4.0).probabilities(LOGITS), LOGITS.softmax(1))


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_temperature_out_of_range(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature"):
        KLDiv(temperature)
