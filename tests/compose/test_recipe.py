"""`optimizer.fused: auto` is settled when a job is composed, by its config alone."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from assay.check.checker import Checker, check_job
from assay.compose.compose import JobComposer, compose, compose_job, job_config, loader
from assay.errors import ConfigError
from assay.targets.trust import trust_for

CONF = Path(__file__).parents[2] / "conf" / "optimizer"
TAKES = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind) and "fused" in inspect.signature(kind).parameters
)


def settled(*overrides: str) -> Any:
    return job_config(compose(overrides)).optimizer.get("fused", "no key")


def config_of(optimizer: str, **trainer: Any) -> Any:
    """A job of the few keys that decide."""
    node = {"_target_": optimizer, "lr": 0.1, "fused": "auto"}
    return OmegaConf.create({"optimizer": node, "trainer": {"accelerator": "cpu", **trainer}})


def test_classes_and_options_that_take_it() -> None:
    for name in TAKES:
        for target in (f"torch.optim.{name}", f"{getattr(torch.optim, name).__module__}.{name}"):
            assert job_config(config_of(target)).optimizer.fused is True
        assert job_config(config_of(f"mine.{name}")).optimizer.fused == "auto"
    for path in CONF.glob("*.yaml"):
        node: Any = OmegaConf.load(path)
        takes = str(node._target_).removeprefix("torch.optim.") in TAKES
        assert node.get("fused") == ("auto" if takes else None), path


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], True),
        (["optimizer.fused=false"], False),
        (["~optimizer.fused"], "no key"),
        (["precision=bf16"], True),
        (["precision=bf16", "trainer.gradient_clip_val=1.0"], None),
        (["precision=fp16"], None),
        (["+optimizer.foreach=true"], None),
        (["+optimizer.capturable=true"], None),
        (["+optimizer.differentiable=true"], None),
        (["trainer.accelerator=tpu"], None),
        (["optimizer=adagrad", "device=mps"], None),
        (["optimizer=rmsprop"], "no key"),
        (["+model.sparse=true"], None),
    ],
)
def test_what_it_comes_to(overrides: list[str], expected: object) -> None:
    assert settled(*overrides) == expected


def test_adagrad_is_not_fused_where_the_device_may_be_apples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert settled("optimizer=adagrad", "device=auto") is None
    assert settled("optimizer=adagrad", "device=cpu") is True


@pytest.mark.always("optimizer.capturable=true", "trainer.precision=16-mixed")
@pytest.mark.parametrize(
    "typed",
    [
        *("optimizer.fused=null", "optimizer.capturable=true", "optimizer.differentiable=true"),
        *("optimizer.foreach=true", "trainer.accelerator=tpu", "trainer.gradient_clip_val=1.0"),
        *("trainer.precision=16-mixed", "trainer.strategy=deepspeed"),
    ],
)
def test_a_job_of_a_sweep_is_settled_as_it_is_alone(typed: str, tmp_path: Path) -> None:
    own = ["precision=bf16", "data=iris", "+optimizer.foreach=null", "seed=1"]
    own += ["+optimizer.capturable=false", "+optimizer.differentiable=false"]
    with loader() as hydra:
        composer = JobComposer(hydra, trust_for(hydra, []), tmp_path)
        first, job, again = (composer.job(one, 0) for one in (own, [*own, typed], own))
    assert first.config["optimizer"]["fused"] is True is again.config["optimizer"]["fused"]
    assert job.config["optimizer"]["fused"] is None
    assert job.fingerprint == compose_job([*own, typed]).fingerprint


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (["optimizer.fused=treu"], "expected one of auto, bool, got treu"),
        (
            ["optimizer.fused=true", "precision=bf16", "trainer.gradient_clip_val=1.0"],
            "Lightning cannot clip the gradients of a fused optimizer in mixed precision",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(overrides: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text.replace("?", r"\?")) as raised:
        check_job(compose_job(overrides).to_config())
    assert raised.value.key == "optimizer.fused"
    assert raised.value.hint is not None


def test_gradients_that_are_sparse_without_a_word_in_the_config_name_the_key(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    inputs, targets = generator.integers(0, 50, (300, 6)), generator.integers(0, 3, 300)
    np.savez(tmp_path / "tokens.npz", inputs=inputs, targets=targets)
    data = ["data=arrays", f"data.source.root={tmp_path}/tokens.npz", "optimizer=adagrad", "model=linear"]
    named = "{_target_:torch.nn.EmbeddingBag,num_embeddings:50,embedding_dim:3,sparse:true}"
    Checker().check(compose_job([*data, f"model._args_=[{named}]"]))
    by_position = "{_target_:torch.nn.EmbeddingBag,_args_:[50,3,null,2.0,false,mean,true]}"
    with pytest.raises(ConfigError, match="does not support sparse grad") as raised:
        Checker().check(compose_job([*data, f"model._args_=[{by_position}]"]))
    assert (raised.value.key, raised.value.hint) == ("optimizer.fused", "optimizer.fused=null")
    Checker().check(compose_job([*data, f"model._args_=[{by_position}]", "optimizer.fused=null"]))
