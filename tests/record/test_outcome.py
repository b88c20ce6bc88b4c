"""The vocabulary of ends: its words, its exit codes, and what exceptions and signals stand for."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from typing import Any, get_args

import numpy as np
import pytest
import torch

from assay.errors import AssayError, ConfigError, NonFiniteError, display_path
from assay.record.run_record import (
    Cause,
    Outcome,
    Status,
    cause_of_exception,
    cause_of_signal,
    exit_code,
    exit_code_of,
    reason_of,
)

WHOLE = Outcome("interrupted", "", "stopped", "SIGTERM", {"val/loss": 0.5}, {"monitor": "val/loss"}, 2.5)


@pytest.mark.parametrize("status", [word for word in get_args(Status) if word != "running"])
def test_every_end_has_an_exit_code(status: Status) -> None:
    assert exit_code(status) == {"finished": 0, "pruned": 0, "failed": 1, "interrupted": 130}[status]


def test_the_exit_code_of_a_signal_is_that_of_the_shell() -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        ends_itself = f"sh -c 'kill -{name.removeprefix('SIG')} $$'; exit $?"
        by_shell = subprocess.run(["/bin/sh", "-c", ends_itself], check=False).returncode
        assert exit_code("interrupted", name) == exit_code_of(name) == by_shell
    assert exit_code_of("SIGUSR1") == 143, "what asks a run to stop counts as SIGTERM"


@pytest.mark.parametrize("cause", get_args(Cause))
def test_only_what_the_machine_did_may_end_differently(cause: Cause) -> None:
    expected = cause in ("machine", "killed", "timed_out", "cannot_write")
    assert Outcome("failed", cause).transient == expected


def test_what_is_not_an_outcome_is_refused() -> None:
    assert Outcome.from_json(WHOLE.to_json()) == WHOLE
    plain: dict[str, Any] = json.loads(WHOLE.to_json())
    contents: list[Any] = [[], {"status": "running"}, plain | {"status": 7}, plain | {"metrics": {"a": "x"}}]
    for content in contents:
        with pytest.raises(ValueError, match=r"Expected|running"):
            Outcome.from_plain(content)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *((kind("no"), "exception") for kind in (TypeError, KeyError, RuntimeError, ConfigError)),
        (FileNotFoundError(errno.ENOENT, "no such file"), "exception"),
        (PermissionError(errno.EACCES, "denied"), "exception"),
        (OSError(errno.ENOSPC, "No space left on device"), "cannot_write"),
        (OSError(errno.EIO, "input/output error"), "machine"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "machine"),
        (torch.distributed.DistBackendError("NCCL error in: ProcessGroupNCCL"), "machine"),
        (RuntimeError("CUDA error: unspecified launch failure"), "machine"),
        (RuntimeError("CUDA error: device-side assert triggered"), "exception"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"), "exception"),
        (RuntimeError("[/pytorch/gloo/transport/tcp/pair.cc] Connection closed by peer"), "machine"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"), "out_of_memory"),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"), "out_of_memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out_of_memory"),
        (ValueError("this text speaks of what is out of memory"), "exception"),
        (RuntimeError("DataLoader worker (pid(s) 12, 13) exited unexpectedly"), "killed"),
        (NonFiniteError("the loss became nan"), "non_finite"),
    ],
    ids=repr,
)
def test_exceptions(error: BaseException, expected: str) -> None:
    assert cause_of_exception(error) == expected


@pytest.mark.parametrize(
    ("error", "cause", "expected"),
    [
        (AssayError("the checkpoint cannot be written"), OSError(errno.ENOSPC, "full"), "cannot_write"),
        (AssayError("the run directory cannot be made"), PermissionError(), "exception"),
        (ConfigError("cannot be built"), MemoryError(), "out_of_memory"),
        (ConfigError("cannot be built"), ConnectionError(), "exception"),
        (ValueError("no"), OSError(errno.EIO, "x"), "exception"),
    ],
)
def test_our_own_errors_defer_to_their_cause(error: Exception, cause: Exception, expected: str) -> None:
    error.__cause__ = cause
    assert cause_of_exception(error) == expected


def test_what_libraries_say_when_memory_runs_out_is_known() -> None:
    for make in (lambda: torch.empty(1 << 50), lambda: np.empty(1 << 50)):
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            make()
        assert cause_of_exception(caught.value) == "out_of_memory"


@pytest.mark.parametrize(
    ("name", "output", "memory_ran_out", "expected"),
    [
        ("SIGKILL", "", True, "out_of_memory"),
        ("SIGTERM", "", True, "killed"),
        ("SIGABRT", "terminate called after throwing\n  what():  std::bad_alloc\n", False, "out_of_memory"),
        ("SIGABRT", "double free or corruption", False, "killed"),
    ],
)
def test_signals(name: str, output: str, memory_ran_out: bool, expected: str) -> None:
    assert cause_of_signal(name, output, memory_ran_out=memory_ran_out) == expected


def test_the_reason_is_one_line_but_for_an_error_of_assay() -> None:
    error = ConfigError("must be a number", key="optimizer.lr", hint="optimizer.lr=0.1")
    assert reason_of(error) == "optimizer.lr: must be a number\n  → optimizer.lr=0.1"
    assert reason_of(KeyError()) == "KeyError"
    assert reason_of(ValueError("one\ntwo")) == "ValueError: one"
    with pytest.raises(SystemExit) as stop:
        sys.exit(3)
    assert reason_of(stop.value).startswith(f"SystemExit: 3 ({display_path(__file__)}:")


def test_a_logger_in_the_place_of_sys_exit_has_not_ended_the_process() -> None:
    hook: dict[str, Any] = {}
    code = compile("def leave(code):\n    raise SystemExit(code)", "/x/wandb/sdk/lib/exit_hooks.py", "exec")
    exec(code, hook)  # noqa: S102 - a frame whose file is the logger's
    with pytest.raises(SystemExit) as stop:
        hook["leave"](3)
    assert reason_of(stop.value).startswith(f"SystemExit: 3 ({display_path(__file__)}:")
