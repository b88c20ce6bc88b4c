"""`record.json` comes back as it was written, and says how a run ended."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.errors import AssayError, ConfigError, NonFiniteError, display_path
from assay.record.run_record import (
    SCHEMA_VERSION,
    Outcome,
    RunRecord,
    cause_of_exception,
    exit_code,
    exit_code_of,
    reason_of,
)
from assay_sweep.job_spec import cause_of_signal

ROOT = Path(__file__).parents[2]


def record(**fields: Any) -> RunRecord:
    given = {
        "run_id": "a",
        "name": "b",
        "status": "finished",
        "started": "2026-01-01T00:00:00+00:00",
        "seed": 0,
    }
    return RunRecord(**{**given, "fingerprint": "f" * 64, "config_fingerprint": "c" * 64, **fields})


def written(folder: Path) -> dict[str, Any]:
    """As any other program reads it."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    plain: dict[str, Any] = json.loads(
        (folder / "record.json").read_text(encoding="utf-8"), parse_constant=refuse
    )
    return plain


numbers = st.floats() | st.integers(-(2**53), 2**53)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.fixed_dictionaries(
        {
            "metrics": st.dictionaries(st.text(max_size=10), st.floats(), max_size=5),
            "best": st.fixed_dictionaries({"monitor": st.just("val/loss"), "value": numbers}),
            "matrices": st.dictionaries(
                st.text(max_size=5), st.lists(st.lists(st.floats(), max_size=3), max_size=3)
            ),
            "tags": st.lists(st.text(max_size=10), max_size=3),
            "seconds": st.floats(0, 1e9),
        }
    )
)
def test_comes_back_as_it_was(tmp_path: Path, fields: dict[str, Any]) -> None:
    one = record(**fields)
    one.save(tmp_path)
    written(tmp_path)
    assert repr(RunRecord.load(tmp_path)) == repr(one)  # by repr, since nan is not equal to nan


def test_every_field_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "record.md").read_text(encoding="utf-8")
    documented = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert documented == set(RunRecord.__struct_fields__)


def test_secrets_are_struck_out_and_json_stays_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "1234567")
    monkeypatch.setenv("B_TOKEN", '", "status": "')
    record(
        overrides=["logger.key=1234567", 'a=", "status": "x'],
        machine={"memory_bytes": 1234567},
        choices={"a": Path("1234567")},
    ).save(tmp_path)
    plain = written(tmp_path)
    assert plain["overrides"] == ["logger.key=***", "a=***x"]
    assert plain["machine"] == {"memory_bytes": 1234567}
    assert plain["choices"] == {"a": "***"}
    assert RunRecord.load(tmp_path).status == "finished"


def test_a_half_record_is_an_error_at_every_length(tmp_path: Path) -> None:
    record(metrics={"a": 1.0}).save(tmp_path)
    content = (tmp_path / "record.json").read_bytes().rstrip()
    for length in range(len(content)):
        (tmp_path / "record.json").write_bytes(content[:length])
        with pytest.raises(AssayError, match=r"record\.json"):
            RunRecord.load(tmp_path)


def test_no_record_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="is not a run directory"):
        RunRecord.load(tmp_path)
    (tmp_path / "record.json").mkdir()
    with pytest.raises(AssayError, match="cannot be read"):
        RunRecord.load(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "schema_version",
            SCHEMA_VERSION + 1,
            f"schema version {SCHEMA_VERSION + 1}; this assay reads {SCHEMA_VERSION}",
        ),
        ("status", "done", r"enum value 'done' - at `\$\.status`"),
        ("seed", "0", r"`int`, got `str` - at `\$\.seed`"),
        ("tags", [1], r"`\$\.tags\[0\]`"),
        ("resumed", [1], r"`\$\.resumed\[0\]`"),
        ("surprise", 1, "unknown field `surprise`"),
    ],
)
def test_wrong_types_and_unknown_fields(tmp_path: Path, field: str, value: Any, message: str) -> None:
    record().save(tmp_path)
    (tmp_path / "record.json").write_text(json.dumps({**written(tmp_path), field: value}))
    with pytest.raises(AssayError, match=message) as caught:
        RunRecord.load(tmp_path)
    assert str(tmp_path / "record.json") in caught.value.message


WHOLE = Outcome("interrupted", "", "stopped", "SIGTERM", {"val/loss": 0.5}, {"monitor": "val/loss"}, 2.5)


def test_the_exit_code_of_a_signal_is_that_of_the_shell() -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        ends_itself = f"sh -c 'kill -{name.removeprefix('SIG')} $$'; exit $?"
        by_shell = subprocess.run(["/bin/sh", "-c", ends_itself], check=False).returncode
        assert exit_code("interrupted", name) == exit_code_of(name) == by_shell
    assert exit_code_of("SIGUSR1") == 143, "what asks a run to stop counts as SIGTERM"


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
