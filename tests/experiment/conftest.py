"""Small runs of every kind of job, each trained once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest
from tests.experiment.small_jobs import words, write_texts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lightning.pytorch.callbacks import Callback
    from tests.conftest import Train, Trained


class Small(Protocol):
    """Trains a small job; see the fixture `small`."""

    def __call__(self, name: str, *more: str, callbacks: Sequence[Callback] = ()) -> Trained: ...

    def words(self, name: str) -> list[str]:
        """What is typed for the job."""
        ...


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    write_texts(folder)
    return folder


class _Small:
    def __init__(self, train: Train, texts: Path) -> None:
        self._train, self._texts = train, texts
        self._done: dict[str, Trained] = {}

    def __call__(self, name: str, *more: str, callbacks: Sequence[Callback] = ()) -> Trained:
        if more or callbacks:
            return self._train(*self.words(name), *more, callbacks=callbacks)
        if name not in self._done:
            self._done[name] = self._train(*self.words(name))
        return self._done[name]

    def words(self, name: str) -> list[str]:
        teacher = {"digits_image": self("digits_image").run_dir} if name == "digits_distillation" else {}
        return words(name, folder=self._texts, **teacher)


@pytest.fixture(scope="session")
def small(train: Train, texts: Path) -> Small:
    """The run of a job, which is trained once; anew where more words or callbacks are given."""
    return _Small(train, texts)
