"""What can be typed or given wrongly is answered with one short message that names the key and a way out."""

from __future__ import annotations

import errno
import importlib.util
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
from PIL import Image
from typer.testing import CliRunner

from assay.cli import app

LINES, WIDTH = 3, 330
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

UNKNOWN = [
    Bad("optimizr=sgd", ("optimizr: ", "did you mean 'optimizer'?")),
    Bad("optimizer=sdg", ("optimizer: ", "'sdg'", "did you mean 'sgd'?", "adamw")),
    Bad("data/transform=resiz", ("data/transform: ", "did you mean 'resize'?")),
    Bad("callbacks=[default,emaa]", ("callbacks: ", "'emaa'", "did you mean 'ema'?")),
    Bad("optimizer.l=3", ("optimizer.l: ", "did you mean 'optimizer.lr'?", "+optimizer.l=")),
    Bad("optimizer.learning=3", ("optimizer.learning: ", "optimizer has: amsgrad, betas, eps, lr")),
    Bad("trainer.max_epoch=3", ("trainer.max_epoch: ", "did you mean 'trainer.max_epochs'?")),
    Bad("hydra.run.dirr=x", ("hydra.run.dirr: ", "did you mean 'hydra.run.dir'?")),
    Bad("run_dir=x", ("run_dir: ", "hydra.run.dir=")),
    Bad("~model.input_shape", ("model.input_shape: ", "cannot be taken away", "./conf")),
    Bad("optimizer.lr.x=3", ("optimizer.lr.x: ", "did you mean 'optimizer.lr'?")),
    Bad("callbacks.checkpoint=3", ("callbacks.checkpoint: ", "_target_", "~callbacks.checkpoint")),
    Bad("~nothing", ("nothing: ", "--cfg")),
    Bad("~callbacks", ("callbacks: ", "callbacks=[]")),
    Bad("~model", ("model: ", "cannot be left out", "resnet18")),
    Bad("+optimizer=sgd", ("optimizer: ", "leave out the plus: optimizer=")),
    Bad("+optimizer.lr=3", ("optimizer.lr: ", "leave out the plus: optimizer.lr=")),
    Bad("model=null", ("model: ", "null", "resnet18")),
    Bad("logger=null", ("logger: ", "null", "logger=[]")),
    Bad("+model.depth=3", ("model.depth: ", "SmallCNN has no argument 'depth'", "it takes: input_shape")),
    Bad("+optimizer.momentun=1", ("optimizer.momentun: ", "AdamW has no argument 'momentun'")),
    Bad("+data.split.train=1", ("data.split.train: ", "'train'", "leave out data.split.train")),
    Bad("model._target_=torch.nn.Lineer", ("model._target_: ", "torch.nn has no 'Lineer'", "'Linear'?")),
    Bad("model._target_=nowhere.Net", ("model._target_: ", "no module 'nowhere'", "install")),
    Bad("optim", ("optim: ", "there is no such group", "did you mean 'optimizer'?"), verb="configs"),
    Bad("..", ("..: ", "there is no such group", "optimizer"), verb="configs"),
]
MALFORMED = [
    Bad("lr", ("lr: ", "has no value", "lr=VALUE")),
    Bad("=3", ("'=3'", "key=3")),
    Bad("=", ("'='", "key=value")),
    Bad("a=[1", ("a: ", "[1", "close every bracket")),
    Bad("optimizer.betas={a:1", ("optimizer.betas: ", "close every bracket")),
    Bad("optimizer.lr=0.1,0.2", ("optimizer.lr: ", "assay train -m optimizer.lr=0.1,0.2")),
    Bad("optimizer=sgd,adam", ("optimizer: ", "assay train -m optimizer=sgd,adam")),
    Bad("optimizer.lr=${lr}", ("optimizer.lr: ", "'lr'", "optimizer.lr=VALUE")),
    Bad("seed=${nowhere}", ("seed: ", "seed=VALUE")),
    Bad("model.num_outputs=${spec.num_output}", ("model.num_outputs: ", "did you mean 'spec.num_outputs'?")),
    Bad("--config-dir nowhere", ("--config-dir nowhere", "give a folder")),
    Bad("-m optimizer=sgd,sdg", ("optimizer: ", "did you mean 'sgd'?")),
    Bad("-m optimizer.lr=0.1,fast", ("optimizer.lr: ", "fast", "a number")),
    Bad("-m seed=1,x", ("seed: ", "x was given", "whole number")),
]
WRONG_TYPE = [
    Bad("data.batch_size=abc", ("data.batch_size: ", "abc", "a whole number")),
    Bad("data.batch_size=0", ("data.batch_size", "at least 1"), code=1),
    Bad("data.batch_size=-3", ("data.batch_size", "at least 1"), code=1),
    Bad("data.split.val=2", ("data.split.val", "data.split.val=0.1"), code=1),
    Bad(
        "data.split.val=0.5 data.split.test=0.5", ("data.split.val", "data.split.test", "to train on"), code=1
    ),
    Bad("data.imbalance=-1", ("data.imbalance", "data.imbalance=0.01"), code=1),
    Bad("data.imbalance=few", ("data.imbalance: ", "few", "a number")),
    Bad("trainer.max_epochs=many", ("trainer.max_epochs: ", "many", "a whole number or null")),
    Bad("trainer.max_epochs=-2", ("trainer.max_epochs: ", "-2")),
    Bad("trainer.accumulate_grad_batches=0", ("trainer.accumulate_grad_batches: ", "at least 1")),
    Bad("trainer.precision=single", ("trainer.precision: ", "single", "bf16")),
    Bad("trainer.accelerator=abacus", ("trainer.accelerator: ", "abacus", "cpu")),
    Bad("trainer.devices=-7", ("trainer.devices: ", "int > 0")),
    Bad("optimizer.lr=fast", ("optimizer.lr: ", "fast", "a number", "optimizer.lr=0.001")),
    Bad("optimizer.lr=-1", ("optimizer.lr: ", "Invalid learning rate: -1", "optimizer.lr=0.001")),
    Bad("optimizer.betas=3", ("optimizer.betas: ", "a list of 2 numbers", "[0.9, 0.999]")),
    Bad("optimizer.weight_decay=null", ("optimizer.weight_decay: ", "null", "a number")),
    Bad("scheduler=cosine scheduler.interval=hour", ("scheduler.interval: ", "step, epoch")),
    Bad("loss.label_smoothing=2", ("loss.label_smoothing: ", "[0, 1)")),
    Bad("model.widths=wide", ("model.widths: ", "wide", "a list of whole numbers")),
    Bad("callbacks.checkpoint.mode=best", ("callbacks.checkpoint.mode: ", "best", "min")),
    Bad("seed=x", ("seed: ", "x was given", "seed=0")),
    Bad("seed=-1", ("seed: ", "-1", "from 0 to 4294967295")),
    Bad("seed=1.5", ("seed: ", "1.5", "seed=0")),
    Bad("~seed", ("seed: ", "null", "seed=0")),
    Bad("~trainer", ("trainer: ", "_target_")),
]
DOES_NOT_FIT = [
    Bad("data=diabetes loss=cross_entropy", ("loss: ", "CrossEntropy", "loss=mse")),
    Bad("data=diabetes loss=ldam", ("loss: ", "LDAM", "loss=mse")),
    Bad("data=diabetes metrics=multiclass", ("metrics.", "metrics=regression")),
    Bad("data=digits loss=mse", ("loss: ", "MSELoss", "loss=cross_entropy")),
    Bad("data=digits loss=bce", ("loss: ", "BCE", "loss=cross_entropy")),
    Bad("data=digits loss=bce_with_logits", ("loss: ", "BCEWithLogits", "loss=cross_entropy")),
    Bad("data=digits metrics=binary", ("metrics.", "BinaryAccuracy", "metrics=multiclass")),
    Bad("data=digits metrics=multilabel", ("metrics.", "MultilabelAccuracy", "metrics=multiclass")),
    Bad("data=digits metrics=regression", ("metrics.", "metrics=multiclass")),
    Bad("data=breast_cancer metrics=multiclass", ("metrics.", "metrics=binary")),
    Bad("loss=triplet metrics=retrieval augment=mixup", ("augment: ", "triplet", "augment=none")),
    Bad("data=wine model=lenet", ("model=lenet", "takes images", "model=mlp")),
    Bad("data=wine model=resnet18", ("model", "takes images", "model=mlp")),
    Bad("data=wine augment=mixup", ("augment: ", "inputs [13]", "augment=none")),
    Bad("data=wine augment=flip_crop", ("augment: ", "inputs [13]", "augment=none")),
    Bad(
        "callbacks=[default,early_stopping] callbacks.early_stopping.monitor=val/acc",
        ("callbacks.early_stopping.monitor: ", "did you mean 'val/accuracy'?"),
    ),
    Bad(
        "callbacks.checkpoint.monitor=val/acc",
        ("callbacks.checkpoint.monitor: ", "did you mean 'val/accuracy'?"),
    ),
    Bad("scheduler=plateau scheduler.monitor=loss", ("scheduler.monitor: ", "there is: ", "val/loss")),
    Bad("data.split.val=0", ("callbacks.checkpoint.monitor: ", "no validation part", "train/loss")),
    Bad(
        "trainer.limit_val_batches=0", ("callbacks.checkpoint.monitor: ", "limit_val_batches=0", "train/loss")
    ),
    Bad("data=diabetes callbacks=[default,drw]", ("callbacks.drw", "class", "~callbacks.drw")),
    Bad("augment=teacher", ("augment.model.run: ", "must be given", "augment.model.run=")),
    Bad("augment=teacher augment.model.run=nowhere", ("nowhere", "no run directory", "outputs/"), code=1),
    Bad("device=mps", ("device", "no Apple GPU", "device=cpu"), code=1),
    Bad("precision=fp16", ("precision=fp16", "needs a GPU", "precision=bf16"), code=1),
]


@pytest.mark.parametrize("bad", [*UNKNOWN, *MALFORMED, *WRONG_TYPE, *DOES_NOT_FIT], ids=str)
def test_typed(bad: Bad) -> None:
    assert_says(answer(bad), bad.says)


@pytest.mark.parametrize("device", ["gpu", "ddp", "fsdp"])
def test_device_that_is_not_here(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    assert_says(answer(Bad(f"device={device}", (), code=1)), ("device: ", "no GPU", "device=auto"))


@pytest.mark.parametrize("name", ["wandb", "mlflow", "tensorboard"])
def test_logger_that_is_not_installed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pytorch", "fabric"):
        module = f"lightning.{package}.loggers.{name}"
        if importlib.util.find_spec(module):
            for flag in (f"_{name.upper()}_AVAILABLE", f"_{name.upper()}X_AVAILABLE"):
                monkeypatch.setattr(f"{module}.{flag}", False, raising=False)
    text = answer(Bad(f"logger=[csv,{name}]", ()))
    assert_says(text, (f"logger.{name}: ", f"pip install 'assay[{name}]'"))


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
GOOD_ROWS = [f"{n},{n % 3},{'xy'[n % 2]}" for n in range(40)]


NOT_THERE = [
    Bad("data=image_folder", ("data.source.root: ", "must be given", "data.source.root=")),
    Bad("data=table", ("data.source.path, data.source.target: ", "data.source.path=… data.source.target=…")),
    Bad("data=image_folder data.source.root=/nowhere", ("data.source.root=/nowhere", "no such folder"), 1),
    Bad("data=arrays data.source.root=/nowhere", ("data.source.root=/nowhere", ".npz"), 1),
    Bad("data=table data.source.path=/no.csv data.source.target=y", ("data.source.path=/no.csv",), 1),
    Bad("data=table data.source.path=/etc data.source.target=y", ("data.source.path=/etc", ".csv"), 1),
    Bad(
        "data=mnist data.source.root=/nowhere data.source.download=false",
        ("data.source.root=/nowhere", "MNIST", "download=true"),
        1,
    ),
    Bad("data=wine data.batch_size=500", ("data.batch_size=500", "124", "data.batch_size=124"), 1),
    Bad("data=synthetic data.source.num_samples=1", ("data", "sample", "data.split"), 1),
]


@pytest.mark.parametrize("bad", NOT_THERE, ids=str)
def test_data_that_is_not_there(bad: Bad) -> None:
    assert_says(answer(bad), bad.says)


def test_data_root_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "photos").write_text("no folder", encoding="utf-8")
    assert_says(answer(Bad(IMAGES, (), code=1)), ("data.source.root=photos", "no such folder"))


def test_empty_class(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", {"cat": 20, "dog": 20, "fox": 0})
    assert_says(answer(Bad(IMAGES, (), code=1)), ("data.source.root=photos", "fox", "remove the folder"))


def test_one_sample(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", {"cat": 1})
    assert_says(answer(Bad(IMAGES, (), code=1)), ("data", "sample"))


def test_file_that_is_no_image(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", {"cat": 20, "dog": 20})
    (tmp_path / "photos" / "cat" / "3.png").write_bytes(b"not a picture")
    assert_says(answer(Bad(IMAGES, (), code=1)), ("photos/cat/3.png", "cannot be read as an image", "remove"))


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
        ([*GOOD_ROWS, "nan,1,x"], "", ("'a'", "row 40", "data.source.missing=impute")),
        ([*GOOD_ROWS, "inf,1,x"], "", ("'a'", "row 40")),
        ([*GOOD_ROWS, "1,1,"], "", ("'kind'", "row 40")),
        (GOOD_ROWS, "data.source.target=kin", ("data.source.target", "did you mean 'kind'?", "columns: ")),
        (GOOD_ROWS[:1], "", ("data", "sample")),
        ([], "", ("data",)),
        (["1,2,x", "1,2"], "data.source.target=b", ("kind",)),
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
    bad = Bad("", (), code=1, quick=[*QUICK[:-1], "hydra.run.dir=/dev/null/run"])
    assert_says(answer(bad), ("/dev/null/run", "cannot be made", "hydra.run.dir="))


def test_output_folder_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file", encoding="utf-8")
    assert_says(answer(Bad("", (), code=1)), ("run", "cannot be made", "hydra.run.dir="))


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


def test_failure_in_training_is_told_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "conf" / "model").mkdir(parents=True)
    text = "# For three features.\n_target_: torch.nn.Linear\nin_features: 3\nout_features: 3\n"
    (tmp_path / "conf" / "model" / "narrow.yaml").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["train", *QUICK, "data=wine", "model=narrow"])
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[0].startswith("failed: RuntimeError: ")
    assert "shapes cannot be multiplied" in lines[0]
    assert [line.split()[0] for line in lines] == ["failed:", "run", "log"]
    assert "Traceback" not in result.output
    assert json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))["status"] == "failed"
    assert "Traceback" in (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")


def test_a_reader_that_goes_away() -> None:
    code = f"{sys.executable} -c 'from assay.cli import main; main()' configs | head -1"
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run([bash, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == ["augment"]
    assert not done.stderr


def test_ctrl_c_leaves_a_record_and_a_clean_terminal(tmp_path: Path) -> None:
    main_end, terminal = pty.openpty()
    command = [sys.executable, "-c", "from assay.cli import main; main()", "train", "device=cpu", "data=iris"]
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
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "the cursor is back"
    last = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", line) for line in text.splitlines()[-3:]]
    assert [line.split()[0] for line in last] == ["interrupted:", "run", "log"]
