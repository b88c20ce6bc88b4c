"""What a training step costs beside its arithmetic, counted: a time would not hold on a busy machine.

Each count is the difference between two lengths of an epoch, divided by the steps in between, so that what a
run does once does not count. The lengths are whole blocks of 16 steps (metrics) and of 64 (log). A bound that
is missed by far is to be lowered to what was found.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import torch
from tests.conftest import unchanged_process
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from assay.build.assembly import assemble
from assay.build.library_warnings import quiet
from assay.compose.compose import compose, job_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pytest

    Counting = Callable[[], AbstractContextManager[Counter[str]]]

SHORT, LONG = 64, 256
_READS = ("_local_scalar_dense", "is_nonzero", "nonzero", "equal", "masked_select", "_unique2")
"""Operations whose result the host waits for."""


@final
class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch left it untyped
    def __init__(self, found: Counter[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.namespace == "aten":
            new = _storages(made) - _storages((args, kwargs))
            name = func.overloadpacket.__name__
            self.found.update(
                {"operations": 1, "tensors": len(new), "waits": name in _READS, f"aten.{name}": 1}
            )
        return made


def _storages(values: Any) -> set[int]:
    return {one.untyped_storage()._cdata for one in tree_leaves(values) if isinstance(one, torch.Tensor)}


def operations(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """Counts operations, the tensors they make, and how often the host waits for one."""

    @contextmanager
    def counting() -> Iterator[Counter[str]]:
        found: Counter[str] = Counter()
        with _Operations(found), monkeypatch.context() as patched:
            for name in ("tolist", "numpy"):  # on the CPU they read memory, and are no operation
                given = getattr(torch.Tensor, name)
                patched.setattr(
                    torch.Tensor,
                    name,
                    lambda one, *args, _given=given, **options: (
                        found.update({"waits": threading.current_thread() is threading.main_thread()}),
                        _given(one, *args, **options),
                    )[1],
                )
            yield found

    return counting


@contextmanager
def python_calls() -> Iterator[Counter[str]]:
    """Counts calls of Python functions in this thread."""
    found: Counter[str] = Counter()

    def look(frame: Any, event: str, argument: Any) -> None:
        del argument
        if event == "call":
            found.update(("calls", frame.f_code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(before)


def in_a_step(folder: Path, counting: Counting, *overrides: str) -> dict[str, float]:
    """What a step costs of an epoch with the default callbacks, from shuffled data in memory."""
    found = {}
    for steps in (SHORT, SHORT, LONG):  # the first one does what a process does once
        words = [
            *("data=synthetic", "data.source.num_samples=50000", "data.source.input_shape=[8]"),
            *("model=linear", "device=cpu", "trainer.max_epochs=1", f"hydra.run.dir={folder}/{steps}"),
            *(f"trainer.limit_train_batches={steps}", "trainer.limit_val_batches=1"),
            *("trainer.log_every_n_steps=64", *overrides),
        ]
        with unchanged_process(), quiet():
            assembly = assemble(job_config(compose(words)))
            with counting() as found[steps]:
                assembly.trainer.fit(assembly.module, datamodule=assembly.datamodule)
        assert assembly.trainer.global_step == steps
    each = {name: (count - found[SHORT][name]) / (LONG - SHORT) for name, count in found[LONG].items()}
    return dict(sorted(each.items(), key=lambda item: -item[1]))


def shown(found: dict[str, float]) -> str:
    return "\n" + "\n".join(f"{count:8.2f} {name}" for name, count in list(found.items())[:40])


def test_python_calls(tmp_path: Path) -> None:
    found = in_a_step(tmp_path, python_calls)
    assert 0 < found["calls"] <= 1850, shown(found)


def test_operations_and_the_tensors_they_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_a_step(tmp_path, operations(monkeypatch))
    assert 0 < found["operations"] <= 39, shown(found)
    assert 0 < found["tensors"] <= 20, shown(found)
    assert 0 < found["waits"] <= 2.1, shown(found)  # for the loss and the gradients, whether they are finite


def test_waits_where_a_device_would_be_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_a_step(tmp_path, operations(monkeypatch), "callbacks.non_finite.every_n_steps=16")
    assert 0 < found["waits"] <= 0.2, shown(found)
