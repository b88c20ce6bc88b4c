"""What was typed for a run, by key, and when two values are the same."""

from __future__ import annotations

from pathlib import Path

from assay.analysis.run import Run, is_config, same_value, typed_values


def test_what_was_typed() -> None:
    typed = ["model=mlp", "++optimizer.lr=0.1", "~scheduler", "a='x=y'", "hydra/launcher=ray", "model=linear"]
    assert typed_values(typed) == {"model": "linear", "optimizer.lr": "0.1", "scheduler": "~", "a": "x=y"}


def test_what_makes_a_configuration() -> None:
    assert [
        is_config(key) for key in ("seed", "fold", "name", "tags", "run_dir", "sweep", "spec.num_train")
    ] == [False] * 7
    assert is_config("data.seed")


def test_the_same_value() -> None:
    assert same_value("[1,2]", [1, 2])
    assert same_value(None, "null")
    assert not same_value("1", "true")


def test_the_best_checkpoints_score_counts() -> None:
    run = Run(Path("x"), "finished", metrics={"a": 1.0, "b": 2.0}, best={"monitor": "a", "value": 0.5})
    assert (run.score("a"), run.score("b"), run.score("c")) == (0.5, 2.0, None)
