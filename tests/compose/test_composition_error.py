from __future__ import annotations

import pytest

from assay.compose.compose import compose
from assay.errors import ConfigError


@pytest.mark.parametrize(
    ("typed", "key", "message", "hint"),
    [
        ("optimizr.lr=1", "optimizr.lr", "did you mean 'optimizer.lr'?", ""),
        ("data.bach_size=1", "data.bach_size", "did you mean 'data.batch_size'?", "data has: "),
        ("trainer.zzz=1", "trainer.zzz", "there is no such key", "in all"),
        ("optimizer=null", "optimizer", "null is none", "choose from: adagrad"),
        ("augment=null", "augment", "null is none", "without: ~augment"),
        ("optimizer.lr", "optimizer.lr", "has no value", "optimizer.lr=VALUE"),
        ("optimizer.lr=1,2", "optimizer.lr", "several values", "-m optimizer.lr=1,2"),
        ("~optimizer.lr=7", "optimizer.lr", "is auto and not 7", "~optimizer.lr"),
        ("hydra/sweeper/pruner=median", "hydra/sweeper/pruner", "belongs to", "hydra/sweeper=optuna"),
        ("name=${nowhere}", "name", "'nowhere' not found", ""),
    ],
)
def test_key_message_and_hint(typed: str, key: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([typed])
    assert caught.value.key == key
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_two_mistakes_report_one() -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.lrr: there is no such key"):
        compose(["optimizer.lrr=1", "optimizer.xx=2"])


def test_the_cause_is_kept_for_debug() -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["optimizer=sdg"])
    assert type(caught.value.__cause__).__module__.startswith("hydra")


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("hydra/launcher=joblib", "hydra.launcher.jobs_at_once=4"),
        ("hydra/launcher=submitit_slurm", "hydra/launcher=slurm"),
        ("hydra/launcher=submitit_local", "hydra/launcher=local"),
        ("hydra/sweeper=nevergrad", "hydra/sweeper=optuna"),
        ("hydra/job_logging=colorlog", "log.txt"),
    ],
)
def test_an_option_of_a_plugin_of_hydras_says_what_does_the_same(typed: str, instead: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([typed])
    assert "there is no option" in caught.value.message
    assert instead in caught.value.hint
