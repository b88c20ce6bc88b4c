"""What is asked of Lightning in fewer words gives what Lightning's own words give."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import Logger
from tests.loop.small_fit import Line, batches, fit
from typing_extensions import override

from assay.loop.lightning_internals import lean_hook, next_of, single_iterator, validation_is_due


class Validating(Line):
    """Has a validation, too."""

    @override
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val", torch.zeros(()))


@pytest.mark.parametrize(
    "options",
    [
        *({"val_check_interval": every, "check_val_every_n_epoch": n} for every in (2, 0.5) for n in (1, 2)),
        *({"val_check_interval": 4, "check_val_every_n_epoch": None}, {"val_check_interval": "00:00:00:01"}),
        *({}, {"limit_train_batches": 5}, {"limit_val_batches": 0}),
    ],
    ids=str,
)
@pytest.mark.parametrize("stops", [False, True])
def test_validation_is_due_when_lightning_says_so(options: dict[str, Any], stops: bool) -> None:
    answers: list[tuple[bool, bool]] = []

    def ask(trainer: Any, *_: Any) -> None:
        loop = trainer.fit_loop.epoch_loop
        fetcher = trainer.fit_loop._data_fetcher
        due, expected = validation_is_due(loop, fetcher), loop._should_check_val_fx(fetcher)
        answers.append((due, expected))
        trainer.should_stop = stops and loop.batch_idx == 2 and trainer.current_epoch == 1

    limits: dict[str, Any] = {"max_epochs": 2, **options}
    fit(Validating(), LambdaCallback(on_train_batch_end=ask), val=batches(12), **limits)
    assert len(answers) >= 8
    assert all(due == expected for due, expected in answers)
    assert any(due for due, _ in answers) or "limit_val_batches" in options or "00" in str(options)


def test_batches_of_one_loader_are_those_of_its_fetcher() -> None:
    seen: list[Any] = []

    def take(trainer: Any, *_: Any) -> None:
        fetcher = trainer.fit_loop._data_fetcher
        iter(fetcher)
        iterator = single_iterator(fetcher)
        assert iterator is not None
        for number in itertools.count(1):
            try:
                seen.append(next_of(iterator, fetcher))
            except StopIteration:
                break
            assert (fetcher.fetched, fetcher.done) == (number, number == 6)
        trainer.should_stop = True
        iter(fetcher)

    fit(Line(), LambdaCallback(on_train_start=take))
    assert all(torch.equal(one[0], other[0]) for one, other in zip(seen, batches(), strict=True))
    several: list[Any] = []
    look = LambdaCallback(
        on_train_batch_end=lambda trainer, *_: several.append(single_iterator(trainer.fit_loop._data_fetcher))
    )
    with pytest.raises(KeyError):  # the module takes one batch, not a mapping of two
        fit(Line(), look, train={"a": batches(), "b": batches()})


class Rows(Logger):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []

    @property
    @override
    def name(self) -> str:
        return "rows"

    @property
    @override
    def version(self) -> str:
        return ""

    @override
    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        pass

    @override
    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.rows.append((step, dict(metrics)))


class Plain(LearningRateMonitor):
    """Its hook is another function, so that it is called in each step."""

    @override
    def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
        super().on_train_batch_start(*args, **kwargs)


@pytest.mark.parametrize("every", [1, 4, 50])
@pytest.mark.parametrize("interval", [None, "step", "epoch"])
def test_learning_rates_are_logged_as_if_it_were_asked_in_each_step(every: int, interval: Any) -> None:
    given = []
    for kind in (LearningRateMonitor, Plain):
        logger = Rows()
        fit(Line(), kind(interval), logger=logger, log_every_n_steps=every, max_epochs=2)
        given.append(logger.rows)
    assert given[0] == given[1]
    assert len(given[0]) == {None: 12 // every + 2, "step": 12 // every, "epoch": 2}[interval]


def test_a_checkpoint_by_the_epoch_is_not_asked_in_each_step() -> None:
    class Own(ModelCheckpoint):
        @override
        def on_train_batch_end(self, *_: Any) -> None:
            pass

    hook = "on_train_batch_end"
    by_epoch, by_step, own = ModelCheckpoint(), ModelCheckpoint(every_n_train_steps=3), Own()
    assert lean_hook(by_epoch, hook, by_epoch.on_train_batch_end) is None
    assert lean_hook(by_step, hook, by_step.on_train_batch_end) == by_step.on_train_batch_end
    assert lean_hook(own, hook, own.on_train_batch_end) == own.on_train_batch_end
    assert lean_hook(by_epoch, "on_validation_end", by_epoch.on_validation_end) is not None
