"""Each shipped experiment reaches the score that its head comment promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

from assay.run.train import train
from assay_explain.listing import list_options

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from assay.run.result import RunResult

SCORES = {
    "digits_image": ("test/accuracy", 0.98),
    "breast_cancer_binary": ("test/accuracy", 0.94),
    "diabetes_regression": ("test/r2", 0.22),
    "digits_longtail": ("test/accuracy", 0.86),
    "digits_embedding": ("test/one_nn", 0.975),
    "wine_multitask": ("test/wine/accuracy", 0.94),
    "digits_distillation": ("test/accuracy", 0.96),
    "text_topics": ("test/accuracy", 0.79),
    "digits_segmentation": ("test/mean_iou", 0.85),
    "digits_simclr": ("test/one_nn", 0.92),
}
"""A little below the lowest of the seeds that the head comments speak of."""
DOWNLOADED = {"cifar10_cpu", "cifar10_fast"}
"""Of data that is not there: tests/experiment/test_small_jobs.py trains them small."""
MOST = {"stdlib_gpt": ("test/bits_per_byte", 2.16), "digits_autoencoder": ("test/mse", 3.1)}
"""A little above the highest of the seeds, where lower is better."""


class Experiment(Protocol):
    """Trains an experiment to its end; see the fixture `experiment`."""

    def __call__(self, name: str) -> RunResult: ...


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """Each is trained once: the teacher's is one of them."""
    done: dict[str, RunResult] = {}

    def trained(name: str) -> RunResult:
        if name not in done:
            extra = []
            if name == "digits_distillation":
                extra.append(f"augment.model.run={trained('digits_image').run_dir}")
            run_dir = tmp_path_factory.mktemp(name) / "run"
            done[name] = train([f"experiment={name}", f"hydra.run.dir={run_dir}", *extra])
        return done[name]

    return trained


def test_every_experiment_has_a_score() -> None:
    assert {option.name for option in list_options("experiment")} == {*SCORES, *MOST, *DOWNLOADED}


LONG = {
    *("digits_distillation", "digits_embedding", "digits_image", "digits_longtail", "digits_segmentation"),
    *("digits_autoencoder", "digits_simclr", "stdlib_gpt", "text_topics", "wine_multitask"),
}


def marked(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in sorted(names)]


@pytest.mark.parametrize("name", marked(SCORES))
def test_score(name: str, experiment: Experiment) -> None:
    result = experiment(name)
    metric, least = SCORES[name]
    assert result.status == "finished"
    assert result.metrics[metric] >= least


@pytest.mark.parametrize("name", marked(MOST))
def test_a_score_that_is_better_the_lower_it_is(name: str, experiment: Experiment) -> None:
    result = experiment(name)
    metric, most = MOST[name]
    assert result.status == "finished"
    assert result.metrics[metric] <= most


@pytest.mark.long
def test_distillation_beats_the_same_student_alone(tmp_path: Path, experiment: Experiment) -> None:
    student = ["model=mlp", "model.hidden=[16]", "optimizer.lr=0.01", "trainer.max_epochs=60"]
    alone = train([*student, f"hydra.run.dir={tmp_path / 'alone'}"])
    assert experiment("digits_distillation").metrics["test/accuracy"] > alone.metrics["test/accuracy"]
