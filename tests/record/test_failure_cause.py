"""What exceptions and signals stand for."""

from __future__ import annotations

import errno
import signal
import sys
from typing import Any

import numpy as np
import pytest
import torch

from assay.errors import AssayError, ConfigError, DataError, NonFiniteError
from assay.record.outcome import of_exception, of_signal, reason_of, signal_name

DETERMINISTIC = "exception"
PASSING = "machine"
NO_ROOM = "cannot_write"
OUT_OF_MEMORY = "out_of_memory"
KILLED = "killed"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *((kind("no"), DETERMINISTIC) for kind in (TypeError, ValueError, KeyError, AttributeError)),
        *((kind("no"), DETERMINISTIC) for kind in (IndexError, ImportError, NotImplementedError)),
        *((kind("no"), DETERMINISTIC) for kind in (AssertionError, ZeroDivisionError, RuntimeError)),
        *((kind("no"), DETERMINISTIC) for kind in (AssayError, ConfigError, DataError)),
        (FileNotFoundError(errno.ENOENT, "no such file"), DETERMINISTIC),
        (PermissionError(errno.EACCES, "denied"), DETERMINISTIC),
        (OSError(errno.ENOSPC, "No space left on device"), NO_ROOM),
        (OSError(errno.EROFS, "Read-only file system"), NO_ROOM),
        (OSError(errno.EIO, "input/output error"), PASSING),
        (ConnectionResetError(errno.ECONNRESET, "reset"), PASSING),
        (TimeoutError(), PASSING),
        (EOFError(), PASSING),
        (torch.distributed.DistBackendError("NCCL error in: ProcessGroupNCCL"), PASSING),
        (torch.distributed.DistNetworkError("the client socket has timed out"), PASSING),
        (RuntimeError("CUDA error: unspecified launch failure"), PASSING),
        (RuntimeError("CUDA error: device-side assert triggered"), DETERMINISTIC),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"), DETERMINISTIC),
        (RuntimeError("[/pytorch/gloo/transport/tcp/pair.cc] Connection closed by peer"), PASSING),
        (MemoryError(), OUT_OF_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"), OUT_OF_MEMORY),
        (RuntimeError("CUDA error: out of memory"), OUT_OF_MEMORY),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"), OUT_OF_MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), OUT_OF_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"), OUT_OF_MEMORY),
        (RuntimeError("std::bad_alloc"), OUT_OF_MEMORY),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), OUT_OF_MEMORY),
        (ValueError("this text speaks of what is out of memory"), DETERMINISTIC),
        (RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed. "), KILLED),
        (RuntimeError("DataLoader worker (pid(s) 12, 13) exited unexpectedly"), KILLED),
        (NonFiniteError("the loss became nan"), "non_finite"),
    ],
    ids=repr,
)
def test_exceptions(error: BaseException, expected: str) -> None:
    assert of_exception(error) == expected


def raised_from(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "cause", "expected"),
    [
        (AssayError("the checkpoint cannot be written"), OSError(errno.ENOSPC, "full"), NO_ROOM),
        (AssayError("the run directory cannot be made"), PermissionError(), DETERMINISTIC),
        (ConfigError("cannot be built"), MemoryError(), OUT_OF_MEMORY),
        (ConfigError("cannot be built"), ConnectionError(), DETERMINISTIC),
        (ValueError("no"), OSError(errno.EIO, "x"), DETERMINISTIC),
    ],
)
def test_our_own_errors_defer_to_their_cause(
    error: BaseException, cause: BaseException, expected: str
) -> None:
    assert of_exception(raised_from(error, cause)) == expected


def test_a_ring_of_causes_comes_to_an_end() -> None:
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert of_exception(first) == DETERMINISTIC


def test_what_libraries_say_when_memory_runs_out_is_known() -> None:
    with pytest.raises(RuntimeError) as by_torch:
        torch.empty(1 << 50)
    with pytest.raises(MemoryError) as by_numpy:
        np.empty(1 << 50)
    for error in (by_torch.value, by_numpy.value):
        assert of_exception(error) == OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("name", "output", "memory_ran_out", "expected"),
    [
        ("SIGKILL", "", True, OUT_OF_MEMORY),
        ("SIGKILL", "", False, KILLED),
        ("SIGTERM", "", True, KILLED),
        ("SIGABRT", "terminate called after throwing\n  what():  std::bad_alloc\n", False, OUT_OF_MEMORY),
        ("SIGABRT", "double free or corruption", False, KILLED),
        ("SIGSEGV", "", False, KILLED),
    ],
)
def test_signals(name: str, output: str, memory_ran_out: bool, expected: str) -> None:
    assert of_signal(name, output, memory_ran_out=memory_ran_out) == expected


def test_every_signal_has_a_name() -> None:
    assert signal_name(signal.SIGKILL) == "SIGKILL"
    assert signal_name(255) == "signal 255"


def test_the_reason_is_one_line_but_for_an_error_of_assay() -> None:
    error = ConfigError("must be a number", key="optimizer.lr", hint="optimizer.lr=0.1")
    assert reason_of(error) == "optimizer.lr: must be a number\n  → optimizer.lr=0.1"
    assert reason_of(KeyError()) == "KeyError"
    assert reason_of(ValueError("one\ntwo")) == "ValueError: one"
    with pytest.raises(SystemExit) as stop:
        sys.exit(3)
    assert reason_of(stop.value).startswith(f"SystemExit: 3, raised in {__file__}:")


def test_a_logger_in_the_place_of_sys_exit_has_not_ended_the_process() -> None:
    hook: dict[str, Any] = {}
    code = compile("def leave(code):\n    raise SystemExit(code)", "/x/wandb/sdk/lib/exit_hooks.py", "exec")
    exec(code, hook)  # noqa: S102 - a frame whose file is the logger's
    with pytest.raises(SystemExit) as stop:
        hook["leave"](3)
    assert reason_of(stop.value).startswith(f"SystemExit: 3, raised in {__file__}:")
