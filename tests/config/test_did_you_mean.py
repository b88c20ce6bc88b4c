from __future__ import annotations

import pytest

from assay.config.did_you_mean import did_you_mean, named


@pytest.mark.parametrize(
    ("word", "known", "guess"),
    [
        ("sdg", ["adam", "sgd"], "did you mean 'sgd'?"),
        ("val/acc", ["val/auroc", "val/accuracy"], "did you mean 'val/accuracy'?"),
        ("lr", ["lr_decay", "lr2"], "did you mean 'lr2'?"),
        ("nothing", ["adam", "sgd"], ""),
        ("", ["adam"], ""),
        ("x", [], ""),
    ],
)
def test_guess(word: str, known: list[str], guess: str) -> None:
    assert did_you_mean(word, known) == guess


def test_few_names_are_all_told_in_their_order() -> None:
    assert named(["b", "a"], "a") == "b, a"


def test_of_many_names_the_nearest_are_told() -> None:
    names = [f"alpha{n:02d}" for n in range(40)] + ["beta"]
    told = named(names, "beta")
    assert "beta" in told
    assert told.endswith("… (41 in all)")
    assert told.count(", ") == 12
