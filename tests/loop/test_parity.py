"""A run with this project's loops is the one that Lightning's make, from wherever it is looked at."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch.callbacks as lightning_callbacks
import pytest
import torch
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.trainer import call
from tests.forks import Forks
from tests.loop.parity import ALLOWED, Case, Outcome, differences, install_stock, run
from tests.loop.parity_axes import AXES, CALLBACKS, fail, make_case, set_stop
from tests.loop.parity_rank import CASES

from assay.loop.fit_loop import install as install_ours

if TYPE_CHECKING:
    from collections.abc import Callable

    import lightning as L

Row = dict[str, str]
COMBINED: dict[str, Row] = {
    name: dict(setting.split("=") for setting in row.split("; "))
    for name, row in {
        "usual": "callbacks=checkpoint, two; scheduler=step; validation=0.5; observer=all",
        "accumulated": "accumulation=3; clipping=norm; precision=16-mixed; scheduler=plateau step",
        "unwatched": "observer=none; accumulation=3; callbacks=assay ema; calls=fit, all",
        "partly watched": "observer=odd; callbacks=assay log; logs=everywhere; profiler=simple",
        "stopping": "callbacks=early stopping; length=min_steps; scheduler=plateau epoch",
        "across epochs": "validation=3, across epochs; limits=half; deed=stop in step; log steps=1",
        "by hand": "optimization=manual, two; callbacks=checkpoint, steps and last; scheduler=epoch 2",
        "closures": "optimization=lbfgs; callbacks=assay non finite; validation=2; observer=even",
        "stream": "data=stream; length=max_steps; callbacks=assay swa; accumulation=3",
        "several loaders": "data=two; reload=1; callbacks=checkpoint, steps; calls=validate, fit",
        "both": "logs=both; callbacks=assay seeds; precision=bf16-mixed",
        "half a loss": "returns=sometimes none; accumulation=3; callbacks=assay bar; clipping=norm",
        "skipped": "returns=skip; scheduler=step 2; callbacks=checkpoint, all; calls=more",
        "no sanity check": "sanity=0; limits=few; signature=no index; callbacks=swa",
        "failure": "deed=failure; callbacks=on exception; accumulation=3; validation=0.5",
        "interrupt": "deed=interrupt; callbacks=checkpoint, best; scheduler=step",
        "seldom": "callbacks=checkpoint, steps; validation=every 2 epochs",
    }.items()
}
ALONE = [(axis, value) for axis, values in AXES.items() for value in values]
ENDS = {
    "failure": "ValueError: on purpose",
    "failure in validation": "OSError: on purpose",
    "interrupt": "SystemExit: 1",
}


def told_apart(row: Row, folder: Path) -> tuple[list[str], Outcome]:
    """In what the two runs of this case differ, and Lightning's."""
    stock = run(make_case(row), install_stock, folder / "run")
    return differences(stock, run(make_case(row), install_ours, folder / "run"), ALLOWED), stock


@pytest.mark.always("usual", "unwatched", "by hand", "stream")
@pytest.mark.parametrize("name", COMBINED)
def test_settings_together(name: str, tmp_path: Path) -> None:
    found, stock = told_apart(COMBINED[name], tmp_path)
    assert not found, "\n".join(found)
    assert stock.end["error"] == ENDS.get(COMBINED[name].get("deed", ""))


@pytest.mark.parametrize(("axis", "value"), ALONE)
@pytest.mark.long
def test_each_setting_alone(axis: str, value: str, tmp_path: Path) -> None:
    found, stock = told_apart({axis: value}, tmp_path)
    assert not found, "\n".join(found)
    assert stock.end["error"] == ENDS.get(value)


def test_each_callback_of_lightning_is_run() -> None:
    cases = [make_case({"callbacks": name}) for name in CALLBACKS]
    made = {type(made(Path())).__name__ for case in cases for made in case.callbacks}
    abstract = {"BaseFinetuning", "BasePredictionWriter", "Callback", "Checkpoint", "ProgressBar"}
    assert not set(lightning_callbacks.__all__) - made - abstract - {"SpikeDetection"}


# -- whatever happens in whichever hook ----------------------------------------------------------------------

DEEDS: dict[str, Callable[[Any], None]] = {
    "error": partial(fail, ValueError),
    "interrupt": partial(fail, KeyboardInterrupt),
    "exit": partial(fail, SystemExit),
    "end of iteration": partial(fail, StopIteration),
    "stop": set_stop,
}
PARTS = 12


def acting(act: tuple[str, int, Callable[[Any], None]] | None = None) -> Case:
    made = make_case(
        {"callbacks": "checkpoint, steps", "accumulation": "3", "validation": "2", "calls": "fit, all"}
    )
    made.trainer["max_epochs"] = 2
    made.act = act
    return made


@cache
def calls(folder: Path) -> dict[str, int]:
    """How often each hook is called."""
    return dict(Counter(entry.label for entry in run(acting(), install_stock, folder).entries))


ALL_DEEDS = [pytest.param(slice(part, None, PARTS), marks=pytest.mark.long) for part in range(PARTS)]


@pytest.mark.parametrize("step", [slice(0, None, 193), *ALL_DEEDS])
@pytest.mark.timeout(1200)
def test_a_deed_in_a_hook(step: slice, tmp_path: Path) -> None:
    folder, failures = tmp_path / "run", []
    for deed, hook in [(deed, hook) for hook in calls(folder) for deed in DEEDS][step]:
        act = (hook, (calls(folder)[hook] + 1) // 2, DEEDS[deed])
        stock, ours = (run(acting(act), one, folder) for one in (install_stock, install_ours))
        if found := differences(stock, ours, ALLOWED):
            failures.append(f"{deed} in {hook}\n" + "\n".join(found[:5]))
    assert not failures, "\n\n".join(failures)


# -- controls: loops with a fault in them are told from Lightning's ------------------------------------------


class WrongStep(_TrainingEpochLoop):
    """Within one hook the global step is one behind."""

    behind = False

    @property
    def global_step(self) -> int:
        return super().global_step - self.behind

    def advance(self, data_fetcher: Any) -> None:
        kept = self.trainer.lightning_module.on_train_batch_end

        def behind(*args: Any) -> Any:
            self.behind = True
            try:
                return kept(*args)
            finally:
                self.behind = False

        self.trainer.lightning_module.on_train_batch_end = behind
        super().advance(data_fetcher)
        del self.trainer.lightning_module.on_train_batch_end


class SkippedHook(_FitLoop):
    """Only callbacks hear of the end of an epoch."""

    def on_advance_end(self) -> None:
        kept = call._call_lightning_module_hook
        call._call_lightning_module_hook = lambda trainer, hook, *args, **kwargs: (
            None if hook == "on_train_epoch_end" else kept(trainer, hook, *args, **kwargs)
        )
        try:
            super().on_advance_end()
        finally:
            call._call_lightning_module_hook = kept


class ExtraDraw(_TrainingEpochLoop):
    """A random number is drawn that nothing needs."""

    def on_run_start(self, data_fetcher: Any) -> None:
        torch.rand(1)
        super().on_run_start(data_fetcher)


@pytest.mark.parametrize(
    ("cls", "row", "telling"),
    [
        (WrongStep, {}, "sees .global_step"),
        (SkippedHook, {}, "order"),
        (ExtraDraw, {}, "sees .random"),
        (ExtraDraw, {"observer": "none", "accumulation": "3"}, "end: "),
    ],
)
def test_a_fault_is_found(cls: type[Any], row: Row, telling: str, tmp_path: Path) -> None:
    def install(trainer: L.Trainer) -> None:
        install_stock(trainer)
        for loop in (trainer.fit_loop, trainer.fit_loop.epoch_loop):
            if issubclass(cls, type(loop)):
                loop.__class__ = cls

    stock, faulty = (run(make_case(row), one, tmp_path / "run") for one in (install_stock, install))
    found = differences(stock, faulty)
    assert any(line.startswith(telling) for line in found), found


@pytest.mark.long
def test_lightning_is_equal_to_itself(tmp_path: Path) -> None:
    """What is compared does not depend on time, addresses, or on what ran before."""
    row = {"observer": "all", "logs": "everywhere", "length": "max_steps", "calls": "fit, all"}
    first, second = (run(make_case(row), install_stock, tmp_path) for _ in range(2))
    assert first.end["error"] is None
    assert not differences(first, second)


# -- two ranks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [["short"], pytest.param([name for name in CASES if name != "short"], marks=pytest.mark.long)]
)
@pytest.mark.timeout(1000)
def test_two_ranks(names: list[str], tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    places = [tmp_path / f"rank {rank}" for rank in (0, 1)]
    with ExitStack() as stack:
        ranks = [stack.enter_context(Forks(**store, RANK=str(rank), LOCAL_RANK=str(rank))) for rank in (0, 1)]
        for one, place in zip(ranks, places, strict=True):
            place.mkdir()
            one.start(str(tmp_path), *names, cwd=place, module="tests.loop.parity_rank")
        ended = [one.wait().code for one in ranks]
    assert ended == [0, 0], [(place / "output.txt").read_text() for place in places]
    for name in names:
        for rank in (0, 1):
            how, *found = (tmp_path / f"{name}.{rank}").read_text(encoding="utf-8").splitlines()
            if CASES[name].get("observer") != "none":
                assert int(how.split()[0]) > 100
            assert how.endswith("None")
            assert not found, (name, rank, found)
