"""What can be typed or given wrongly is answered with one short message that names the key and a way out."""

from __future__ import annotations

import gc
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import typer
from tests.command import ASSAY, typed

from assay.cli.verb import report_errors
from assay.config.yaml_file import load_mapping
from assay.errors import AssayError
from assay.process import Stopped

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_reader_that_goes_away() -> None:
    code = f"'{sys.executable}' -c 'from assay.cli.app import main; main()' configs | head -1"
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run([bash, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == ["augment"]
    assert not done.stderr


def test_ctrl_c_while_a_config_is_read(tmp_path: Path) -> None:
    """OmegaConf sets flags back when it is interrupted, and may fail at that with an error of its own."""
    path, calls = tmp_path / "config.yaml", 0
    path.write_text("model: {hidden: [1, 2], name: mlp}\n", encoding="utf-8")
    load_mapping(path)  # what is done once

    def read(interrupted_in_call: int) -> None:
        nonlocal calls
        calls = 0

        def trace(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += 1
            if calls == interrupted_in_call:
                raise KeyboardInterrupt

        with report_errors(debug=False):
            sys.settrace(trace)
            try:
                load_mapping(path)
            finally:
                sys.settrace(None)

    before = sys.gettrace()
    gc.collect()
    gc.disable()  # an interrupt of what it calls is lost
    try:
        read(0)
        number_of_calls = calls
        assert number_of_calls > 500
        for number in range(1, number_of_calls - 5, 7):
            with pytest.raises(typer.Exit) as caught:
                read(number)
            assert caught.value.exit_code == 130, number
    finally:
        gc.enable()
        sys.settrace(before)


@pytest.mark.parametrize("chained", [True, False])
def test_an_interrupt_behind_an_error_is_one(chained: bool) -> None:
    def fail() -> None:
        try:
            raise Stopped("SIGTERM")
        except KeyboardInterrupt as stop:
            raise AssayError("cannot be read") from (ValueError(str(stop)) if chained else None)

    with pytest.raises(typer.Exit) as caught, report_errors(debug=False):
        fail()
    assert caught.value.exit_code == 143


@pytest.mark.long
def test_ctrl_c_leaves_a_record_and_a_clean_terminal(tmp_path: Path) -> None:
    main_end, terminal = pty.openpty()
    command = [*ASSAY, "train", "device=cpu", "data=iris"]
    process = subprocess.Popen(
        [*command, "trainer.max_epochs=1000000", "hydra.run.dir=run"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(terminal)
    shown, sent, end = b"", False, time.monotonic() + 120
    try:
        while time.monotonic() < end:
            if select.select([main_end], [], [], 0.1)[0]:
                try:
                    shown += os.read(main_end, 65536)
                except OSError:  # the other end is closed
                    break
            if not sent and b"/1000000" in shown:
                process.send_signal(signal.SIGINT)
                sent = True
        code = process.wait(timeout=30)
    finally:
        process.kill()
        os.close(main_end)
    text = shown.decode()
    record = json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))
    assert (code, record["status"], record["reason"]) == (130, "interrupted", "stopped by hand"), text
    assert "Traceback" not in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") > 0, "the cursor is back"
    last = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", line) for line in text.splitlines()[-4:]]
    assert [line.split()[0] for line in last] == ["interrupted:", "run", "log", "next"]


@pytest.mark.parametrize(
    "word",
    ["+x.api_key=[hunter2secret", "+logger.csv.password=hunter2secret", "seed.token=hunter2secret"],
)
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_refused_secret_is_not_printed(word: str, more: list[str]) -> None:
    result = typed("check", "data=iris", "model=linear", word, *more, code=2)
    assert "error" in result.output
    assert "hunter2secret" not in result.output
