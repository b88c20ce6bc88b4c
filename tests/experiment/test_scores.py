"""Each shipped experiment reaches the score that its head comment promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from assay.compose.options import list_options
from assay.run.train import train

if TYPE_CHECKING:
    from pathlib import Path

    from assay.run.result import RunResult

SCORES = {
    "digits_image": ("test/accuracy", 0.98),
    "breast_cancer_binary": ("test/accuracy", 0.94),
    "diabetes_regression": ("test/r2", 0.22),
    "digits_longtail": ("test/accuracy", 0.86),
    "digits_embedding": ("test/one_nn", 0.975),
    "digits_distillation": ("test/accuracy", 0.96),
}
"""A little below the lowest of the seeds that the head comments speak of."""


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
    assert {option.name for option in list_options("experiment")} == set(SCORES)


@pytest.mark.parametrize("name", sorted(SCORES))
def test_score(name: str, experiment: Experiment) -> None:
    result = experiment(name)
    metric, least = SCORES[name]
    assert result.status == "finished"
    assert result.metrics[metric] >= least


def test_distillation_beats_the_same_student_alone(tmp_path: Path, experiment: Experiment) -> None:
    student = ["model=mlp", "model.hidden=[16]", "optimizer.lr=0.01", "trainer.max_epochs=60"]
    alone = train([*student, f"hydra.run.dir={tmp_path / 'alone'}"])
    assert experiment("digits_distillation").metrics["test/accuracy"] > alone.metrics["test/accuracy"]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_default_run_over_several_seeds(seed: int, tmp_path: Path) -> None:
    result = train([f"seed={seed}", f"hydra.run.dir={tmp_path / 'run'}"])
    assert result.metrics["test/accuracy"] >= 0.98
