"""What can be typed or given wrongly is answered with one short message that names the key and a way out."""

from __future__ import annotations

import errno
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
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from tests.command import ASSAY
from typer.testing import CliRunner

from assay.cli.app import app
from assay.cli.verb import reported
from assay.config.yaml_file import load_mapping
from assay.errors import AssayError
from assay.process.stop_signals import Stopped

LINES, WIDTH = 6, 330
QUICK = ["debug=one_batch", "device=cpu", "hydra.run.dir=run"]


@dataclass(frozen=True)
class Bad:
    """Something typed, and what the answer must hold."""

    typed: str
    says: tuple[str, ...]
    code: int = 2
    verb: str = "train"
    quick: list[str] = field(default_factory=lambda: QUICK)

    def __str__(self) -> str:
        return f"{self.verb} {self.typed}"


def answer(bad: Bad) -> str:
    """Type it, and hold the answer to what every answer is held to."""
    words = [bad.verb, *(bad.quick if bad.verb == "train" else []), *bad.typed.split()]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
    return check(result.exit_code, result.stdout, result.stderr, bad.code)


def check(code: int, stdout: str, stderr: str, expected: int) -> str:
    lines = stderr.splitlines()
    assert code == expected, stdout + stderr
    assert "Traceback" not in stdout + stderr
    assert 1 <= len(lines) <= LINES, stderr
    assert all(len(line) <= WIDTH for line in lines), stderr
    assert not stdout.strip(), "errors go to stderr, and nothing was begun"
    assert not list(Path.cwd().rglob("record.json")), "no run was begun"
    return " ".join(stderr.split())


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def assert_says(text: str, wanted: tuple[str, ...]) -> None:
    for part in wanted:
        assert part in text, f"{part!r} is missing in: {text}"


# -- what is typed ---------------------------------------------------------------------------------

# Broken configs lie in tests/check/broken.
TYPED = [
    Bad("optim", ("optim: ", "there is no such group", "did you mean 'optimizer'?"), verb="configs"),
    Bad("..", ("..: ", "there is no such group", "optimizer"), verb="configs"),
    Bad("optimizer.lr=fast", ("optimizer.lr: ", "fast", "a number", "optimizer.lr=0.001")),
    Bad("-m optimizer.lr=0.1,fast", ("optimizer.lr: ", "fast", "a number")),
    Bad("optimizer.lr=-1", ("optimizer.lr: ", "-1 was given", "optimizer.lr=0.001")),
    Bad("data=digits loss=mse", ("loss: ", "MSELoss", "loss=cross_entropy")),
    Bad("data=wine model=lenet", ("model=lenet", "takes images", "model=mlp")),
    Bad("precision=fp16", ("precision=fp16", "needs a GPU", "precision=bf16"), code=1),
]


@pytest.mark.parametrize("bad", TYPED, ids=str)
def test_typed(bad: Bad) -> None:
    assert_says(answer(bad), bad.says)


@pytest.mark.parametrize("device", ["gpu", "ddp", "fsdp"])
def test_device_that_is_not_here(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    assert_says(answer(Bad(f"device={device}", (), code=1)), ("device: ", "no GPU", "device=auto"))


def test_debug_shows_where_it_came_from() -> None:
    result = CliRunner().invoke(app, ["train", *QUICK, "--debug", "optimizer.lr=fast"])
    assert result.exit_code
    assert isinstance(result.exception, Exception)
    assert result.exception.__traceback__ is not None


# -- what is given ---------------------------------------------------------------------------------


def write_images(root: Path, classes: dict[str, int]) -> None:
    draws = np.random.default_rng(0)
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for index in range(count):
            Image.fromarray(draws.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(
                root / name / f"{index}.png"
            )


def write_table(path: str, rows: list[str]) -> None:
    Path(path).write_text("\n".join(["a,b,kind", *rows]), encoding="utf-8")


IMAGES = "data=image_folder data.source.root=photos data.num_workers=0 data.batch_size=4"
TABLE = "data=table data.source.path=t.csv data.source.target=kind data.batch_size=4"
GOOD_ROWS = [f"{n * n % 17 + n / 8},{n % 3},{'xy'[n % 2]}" for n in range(40)]


NOT_THERE = [
    Bad("data=image_folder", ("data.source.root: ", "must be given", "data.source.root=")),
    Bad("data=table", ("data.source.path, data.source.target: ", "data.source.path=… data.source.target=…")),
    Bad(
        "data=wine data.batch_size=500 data.drop_last=true",
        ("data.batch_size=500", "124", "data.batch_size=124"),
        1,
    ),
    Bad("data=synthetic data.source.num_samples=1", ("data", "sample", "data.split"), 1),
]


@pytest.mark.parametrize("bad", NOT_THERE, ids=str)
def test_data_that_is_not_there(bad: Bad) -> None:
    assert_says(answer(bad), bad.says)


def test_data_root_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "photos").write_text("no folder", encoding="utf-8")
    assert_says(answer(Bad(IMAGES, ())), ("data.source.root: ", "photos is not a folder"))


def test_empty_class(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", {"cat": 20, "dog": 20, "fox": 0})
    assert_says(answer(Bad(IMAGES, (), code=1)), ("data.source.root=photos", "fox", "remove the folder"))


def test_one_sample(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", {"cat": 1})
    assert_says(answer(Bad(IMAGES, (), code=1)), ("data", "sample"))


def test_file_that_is_no_image(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", {"cat": 20, "dog": 20})
    (tmp_path / "photos" / "cat" / "3.png").write_bytes(b"not a picture")
    assert_says(
        answer(Bad(f"{IMAGES} data.source.on_bad=error", (), code=1)),
        ("root=photos: 1 of 40 pictures", "cat/3.png (it is not an image)", "on_bad=skip"),
    )


def test_more_classes_in_the_test_split(tmp_path: Path) -> None:
    write_images(tmp_path / "photos" / "train", {"cat": 20, "dog": 20})
    write_images(tmp_path / "photos" / "test", {"cat": 5, "dog": 5, "fox": 5})
    assert_says(answer(Bad(IMAGES, (), code=1)), ("data.source.root=photos", "test has a class", "fox"))


def test_root_with_spaces_trains(tmp_path: Path) -> None:
    write_images(tmp_path / "my photos", {"cat": 20, "dog": 20})
    words = ["train", *QUICK, *IMAGES.split(), "data.source.root=my photos", "metrics=multiclass"]
    result = CliRunner().invoke(app, words)
    assert not result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("rows", "typed", "says"),
    [
        (
            [*GOOD_ROWS, "nan,1,x"],
            "data.source.missing=error",
            ("'a'", "row 40", "data.source.missing=impute"),
        ),
        ([*GOOD_ROWS, "inf,1,x"], "data.source.missing=error", ("'a'", "row 40")),
        ([*GOOD_ROWS, "1,1,"], "data.source.missing=error", ("'kind'", "row 40")),
        (GOOD_ROWS, "data.source.target=kin", ("data.source.target", "did you mean 'kind'?", "columns: ")),
        (GOOD_ROWS[:1], "", ("data", "sample")),
        ([], "", ("data",)),
        (["1,2,x", "1,2"], "data.source.target=b", ("more or fewer", "row 1 (line 3")),
    ],
    ids=["nan", "infinity", "no target", "no such column", "one row", "no row", "short row"],
)
def test_table(rows: list[str], typed: str, says: tuple[str, ...]) -> None:
    write_table("t.csv", rows)
    assert_says(answer(Bad(f"{TABLE} {typed}", (), code=1)), says)


def test_arrays_of_unequal_length(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.zeros((10, 3), np.float32), targets=np.arange(9) % 2)
    assert_says(
        answer(Bad("data=arrays data.source.root=a.npz model=mlp", (), code=1)), ("10 inputs", "9 targets")
    )


# -- where it is written ---------------------------------------------------------------------------


def test_output_folder_that_cannot_be_made() -> None:
    bad = Bad("", (), quick=[*QUICK[:-1], "hydra.run.dir=/dev/null/run"])
    assert_says(answer(bad), ("hydra.run.dir: '/dev/null/run': /dev/null is not a folder", "hydra.run.dir="))


def test_output_folder_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file", encoding="utf-8")
    assert_says(answer(Bad("", ())), ("hydra.run.dir: 'run': this is not a folder", "hydra.run.dir="))


def test_disk_full_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert_says(answer(Bad("", (), code=1)), ("No space left on device", "hydra.run.dir="))


def test_disk_full_at_the_first_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fsync = os.fsync

    def full(descriptor: int) -> None:
        if "checkpoints" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("tells the files apart by /proc")
    monkeypatch.setattr(os, "fsync", full)
    result = CliRunner().invoke(app, ["train", *QUICK])
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    assert len(result.stderr.splitlines()) <= LINES
    assert "Traceback" not in result.output
    assert json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))["status"] == "failed"
    assert not list((tmp_path / "run").rglob("*.ckpt"))


def test_run_directory_in_use(tmp_path: Path) -> None:
    first = CliRunner().invoke(app, ["train", *QUICK, "data=iris"])
    assert not first.exit_code, first.stderr
    record = (tmp_path / "run" / "record.json").read_bytes()
    second = CliRunner().invoke(app, ["train", *QUICK, "data=iris"])
    assert second.exit_code == 1
    assert_says(" ".join(second.stderr.split()), ("hydra.run.dir", "already holds a run", "choose another"))
    assert not second.stdout
    assert (tmp_path / "run" / "record.json").read_bytes() == record


# -- how it ends -----------------------------------------------------------------------------------


FALLS_LATER = """
import torch

class Net(torch.nn.Linear):
    calls = 0

    def forward(self, inputs):
        self.calls += 1
        if self.calls > 10:
            raise RuntimeError("after the tenth")
        return super().forward(inputs)
"""


def test_failure_in_training_is_told_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "project.yaml").write_text("trusted_packages: [falls_later]\n", encoding="utf-8")
    text = "# Fails.\n_target_: falls_later.Net\n_args_: [13, 3]\n"
    (tmp_path / "conf" / "model" / "narrow.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "falls_later.py").write_text(FALLS_LATER, encoding="utf-8")
    words = ["train", *QUICK, "data=wine", "model=narrow", "trainer.max_epochs=30"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[0].startswith("failed: RuntimeError: ")
    assert "after the tenth" in lines[0]
    assert [line.split()[0] for line in lines] == ["failed:", "run", "log"]
    assert "Traceback" not in result.output
    assert json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))["status"] == "failed"
    assert "Traceback" in (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")


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

        with reported(debug=False):
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
        for number in range(1, number_of_calls - 5):
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

    with pytest.raises(typer.Exit) as caught, reported(debug=False):
        fail()
    assert caught.value.exit_code == 143


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
    "typed",
    ["+x.api_key=[hunter2secret", "+logger.csv.password=hunter2secret", "seed.token=hunter2secret"],
)
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_refused_secret_is_not_printed(typed: str, more: list[str]) -> None:
    result = CliRunner().invoke(app, ["check", "data=iris", "model=linear", typed, *more])
    assert result.exit_code == 2
    assert "error" in result.output
    assert "hunter2secret" not in result.output
