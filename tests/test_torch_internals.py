"""What torch does under names that it does not promise."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from assay.torch_internals import end_workers, lean_step, lean_zero_grad, mark_non_finite, run_backward


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_number_that_is_not_finite_is_marked_and_none_is_changed(value: float, dtype: torch.dtype) -> None:
    mark, one = torch.zeros(()), torch.ones(())
    tensors = [torch.tensor([1.0, -2.0], dtype=dtype), torch.tensor([[3.0]], dtype=dtype)]
    before = [tensor.clone() for tensor in tensors]
    mark_non_finite(tensors, mark, one)
    assert mark == 0
    assert all(torch.equal(one, other) for one, other in zip(tensors, before, strict=True))
    tensors[1][0, 0] = value
    mark_non_finite(tensors, mark, one)
    assert mark == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_is_marked_where_torch_lacks_the_kernel(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError("not implemented for 'BFloat16'")

    monkeypatch.setattr(torch, "_amp_foreach_non_finite_check_and_unscale_", refuse)
    test_a_number_that_is_not_finite_is_marked_and_none_is_changed(value, torch.bfloat16)


def test_processes_of_a_loader_end_at_once() -> None:
    batches = iter(DataLoader([1, 2, 3], num_workers=1))  # type: ignore[arg-type]  # a list is a data set, too
    next(batches)
    processes = batches._workers  # type: ignore[attr-defined]  # to be looked at
    end_workers(batches)
    assert not any(process.is_alive() for process in processes)
    end_workers(iter([1]))


def test_a_backward_pass_without_questions_gives_the_same_bits() -> None:
    weight = torch.randn(5, 3, requires_grad=True)
    given: list[Any] = []
    for backward in (run_backward, torch.Tensor.backward):
        weight.grad = None
        backward((weight.exp() @ weight.T).sin().mean())
        given.append(weight.grad)
    assert torch.equal(*given)


TORCH = [
    *("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "ASGD", "Rprop", "Adadelta"),
]


@pytest.mark.parametrize("name", TORCH)
def test_a_lean_step_moves_weights_as_the_step_does(name: str) -> None:
    ends = []
    for lean in (False, True):
        weight = nn.Parameter(torch.linspace(-1, 1, 12))
        optimizer = getattr(torch.optim, name)([weight], lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        for _ in range(4):
            found = lean_step(optimizer)
            assert found is not None
            may_be_used, step = found
            assert may_be_used()
            (lean_zero_grad(optimizer) if lean else optimizer.zero_grad)()
            assert weight.grad is None
            weight.square().sum().backward()  # type: ignore[no-untyped-call]  # torch left it untyped
            (step if lean else optimizer.step)()
            scheduler.step()  # which warns of an optimizer that has not stepped
        ends.append(weight.detach())
    assert torch.equal(*ends)


class Stepping(torch.optim.SGD):
    """Not torch's."""


def test_who_may_need_a_closure_is_given_one() -> None:
    weights = [nn.Parameter(torch.ones(2))]
    assert lean_step(torch.optim.LBFGS(weights)) is None
    assert lean_step(Stepping(weights)) is None
    hooked = torch.optim.SGD(weights)
    found = lean_step(hooked)
    assert found is not None
    handle = hooked.register_step_pre_hook(lambda *_: None)
    assert not found[0](), "it would be called before the closure"
    assert lean_step(hooked) is None
    handle.remove()
    assert found[0]()
    hooked.register_step_post_hook(lambda *_: None)
    assert not found[0]()
    replaced = torch.optim.SGD(weights)
    vars(replaced)["step"] = lambda *_: None
    assert lean_step(replaced) is None


def test_torchs_profiler_sees_each_step() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight])
    found, zero_grad = lean_step(optimizer), lean_zero_grad(optimizer)
    assert found is not None
    with torch.profiler.profile() as profile:
        assert not found[0]()
        zero_grad()
    assert any("zero_grad" in event.key for event in profile.key_averages())
    assert found[0]()
