"""A run that a limit cut off within an epoch, trained longer, ends as one of that length, bit for bit."""

from __future__ import annotations

import csv
import multiprocessing
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.tuner.tuning import Tuner
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from tests.callbacks.quiet_trainer import quiet_trainer
from tests.interrupting import outcome
from tests.loop.small_fit import INPUTS, TARGETS, Line, batches, by_hand, fit, same_weights
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate
from typing_extensions import override

from assay.assemble.trainer import silence_lightning
from assay.callbacks.lr_monitor import LRMonitor
from assay.callbacks.progress_bar import ProgressBar
from assay.data.core.seeded_loader import seed_loaders
from assay.errors import AssayError
from assay.loop.fit_loop import install
from assay.run.resume import resume

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Train

JOB = (
    *("data=iris", "model=mlp", "data.batch_size=16", "scheduler=none", "baseline=none", "optimizer.lr=0.01"),
    *("trainer.max_epochs=3", "callbacks=[checkpoint,last_checkpoint,lr_monitor]"),
)
KINDS = {
    "plain": (),
    "accumulating": ("trainer.accumulate_grad_batches=2",),
    "validations": ("trainer.val_check_interval=2", "scheduler=plateau", "scheduler.patience=0"),
    "each_step": ("scheduler=step", "scheduler.step_size=2", "scheduler.interval=step"),
    "average": ("callbacks=[checkpoint,last_checkpoint,ema]", "callbacks.ema.decay=0.9"),
}


def same_training(one: Path, other: Path) -> bool:
    """All but what the shorter run, which is validated at its end, has shown and saved there."""
    names = ("state_dict", "optimizer_states", "lr_schedulers")
    first, second = outcome(one), outcome(other)
    return rows(one) == rows(other) and all(first.get(name) == second.get(name) for name in names)


def rows(run_dir: Path) -> list[dict[str, str]]:
    """Of training."""
    with (run_dir / "metrics.csv").open(newline="") as file:
        every = [{name: value for name, value in row.items() if value} for row in csv.DictReader(file)]
    return [row for row in every if not any(name.startswith(("val/", "test/")) for name in row)]


@pytest.mark.always("accumulating", "validations")
@pytest.mark.parametrize("kind", KINDS)
def test_more_steps_end_as_a_run_of_that_length(train: Train, kind: str) -> None:
    """An epoch has seven batches."""
    job = (*JOB, *KINDS[kind])
    whole = train(*job, "trainer.max_steps=6").run_dir
    cut = train(*job, "trainer.max_steps=3").run_dir
    assert not same_training(whole, cut)
    assert resume(cut, ["trainer.max_steps=6"]).status == "finished"
    assert same_training(whole, cut)


def test_more_epochs_after_an_early_stop_within_one(train: Train) -> None:
    job = (*JOB, "trainer.val_check_interval=2", "callbacks=[checkpoint,last_checkpoint,early_stopping]")
    stop = ("callbacks.early_stopping.patience=1", "callbacks.early_stopping.min_delta=1.0")
    whole = train(*job, "callbacks.early_stopping.patience=100", stop[1]).run_dir
    cut = train(*job, *stop).run_dir
    with pytest.raises(AssayError, match="early stopping ended this run") as refused:
        resume(cut, ["trainer.max_epochs=5"])
    assert "callbacks.early_stopping.patience=" in str(refused.value.hint)
    result = resume(cut, ["callbacks.early_stopping.patience=100"])
    assert result.status == "finished"
    assert same_training(whole, cut)


class Stops(Callback):
    """Asks for the end of training after some steps."""

    def __init__(self, step: int) -> None:
        self.step = step

    @override
    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        trainer.should_stop = trainer.should_stop or trainer.global_step == self.step


@pytest.mark.parametrize("limit", [{"max_steps": 2}, {"callbacks": Stops(2)}])
def test_the_rest_of_the_epoch_is_trained(tmp_path: Path, limit: dict[str, Any]) -> None:
    options = dict(limit)
    stops = [options.pop("callbacks")] if "callbacks" in options else []
    trainer = fit(Line(), *stops, **options, max_epochs=2)
    assert trainer.current_epoch == 1, "as Lightning has it"
    trainer.save_checkpoint(tmp_path / "cut.ckpt")
    module: Any = Line()
    seen: list[tuple[int, int]] = []
    module.on_train_batch_start = lambda _, index: seen.append((module.current_epoch, index))
    resumed = fit(module, ckpt_path=tmp_path / "cut.ckpt", max_epochs=2)  # a plain loader begins anew
    assert resumed.global_step == (2 if stops else 12)
    assert seen == ([] if stops else [(0, 2), (0, 3), (0, 4), (0, 5), *((1, batch) for batch in range(6))])
    assert not stops or same_weights(module, by_hand(2))


def test_a_step_of_fewer_batches_is_their_mean() -> None:
    """Six batches, four a step: two are left for the last one."""
    module, reference = Line(), Line()
    optimizer: Any = reference.configure_optimizers()
    for window in (range(4), range(4, 6)):
        losses = []
        for inputs, targets in [batch for index, batch in enumerate(batches()) if index in window]:
            losses.append(nn.functional.mse_loss(reference.net(inputs), targets))
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]  # torch left it untyped
        optimizer.step()
    expected = reference.state_dict()
    for data in (batches(), _Endless()):
        module = Line()
        assert fit(module, train=data, accumulate_grad_batches=4).global_step == 2
        for name, value in module.state_dict().items():
            assert torch.allclose(value, expected[name], atol=1e-6, rtol=0)


class _Endless:
    """Batches of unknown number."""

    def __iter__(self) -> Iterator[Any]:
        yield from batches()


class Stream(IterableDataset[Any]):
    """Counts how often it is read."""

    opened = 0

    @override
    def __iter__(self) -> Iterator[Any]:
        Stream.opened += 1
        yield from batches()


def test_a_stream_is_opened_once_when_a_run_goes_on(tmp_path: Path) -> None:
    fit(Line(), train=DataLoader(Stream(), batch_size=None)).save_checkpoint(tmp_path / "end.ckpt")
    Stream.opened = 0
    resumed = fit(
        Line(), train=DataLoader(Stream(), batch_size=None), max_epochs=2, ckpt_path=tmp_path / "end.ckpt"
    )
    assert (resumed.global_step, Stream.opened) == (12, 1)


class Passes:
    """Orders its batches by the number of its pass, which is its state."""

    def __init__(self) -> None:
        self.passes = 0
        self.orders: list[int] = []

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[Any]:
        self.orders.append(self.passes)
        self.passes += 1
        yield from batches()

    def state_dict(self) -> dict[str, int]:
        return {"passes": self.passes}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.passes = state["passes"]


@pytest.mark.parametrize("saver", [None, ModelCheckpoint])
def test_a_loader_goes_on_from_its_own_state(tmp_path: Path, saver: Any) -> None:
    def savers() -> list[Callback]:
        return [] if saver is None else [saver(dirpath=tmp_path, filename="end")]

    path, saves = tmp_path / "end.ckpt", saver is not None
    first = fit(Line(), *savers(), train=Passes(), enable_checkpointing=saves)
    if not saves:
        first.save_checkpoint(path)
    loader = Passes()
    fit(Line(), *savers(), train=loader, max_epochs=3, ckpt_path=path, enable_checkpointing=saves)
    assert loader.orders == [1, 2]


def test_the_epoch_is_known_when_training_starts_again(tmp_path: Path) -> None:
    saver = ModelCheckpoint(dirpath=tmp_path, filename="end")
    fit(Line(), saver, enable_checkpointing=True)
    module, seen = Line(), []
    module.on_train_start = lambda: seen.append((module.current_epoch, module.global_step))  # type: ignore[method-assign]
    saver = ModelCheckpoint(dirpath=tmp_path, filename="end")
    path = tmp_path / "end.ckpt"
    trainer = fit(module, saver, max_epochs=2, ckpt_path=path, enable_checkpointing=True)
    assert trainer.current_epoch == 2
    assert seen == [(1, 6)]


class Pickles(Callback):
    """Pickles the trainer, as a datamodule does whose workers are spawned with a method of its own."""

    copies = 0

    @override
    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        copy = pickle.loads(pickle.dumps(trainer))  # noqa: S301 - our own
        assert copy.global_step == trainer.global_step
        Pickles.copies += 1


def test_a_trainer_is_pickled_while_it_trains() -> None:
    fit(Line(), Pickles(), max_epochs=2)
    assert Pickles.copies == 12


def test_the_process_that_spawned_the_others_saves_a_checkpoint(tmp_path: Path) -> None:
    with silence_lightning():
        trainer = quiet_trainer(strategy="ddp_spawn", devices=2)
    install(trainer)
    module = Line()
    trainer.strategy.connect(module)
    trainer.save_checkpoint(tmp_path / "after.ckpt")
    saved = torch.load(tmp_path / "after.ckpt", weights_only=True)
    assert torch.equal(saved["state_dict"]["net.weight"], module.net.weight)


class WithoutGradients(torch.optim.SGD):
    """Calls the closure with gradients switched off, as Adafactor of transformers does."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = closure()
        super().step()
        return loss


def test_an_optimizer_may_call_the_closure_without_gradients() -> None:
    module = Line()
    module.configure_optimizers = lambda: WithoutGradients(module.parameters(), lr=0.1)  # type: ignore[method-assign]
    fit(module, max_steps=4)
    assert same_weights(module, by_hand(4))


@pytest.mark.parametrize("rate", [None, 0.1])
def test_rates_are_logged_where_the_optimizer_has_them(tmp_path: Path, rate: float | None) -> None:
    module = Line()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    optimizer.param_groups[0]["lr"] = rate
    optimizer.step = lambda closure=None: closure()  # type: ignore[method-assign]  # it chooses its rate itself
    module.configure_optimizers = lambda: optimizer  # type: ignore[method-assign]
    logger = CSVLogger(str(tmp_path), flush_logs_every_n_steps=1)
    trainer = fit(module, LRMonitor("step"), logger=logger, log_every_n_steps=1)
    assert trainer.callback_metrics == ({} if rate is None else {"lr-SGD": torch.tensor(rate)})


def test_loaders_one_after_another_are_refused() -> None:
    with pytest.raises(ValueError, match="sequential"):
        fit(Line(), train=CombinedLoader([batches(), batches()], "sequential"))


def test_workers_end_with_training() -> None:
    before = len(multiprocessing.active_children())
    fit(Line(), train=DataLoader(TensorDataset(INPUTS, TARGETS), 2, num_workers=1))
    assert len(multiprocessing.active_children()) == before


class Collating(L.LightningDataModule):
    """Its workers take a method of it, and with it all that it holds."""

    def collate(self, samples: list[Any]) -> Any:
        return default_collate(samples)

    def _loader(self) -> DataLoader[Any]:
        rows = TensorDataset(INPUTS, TARGETS)
        options: Any = {"num_workers": 1, "multiprocessing_context": "forkserver"}
        return DataLoader(rows, 2, collate_fn=self.collate, **options)

    train_dataloader = val_dataloader = _loader


class Validated(Line):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Scores nothing; its worker starts while that of training is alive."""


def test_workers_of_a_fork_server_take_a_method_of_the_datamodule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))  # theirs is this process's
    multiprocessing.set_forkserver_preload(["lightning.pytorch"])  # once, and not in each worker
    data = Collating()
    seed_loaders(data, 0)
    with silence_lightning():
        trainer = quiet_trainer(ProgressBar(), enable_progress_bar=True, max_epochs=1, num_sanity_val_steps=0)
        install(trainer)
        module = Validated()
        trainer.fit(module, data)
    assert same_weights(module, by_hand(6))


def test_rates_are_searched_twice_from_the_same_start() -> None:
    with silence_lightning():
        module = Line()
        module.lr = 0.1  # type: ignore[assignment]  # what the tuner looks for
        trainer = quiet_trainer(max_epochs=2)
        install(trainer)
        losses = []
        for _ in range(2):
            finder: Any = Tuner(trainer).lr_find(module, batches(), num_training=8, update_attr=False)
            losses.append(finder.results["loss"])
    assert len(losses[0]) > 6, "more than an epoch"
    assert losses[0] == losses[1]


class Saves(Callback):
    """Saves in the middle of a step."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @override
    def on_before_optimizer_step(self, trainer: L.Trainer, *_: Any) -> None:
        trainer.save_checkpoint(self.path)


def test_a_checkpoint_of_half_a_step_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "half.ckpt"
    fit(Line(), Saves(path))
    with pytest.raises(AssayError, match="holds no position to continue from"):
        fit(Line(), max_epochs=2, ckpt_path=path)
