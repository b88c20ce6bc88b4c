"""What a training step costs beside its arithmetic, counted: a time would not hold on a busy machine.

Each count is that of the steps between two moments of an epoch, whole blocks of 16 steps (gradients) and of
64 (log, metrics), divided by their number. A bound that is missed by far is to be lowered to what was found.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from tests.conftest import DEVICES, unchanged_process
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from assay.assemble.assembly import assemble
from assay.assemble.trainer import silence_lightning
from assay.compose.compose import compose, job_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    Counting = Callable[[], AbstractContextManager[Counter[str]]]

FIRST, LAST = 64, 192
_READS = (
    *("_local_scalar_dense", "is_nonzero", "nonzero", "equal", "masked_select", "_unique2", "unique_dim"),
    *("unique_consecutive", "bincount", "repeat_interleave"),
)
"""Operations whose result, or the size of it, the host waits for."""


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
                {
                    "operations": 1,
                    "tensors": len(new),
                    "waits": name in _READS or _takes_mask(name, args),
                    f"aten.{name}": 1,
                }
            )
        return made


def _takes_mask(name: str, args: Any) -> bool:
    """Whether values are chosen by true and false, so that their number is known only afterwards."""
    if name not in ("index", "index_put", "index_put_"):
        return False
    return any(one.dtype in (torch.bool, torch.uint8) for one in args[1] if one is not None)


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
def synchronizations() -> Iterator[Counter[str]]:
    """Counts how often the host waits for a GPU, as torch is told by what copies and launches."""
    found: Counter[str] = Counter()

    def count(message: object, *_: object, **__: object) -> None:
        found.update({"waits": "synchronizing CUDA operation" in str(message)})

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = count  # put back with the filters
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode("default")


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


def in_a_step(
    folder: Path, counting: Counting, *overrides: str, watches: Sequence[Callback] = ()
) -> dict[str, float]:
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
        assembly.trainer.callbacks.extend([*watches, marks])  # type: ignore[attr-defined]  # a plain attribute
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


JOBS = {
    "linear": (),
    "pictures": (
        *("model=small_cnn", "model.widths=[4,8]", "data.source.input_shape=[1,8,8]"),
        *("augment=flip_crop", "trainer.gradient_clip_val=1.0"),
    ),
    "table": ("model=table_mlp", "data.batch_size=16"),
    "average": ("model=mlp", "model.hidden=[8]", "callbacks=[default,ema]", "precision=bf16"),
    "accumulating": ("model=mlp", "model.hidden=[8]", "trainer.accumulate_grad_batches=4", "optimizer=sgd"),
}


@pytest.mark.always("cpu-linear", "cpu-pictures")
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("device", DEVICES)
def test_a_step_waits_for_no_device(
    tmp_path: Path, device: str, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Save once in 16 steps, to see whether all numbers are finite, and in 64, for the log."""
    counting = operations(monkeypatch) if device == "cpu" else synchronizations
    as_there = "callbacks.non_finite.every_n_steps=16"
    found = in_a_step(tmp_path, counting, *JOBS[job], f"device={device}", as_there)
    assert 0 < found["waits"] <= 0.08, shown(found)


@final
class _Impatient(Callback):
    """Looks at each batch, in four ways that make the host wait."""

    @override
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        inputs, targets = batch
        float(inputs.sum())
        targets.tolist()
        inputs[targets == 1]
        torch.nonzero(targets)


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_that_waits_is_seen(tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = operations(monkeypatch) if device == "cpu" else synchronizations
    words = (f"device={device}", "callbacks.non_finite.every_n_steps=16")
    waits = in_a_step(tmp_path, counting, *words, watches=[_Impatient()])["waits"]
    assert waits >= 4
    assert waits < 4.1 or device == "gpu", "each way once"
