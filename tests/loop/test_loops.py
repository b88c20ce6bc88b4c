"""Steps against the loop that anybody would write, and callbacks and modules that come later."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, LambdaCallback
from tests.callbacks.quiet_trainer import quiet_trainer
from tests.conftest import unchanged_process
from tests.interrupting import Told
from tests.loop.small_fit import Line, batches, by_hand, fit, same_weights
from torch.utils.data import DataLoader
from typing_extensions import override

from assay.assemble.trainer import silence_lightning
from assay.errors import AssayError
from assay.loop.fit_loop import FitLoop, install
from assay.run.resume import resume
from assay_serve.evaluate import evaluate

if TYPE_CHECKING:
    from tests.conftest import Train


@pytest.mark.parametrize("accumulate", [1, 3])
def test_weights_are_those_of_a_loop_by_hand(accumulate: int) -> None:
    module = Line()
    trainer = fit(module, accumulate_grad_batches=accumulate)
    assert trainer.global_step == 6 // accumulate
    assert same_weights(module, by_hand(trainer.global_step, accumulate))


class Forgetful(Line):
    """Its optimizer_step calls nothing."""

    @override
    def optimizer_step(self, *_: Any, **__: Any) -> None:
        pass


def test_a_closure_that_is_not_called_is_told() -> None:
    with pytest.raises(MisconfigurationException, match="closure hasn't been executed"):
        fit(Forgetful())


def test_a_hook_of_torch_that_comes_late_is_called_before_the_closure_as_lightning_has_it() -> None:
    seen: list[str] = []
    module = Line()

    def begin(trainer: Any, _: Any, __: Any, batch_idx: int) -> None:
        seen.append(f"batch {batch_idx}")
        if batch_idx == 1:
            trainer.optimizers[0].register_step_pre_hook(lambda *_: seen.append("hook"))

    look = LambdaCallback(on_train_batch_start=begin, on_before_backward=lambda *_: seen.append("backward"))
    fit(module, look, limit_train_batches=3)
    assert seen == ["batch 0", "backward", "batch 1", "hook", "backward", "batch 2", "hook", "backward"]
    assert same_weights(module, by_hand(3))


class LoggingGradients(Line):
    """Logs from within the backward pass, through a hook of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.net.weight.register_hook(self.log_gradient)  # type: ignore[no-untyped-call]  # torch left it untyped

    def log_gradient(self, gradient: torch.Tensor) -> None:
        self.seen.append(self._current_fx_name)
        self.log("gradient", gradient.norm())


def test_a_hook_of_a_tensor_may_log() -> None:
    module = LoggingGradients()
    trainer = fit(module)
    assert module.seen == ["backward"] * 6
    assert trainer.callback_metrics["gradient"] > 0


class Validating(Line):
    """Has a validation, too; notes what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    @override
    def validation_step(self, *given: Any) -> None:
        self.seen.append(len(given))


@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_validation_batch_end", "on_before_backward"])
def test_a_callback_that_comes_in_an_epoch_is_called_from_the_next_batch_on(hook: str) -> None:
    seen: list[int] = []
    late = LambdaCallback(
        on_train_batch_start=lambda *given: seen.append(given[3]),
        on_before_zero_grad=lambda *_: seen.append(-1),
    )

    def bring(trainer: Any, *_: Any) -> None:
        if late not in trainer.callbacks and trainer.fit_loop.epoch_loop.batch_idx == 3:
            trainer.callbacks.append(late)

    brings: Callback = LambdaCallback(**{hook: bring})
    fit(Validating(), brings, val=batches(12), val_check_interval=2)
    assert seen == [4, -1, 5, -1]


@pytest.mark.filterwarnings("ignore:train_dataloader yielded None:UserWarning")
def test_a_batch_that_is_none_is_skipped() -> None:
    first, *rest = batches()
    module, outputs = Line(), []
    module.on_train_batch_end = lambda given, *_: outputs.append(given)  # type: ignore[method-assign]
    samples: Any = [first, None, *rest]
    trainer = fit(module, train=DataLoader(samples, None, collate_fn=lambda sample: sample))
    assert trainer.global_step == 6
    assert [number for number, given in enumerate(outputs) if given is None] == [1]
    assert same_weights(module, by_hand(6))


def test_a_step_that_reads_its_batches_itself_is_refused() -> None:
    class FromIterator(Line):
        def training_step(self, dataloader_iter: Any) -> Any:  # type: ignore[override]
            return super().training_step(*next(dataloader_iter)[:2])

    refused = pytest.raises(AssayError, match="dataloader_iter is not supported")
    with refused, pytest.warns(UserWarning, match="experimental"):
        fit(FromIterator())


def test_another_module_is_asked_anew_what_its_step_takes() -> None:
    class Short(Validating):
        @override
        def validation_step(self, batch: Any) -> None:
            super().validation_step(batch)

    with silence_lightning():
        trainer = quiet_trainer()
        install(trainer)
        for module, number in ((Validating(), 2), (Short(), 1), (Validating(), 2)):
            trainer.validate(module, batches(12), verbose=False)
            assert module.seen == [number]


class Wide(Line):
    """Makes a tensor of 16 MB, or somewhat more, in each step and keeps a small one; notes what that took."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[int] = []
        self.resident: list[int] = []
        self.kept: list[torch.Tensor] = []

    @override
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
        self.resident.append(psutil.Process().memory_info().rss >> 20)
        wide = self.net(batch[0]).expand(-1, 2**21 + 1000 * len(self.faults)) + 1
        self.kept.append(torch.ones(37 * len(self.faults) % 600))
        return wide.mean()


def train_wide() -> None:
    module = Wide()
    fit(module, max_epochs=40)
    print(json.dumps([module.faults, module.resident]))


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_memory_of_a_step_is_reused_by_the_next_one() -> None:
    """In a process of its own: what others have allocated and freed changes where tensors go."""
    code = "import assay; from tests.loop.test_loops import train_wide; train_wide()"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    faults, resident = json.loads(done.stdout.splitlines()[-1])
    assert len(faults) == 240
    assert faults[-1] - faults[40] < 200 * 250  # of 4,096 pages a step
    assert resident[-1] - resident[120] < 64  # MB: it does not grow


JOB = (
    *("data=iris", "model=linear", "trainer.max_epochs=3", "callbacks=[checkpoint,last_checkpoint]"),
    *("trainer._target_=own_project.loops.OwnTrainer", "trusted_packages=[own_project]"),
)


def test_it_is_told_at_its_start_and_by_resume(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "training" / "project"))
    stopped = train(*JOB, callbacks=[Told(5)])
    assert not isinstance(stopped.trainer.fit_loop, FitLoop)
    assert "note: OwnTrainer has custom loops: a run that is stopped" in (
        stopped.run_dir / "log.txt"
    ).read_text(encoding="utf-8")
    assert stopped.record["status"] == "interrupted"
    with chdir(stopped.run_dir.parent), unchanged_process():
        with pytest.raises(
            AssayError, match="holds no position to continue from: it is from a trainer with other loops"
        ):
            resume(stopped.run_dir, trusted_packages=["own_project"])
        tested = evaluate(stopped.run_dir, trusted_packages=["own_project"])
    assert 0 <= tested.metrics["test/accuracy"] <= 1
