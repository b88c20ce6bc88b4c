from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from scipy import special  # type: ignore[import-untyped]  # scipy ships no types
from torch import Tensor, nn

from assay.augment.teacher import Teacher


def classifier(features: int = 5, classes: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(features, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, classes))


@pytest.mark.parametrize(("temperature", "hard_weight"), [(1.0, 0.0), (2.0, 0.1), (4.0, 0.7), (3.0, 1.0)])
@pytest.mark.parametrize("soft", [False, True])
def test_targets_are_the_formula_of_the_paper(temperature: float, hard_weight: float, soft: bool) -> None:
    model = classifier().eval()
    inputs = torch.randn(7, 5)
    hard = torch.tensor([0, 1, 2, 2, 1, 0, 1])
    onehot = np.eye(3)[hard.numpy()]
    targets = torch.from_numpy(onehot).float() if soft else hard
    with torch.no_grad():
        logits = model(inputs).double().numpy()
    expected = (1 - hard_weight) * special.softmax(logits / temperature, axis=1) + hard_weight * onehot
    passed, mixed = Teacher(model, temperature, hard_weight)(inputs, targets)
    assert passed is inputs
    assert mixed.dtype == torch.float32
    np.testing.assert_allclose(mixed.numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(mixed.sum(1).numpy(), 1.0, atol=1e-6)


def test_is_no_part_of_the_module_that_holds_it() -> None:
    class Student(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Linear(5, 3)
            self.augment = Teacher(classifier())

    student = Student()
    assert sorted(student.state_dict()) == ["model.bias", "model.weight"]
    assert len(list(student.parameters())) == 2
    inputs, targets = torch.randn(6, 5), torch.zeros(6, dtype=torch.int64)
    student.train()
    _, first = student.augment(inputs, targets)
    student.train()
    _, second = student.augment(inputs, targets)
    assert torch.equal(first, second), "dropout of a frozen teacher is off"
    assert copy.deepcopy(student).augment.model is student.augment.model


def test_frozen_without_gradient_and_unchanged_by_use() -> None:
    model = classifier()
    before = copy.deepcopy(model.state_dict())
    inputs = torch.randn(6, 5, requires_grad=True)
    _, mixed = Teacher(model)(inputs, torch.zeros(6, dtype=torch.int64))
    assert not mixed.requires_grad
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    (torch.log_softmax(inputs[:, :3], 1) * mixed).sum().backward()  # type: ignore[no-untyped-call]  # torch's stub
    assert inputs.grad is not None


def test_a_closure_called_again_and_again_sees_the_same_targets() -> None:
    torch.manual_seed(1)
    teacher, student = Teacher(classifier()), nn.Linear(5, 3)
    inputs, targets = torch.randn(64, 5), torch.randint(3, (64,))
    kept = (inputs.clone(), targets.clone())
    optimizer = torch.optim.LBFGS(student.parameters(), max_iter=10, line_search_fn="strong_wolfe")
    seen: list[Tensor] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        _, mixed = teacher(inputs, targets)
        seen.append(mixed)
        loss = nn.functional.cross_entropy(student(inputs), mixed)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's stub
        return loss

    first = float(closure().detach())
    optimizer.step(closure)  # type: ignore[no-untyped-call]  # torch's stub
    assert len(seen) > 5
    assert all(torch.equal(mixed, seen[0]) for mixed in seen)
    assert torch.equal(inputs, kept[0])
    assert torch.equal(targets, kept[1])
    assert float(closure().detach()) < first


def test_runs_under_the_callers_autocast() -> None:
    seen: list[torch.dtype] = []

    class Probe(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.layer(inputs)
            seen.append(outputs.dtype)
            return outputs

    teacher = Teacher(Probe())
    inputs, targets = torch.randn(4, 5), torch.zeros(4, dtype=torch.int64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, mixed = teacher(inputs, targets)
    teacher(inputs, targets)
    assert seen == [torch.bfloat16, torch.float32]
    assert mixed.dtype == torch.float32


def test_follows_the_inputs_to_their_device() -> None:
    teacher = Teacher(nn.Linear(5, 3))
    teacher(torch.randn(4, 5), torch.zeros(4, dtype=torch.int64))
    _, mixed = teacher(torch.randn(4, 5, device="meta"), torch.zeros(4, dtype=torch.int64, device="meta"))
    assert {parameter.device.type for parameter in teacher.model.parameters()} == {"meta"}
    assert mixed.device.type == "meta"


@pytest.mark.parametrize(
    ("model", "targets", "message"),
    [
        (nn.Linear(5, 1), torch.zeros(4, dtype=torch.int64), r"one logit per class \[B,C\], got \[4, 1\]"),
        (nn.Linear(5, 3), torch.full((4,), 7), "knows 3, but a target is 7"),
        (nn.Linear(5, 3), torch.ones(4, 3), r"that sum to 1, got targets \[4, 3\]; use augment=none"),
        (nn.Linear(5, 3), torch.randn(4, 1), r"got targets \[4, 1\]; use augment=none"),
        (nn.Linear(5, 3), torch.randn(4), r"got targets \[4\]; use augment=none"),
    ],
)
def test_refuses_what_are_no_classes(model: nn.Module, targets: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Teacher(model)(torch.randn(4, 5), targets)


@pytest.mark.parametrize(("temperature", "hard_weight"), [(0.0, 0.1), (-1.0, 0.1), (1.0, 1.1), (1.0, -0.1)])
def test_refuses_settings_that_mean_nothing(temperature: float, hard_weight: float) -> None:
    with pytest.raises(ValueError, match=r"temperature=|hard_weight="):
        Teacher(nn.Linear(2, 2), temperature, hard_weight)
