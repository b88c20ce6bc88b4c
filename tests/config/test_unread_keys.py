from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from omegaconf import DictConfig, OmegaConf

from assay.check.checker import check_job
from assay.check.signature import check_signatures
from assay.compose.compose import JobComposer, compose, job_config
from assay.config.did_you_mean import did_you_mean, guess_key
from assay.config.tree import walk
from assay.config.unread_keys import check_single_run, check_unread_keys
from assay.errors import ConfigError
from assay.targets.trust import Trust

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = (
    *("data/transform=resize", "model=resnet18", "loss=focal", "augment=mixup_or_cutmix"),
    *("callbacks=[default,ema,swa,drw,early_stopping]", "param_groups=no_decay", "logger=[csv]"),
)
ELSEWHERE = ("data.spec", "metrics.", "model")
"""Looked at when it is read, or refused by the constructor."""


def composed(*overrides: str) -> DictConfig:
    config = compose(overrides)
    OmegaConf.set_struct(config, False)
    del config["run_dir"]
    return config


@pytest.fixture(scope="module")
def whole() -> DictConfig:
    return composed(*OPTIONS)


def nodes(config: DictConfig) -> list[str]:
    found = [entry.key for entry in walk(config) if entry.is_container]
    return ["", *(key for key in found if not key.startswith("hydra") and "[" not in key)]


def refusal(config: DictConfig) -> ConfigError:
    with pytest.raises(ConfigError) as caught:  # noqa: PT012 - each of the three may be the one that sees it
        check_unread_keys(config, [])
        config.run_dir = "x"
        check_job(job_config(config))
        check_signatures(job_config(config))
    return caught.value


def test_a_key_too_many_is_seen_in_every_node(whole: DictConfig) -> None:
    looked_at = [key for key in nodes(whole) if not key.startswith(ELSEWHERE)]
    assert len(looked_at) > 35
    for node in looked_at:
        config = whole.copy()
        inner = OmegaConf.select(config, node) if node else config
        if not isinstance(inner, DictConfig):
            continue
        inner["nobody_reads"] = 1
        error = refusal(config)
        assert "nobody_reads" in f"{error.key} {error.message} {error.hint}", node


@pytest.mark.parametrize(
    "typed",
    [
        ["+width=3", "model=mlp", "model.hidden=[${width}]"],
        ["+my.lr=0.1", "+my.other=1", "optimizer.lr=${my.lr}", "optimizer.eps=${my.other}"],
        ["+mine=x", "hydra.run.dir=outputs/${mine}"],
        ["+a=x", "+b=${a}", "tags=[${b}]"],
        ["+key=lr", "+rates.lr=1", 'optimizer.lr="${rates.${key}}"'],
        ["+which=3", "optimizer.lr=${oc.select:which,0.1}"],
        ["+of.all={a:1}", "tags=${oc.dict.keys:of.all}"],
        ["+hydra.job.name=x", "tags=[${hydra:job.name}]"],
        ["+data.transform.pad=2", "data.transform.normalize={mean:[${...pad}],std:[1.0]}"],
    ],
    ids=" ".join,
)
def test_what_an_interpolation_names_is_read(typed: list[str]) -> None:
    compose(typed)


def test_every_job_of_a_sweep_is_asked(tmp_path: Path) -> None:
    from assay.compose.compose import loader

    with loader() as hydra:
        composer = JobComposer(hydra, Trust(), tmp_path)
        fine = ["+my.a=1", "optimizer.lr=${my.a}"]
        composer.job([*fine, "seed=1"], 0)
        composer.job([*fine, "seed=2"], 1)
        with pytest.raises(ConfigError, match=r"my\.b"):
            composer.job([*fine, "+my.b=1"], 2)


@pytest.mark.parametrize("typed", ["sweep=lr", "hydra/launcher=ray", "hydra.sweeper.params={}"])
def test_one_run_reads_nothing_of_a_sweep(typed: str) -> None:
    with pytest.raises(ConfigError, match="only to a sweep"):
        check_single_run([typed])
    check_single_run(["seed=1", "hydra.run.dir=x", "~sweep"])


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("lr", "optimizer.lr"),
        ("batch_size", "data.batch_size"),
        ("device", "trainer.devices"),
        ("zzz", ""),
    ],
)
def test_the_key_that_was_meant(word: str, meant: str) -> None:
    keys = [entry.key for entry in walk(composed()) if not entry.key.startswith("hydra.")]
    assert guess_key(word, keys) == meant


@pytest.mark.parametrize(
    ("word", "known", "guess"),
    [
        ("sdg", ["adam", "sgd"], "did you mean 'sgd'?"),
        ("val/acc", ["val/auroc", "val/accuracy"], "did you mean 'val/accuracy'?"),
        ("nothing", ["adam", "sgd"], ""),
        ("", ["adam"], ""),
        ("train/mse", ["train/f1", "train/loss"], ""),
        ("train/acuracy", ["train/f1", "train/accuracy"], "did you mean 'train/accuracy'?"),
        ("max_length", ["max_epochs", "max_steps"], ""),
        ("resnet50", ["resnet18"], "did you mean 'resnet18'?"),
        ("s", ["seed", "spec"], ""),
    ],
)
def test_guess(word: str, known: list[str], guess: str) -> None:
    assert did_you_mean(word, known) == guess
