"""What a terminal, a pipe and a file show of a run."""

from __future__ import annotations

import io
import re
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

import lightning as L
import numpy as np
import pytest
import torch
from tests.callbacks.quiet_trainer import quiet_trainer
from torch import Tensor, nn
from typing_extensions import override

from assay.callbacks.progress_bar import ProgressBar, RunLog, format_number, group_scalars
from assay.terminal import Console

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0000"),
        (-0.5, "-0.5000"),
        (9999.0, "9999.0000"),
        (0.0009, "0.0009"),
        (1470000000.0, "1,470,000,000"),
        (0.00002123, "2.123e-05"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert format_number(value) == text


def test_scalars_by_stage() -> None:
    metrics = {
        "train_loss": torch.tensor(1.5),
        "train_loss_step": torch.tensor(9.0),
        "train_loss_epoch": torch.tensor(1.5),
        "val/loss": torch.tensor(2.5),
        "val/per_class": torch.tensor([0.1, 0.2]),
        "lr-SGD/pg1": torch.tensor(0.1),
        "valuable": 3,
    }
    assert group_scalars(metrics) == {"": {"valuable": 3.0}, "train": {"loss": 1.5}, "val": {"loss": 2.5}}
    assert group_scalars(metrics, ["train"]) == {"": {"valuable": 3.0}, "train": {"loss": 1.5}}


# Lightning flattens its loaders with a class that torch has deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
]

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


class Batches:
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(self.length):
            yield torch.ones(2, 3)


class Net(L.LightningModule):
    """Its loss is 0.25 for ever."""

    def __init__(self, step_seconds: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.step_seconds = step_seconds
        self.fail_at: tuple[int, BaseException] | None = None

    @override
    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        if self.fail_at is not None and self.global_step == self.fail_at[0]:
            raise self.fail_at[1]
        sleep(self.step_seconds)
        return self.weight * 0.0 + 0.25

    def on_train_epoch_end(self) -> None:
        self.log("train/loss", 0.5 + self.current_epoch)

    @override
    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        sleep(self.step_seconds)
        self.log("val/loss", 0.75 + self.current_epoch)

    @override
    def test_step(self, batch: Tensor, batch_idx: int) -> None:
        sleep(self.step_seconds)
        self.log("test/loss", 0.125)

    @override
    def predict_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        sleep(self.step_seconds)
        return batch

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def make_trainer(*callbacks: L.Callback, **options: Any) -> L.Trainer:
    bar = any(isinstance(callback, ProgressBar) for callback in callbacks)
    return quiet_trainer(
        *callbacks, RunLog(), enable_progress_bar=bar, **({"num_sanity_val_steps": 0} | options)
    )


def make_console(terminal: bool, width: int = 120) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=terminal, width=width, _environ={"TERM": "xterm-256color"}), file


def without_style(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def frames(text: str) -> list[str]:
    """What the terminal's live line showed, one after the other."""
    shown = (part.split("\n")[-1] for part in re.split(r"\r\x1b\[2K|\r\x1b\[1A\x1b\[2K", without_style(text)))
    return [frame for frame in (part.replace(HIDE, "").replace(SHOW, "") for part in shown) if frame.strip()]


def fit_lines(
    net: Net, train: Any, val: Any = None, bar: dict[str, float] | None = None, **options: Any
) -> list[str]:
    console, file = make_console(terminal=False)
    settings = {"min_line_interval": 0.0} | (bar or {})
    make_trainer(ProgressBar(**settings, console=console), **options).fit(net, train, val)
    text = file.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", text), "no control characters in a file"
    assert text.isascii()
    return text.splitlines()


# -- in a file or pipe ---------------------------------------------------------------------------------------


def test_a_file_gets_one_plain_line_an_epoch() -> None:
    lines = fit_lines(Net(), Batches(3), Batches(2), max_epochs=10)
    pattern = r"epoch {epoch:>2}/10  +\d+\.\ds   train loss {train}   val loss {val}"
    assert len(lines) == 10
    for index, line in enumerate(lines):
        expected = pattern.format(epoch=index + 1, train=f"{0.5 + index:.4f}", val=f"{0.75 + index:.4f}")
        assert re.fullmatch(expected, line), line


def test_a_long_epoch_tells_how_it_stands() -> None:
    lines = fit_lines(Net(0.01), Batches(60), bar={"line_interval": 0.2}, max_epochs=1)
    assert 2 <= len(lines) < 60, "by the clock, not one a step"
    pattern = r"epoch 1/1  \d+/60  \d+\.\ds  loss 0\.2500"
    for line in lines[:-1]:
        assert re.fullmatch(pattern, line), line


# -- in a terminal -------------------------------------------------------------------------------------------


def test_a_terminal_shows_each_stage_and_keeps_the_epochs() -> None:
    console, file = make_console(terminal=True)
    bar = ProgressBar(refresh_interval=0.0, min_line_interval=0.0, console=console)
    make_trainer(bar, max_epochs=2, num_sanity_val_steps=2).fit(Net(0.002), Batches(5), Batches(4))
    shown = frames(file.getvalue())
    assert any(re.match(r"check [━╸╺]+ [12]/2", frame) for frame in shown)
    assert any(
        re.match(r"epoch 1/2 [━╸╺]+ 3/5 .* steps/s 0:00:0\d loss 0\.2500", frame) for frame in shown
    ), shown
    assert any(re.match(r"epoch 2/2  val [━╸╺]+ 2/4 ", frame) for frame in shown)
    kept = re.findall(r"epoch \d/2 +\d+\.\ds .*", without_style(file.getvalue()))
    assert [line.rstrip("\r").split("   ")[-2:] for line in kept] == [
        ["train loss 0.5000", "val loss 0.7500"],
        ["train loss 1.5000", "val loss 1.7500"],
    ]


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), RuntimeError("boom")])
def test_the_terminal_is_left_as_it_was_found(
    error: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)  # Lightning would switch Ctrl-C off for good
    console, file = make_console(terminal=True)
    net, bar = Net(), ProgressBar(refresh_interval=0.0, min_line_interval=0.0, console=console)
    trainer = make_trainer(bar, max_epochs=3)
    if error is None:
        trainer.fit(net, Batches(4))
    else:
        net.fail_at = (6, error)
        with pytest.raises(SystemExit if isinstance(error, KeyboardInterrupt) else RuntimeError):
            trainer.fit(net, Batches(4))
    text = file.getvalue()
    assert text.count(HIDE) == text.count(SHOW) == 1
    assert text.rindex(SHOW) > text.rindex(HIDE)
    assert "epoch 1/3     0." in without_style(text)
    live_line_gone = text[text.rindex(SHOW) :]
    assert live_line_gone.startswith(f"{SHOW}\r\x1b[1A\x1b[2K")
    # The same object serves another run.
    net.fail_at = None
    make_trainer(bar, max_epochs=1).fit(net, Batches(2))
    assert "epoch 1/1" in without_style(file.getvalue())


def test_what_others_print_goes_above_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    class Talker(L.Callback):
        def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
            print(f"[step] {trainer.global_step}")

    console, file = make_console(terminal=True)
    bar = ProgressBar(refresh_interval=0.0, console=console)
    make_trainer(bar, Talker(), max_epochs=1).fit(Net(), Batches(2))
    plain = without_style(file.getvalue())
    assert re.search(r"\x1b\[2K\[step\] 1\n|\[step\] 1\r\n", plain)
    assert "[step]" not in capsys.readouterr().out


# -- what it costs -------------------------------------------------------------------------------------------


class Stamp(L.Callback):
    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self.times.append(perf_counter())


@pytest.mark.parametrize("terminal", [True, False])
def test_a_step_costs_microseconds(terminal: bool) -> None:
    console, _ = make_console(terminal)
    before, after = Stamp(), Stamp()
    # Callbacks are called in turn, so between the two stamps lies the bar and nothing else of the step.
    make_trainer(before, ProgressBar(console=console), after, max_epochs=1).fit(Net(), Batches(400))
    assert float(np.median(np.subtract(after.times, before.times))) < 50e-6
