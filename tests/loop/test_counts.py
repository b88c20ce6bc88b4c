"""What a training step costs beside its arithmetic, counted: a time would not hold on a busy machine.

Each count is that of the steps between two moments of an epoch, whole blocks of 16 steps (gradients) and of
64 (log, metrics), divided by their number. A bound that is missed by far is to be lowered to what was found.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import torch
from lightning.pytorch.callbacks import Callback
from tests.conftest import unchanged_process
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from assay.assemble.assembly import assemble
from assay.assemble.trainer import silence_lightning
from assay.compose.compose import compose, job_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pytest

    Counting = Callable[[], AbstractContextManager[Counter[str]]]

FIRST, LAST = 64, 192
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
        # torch adds some once another test of this process has compiled
        file = frame.f_code.co_filename
        of_compiler = "/torch/_dynamo/" in file or "/torch/compiler/" in file
        if event == "call" and not of_compiler:
            found.update(("calls", frame.f_code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(before)


@final
class _Marks(Callback):
    """Notes at two steps what was counted so far."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.noted: dict[int, Counter[str]] = {}

    @override
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx in (FIRST, LAST):
            self.noted[batch_idx] = self.found.copy()


def in_a_step(folder: Path, counting: Counting, *overrides: str) -> dict[str, float]:
    """What a step costs with the default callbacks, from shuffled data in memory."""
    words = [
        *("data=synthetic", "data.source.num_samples=20000", "data.source.input_shape=[8]", "model=linear"),
        *("device=cpu", "trainer.max_epochs=1", f"trainer.limit_train_batches={LAST + 1}"),
        *("trainer.log_every_n_steps=64", f"hydra.run.dir={folder}"),
        "callbacks.progress_bar.line_interval=3600",  # else it is drawn by the clock
        *overrides,
    ]
    marks = _Marks()
    with unchanged_process(), silence_lightning():
        assembly = assemble(job_config(compose(words)))
        assembly.trainer.callbacks.append(marks)  # type: ignore[attr-defined]  # a plain attribute
        with counting() as marks.found:
            assembly.trainer.fit(assembly.module, datamodule=assembly.datamodule)
    steps = LAST - FIRST
    each = {name: (count - marks.noted[FIRST][name]) / steps for name, count in marks.noted[LAST].items()}
    return dict(sorted(each.items(), key=lambda item: -item[1]))


def shown(found: dict[str, float]) -> str:
    return "\n" + "\n".join(f"{count:8.2f} {name}" for name, count in list(found.items())[:40])


def test_python_calls(tmp_path: Path) -> None:
    found = in_a_step(tmp_path, python_calls)
    assert 0 < found["calls"] <= 260, shown(found)


def test_operations_and_the_tensors_they_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_a_step(tmp_path, operations(monkeypatch))
    assert 0 < found["operations"] <= 31, shown(found)
    assert 0 < found["tensors"] <= 16, shown(found)
    assert 0 < found["waits"] <= 1.1, shown(found)  # for whether loss and gradients are finite


def test_waits_where_a_device_would_be_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_a_step(tmp_path, operations(monkeypatch), "callbacks.non_finite.every_n_steps=16")
    assert 0 < found["waits"] <= 0.08, shown(found)
