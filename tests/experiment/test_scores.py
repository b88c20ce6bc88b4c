"""Each shipped experiment reaches the score that its head comment promises."""

from pathlib import Path

import pytest

from assay.compose.options import list_options
from assay.run.train import train

SCORES = {
    "digits_image": ("test/accuracy", 0.98),
    "breast_cancer_binary": ("test/accuracy", 0.94),
    "diabetes_regression": ("test/r2", 0.22),
    "digits_longtail": ("test/accuracy", 0.86),
    "digits_embedding": ("test/one_nn", 0.975),
    "digits_distillation": ("test/accuracy", 0.96),
}
"""A little below the lowest of the seeds that the head comments speak of."""


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("teacher") / "run"
    train(["experiment=digits_image", f"hydra.run.dir={run_dir}"])
    return run_dir


def test_every_experiment_has_a_score() -> None:
    assert {option.name for option in list_options("experiment")} == set(SCORES)


@pytest.mark.parametrize("name", sorted(SCORES))
def test_score(name: str, tmp_path: Path, teacher: Path) -> None:
    extra = [f"augment.model.run={teacher}"] if name == "digits_distillation" else []
    result = train([f"experiment={name}", f"hydra.run.dir={tmp_path / 'run'}", *extra])
    metric, least = SCORES[name]
    assert result.status == "finished"
    assert result.metrics[metric] >= least


def test_distillation_beats_the_same_student_alone(tmp_path: Path, teacher: Path) -> None:
    student = ["model=mlp", "model.hidden=[16]", "optimizer.lr=0.01", "trainer.max_epochs=60"]
    alone = train([*student, f"hydra.run.dir={tmp_path / 'alone'}"])
    taught = train(
        [
            "experiment=digits_distillation",
            f"augment.model.run={teacher}",
            f"hydra.run.dir={tmp_path / 'taught'}",
        ]
    )
    assert taught.metrics["test/accuracy"] > alone.metrics["test/accuracy"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_default_run_over_several_seeds(seed: int, tmp_path: Path) -> None:
    result = train([f"seed={seed}", f"hydra.run.dir={tmp_path / 'run'}"])
    assert result.metrics["test/accuracy"] >= 0.98
