"""`optimizer.fused: auto` is settled when a job is composed, by its config alone."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf

from assay.check.checker import Checker
from assay.compose.compose import JobComposer, compose, compose_job, job_config, loader
from assay.compose.recipe import settle_network
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
        (["optimizer=adagrad", "device=gpu"], None),
        (["optimizer=adagrad", "device=auto"], None),  # which may be a GPU
        (["optimizer=adagrad", "device=cpu"], True),
        (["optimizer=rmsprop"], "no key"),
        (["+model.sparse=true"], None),
    ],
)
def test_what_it_comes_to(overrides: list[str], expected: object) -> None:
    assert settled(*overrides) == expected


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


def test_gradients_that_are_sparse_without_a_word_in_the_config_name_the_key(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    inputs, targets = generator.integers(0, 50, (300, 6)), generator.integers(0, 3, 300)
    np.savez(tmp_path / "tokens.npz", inputs=inputs, targets=targets)
    data = ["data=arrays", f"data.source.root={tmp_path}/tokens.npz", "optimizer=adagrad"]
    data += ["model=linear", "device=cpu"]
    named = "{_target_:torch.nn.EmbeddingBag,num_embeddings:50,embedding_dim:3,sparse:true}"
    Checker().check(compose_job([*data, f"model._args_=[{named}]"]))
    by_position = "{_target_:torch.nn.EmbeddingBag,_args_:[50,3,null,2.0,false,mean,true]}"
    with pytest.raises(ConfigError, match="does not support sparse grad") as raised:
        Checker().check(compose_job([*data, f"model._args_=[{by_position}]"]))
    assert (raised.value.key, raised.value.hint) == ("optimizer.fused", "optimizer.fused=null")
    Checker().check(compose_job([*data, f"model._args_=[{by_position}]", "optimizer.fused=null"]))


MSE, CROSS_ENTROPY = "torch.nn.MSELoss", "assay.loss.cross_entropy.CrossEntropy"
BCE = "assay.loss.bce_with_logits.BCEWithLogits"


@pytest.fixture
def table(tmp_path: Path) -> str:
    draw = np.random.default_rng(0)
    path = tmp_path / "houses.csv"
    pd.DataFrame({"size": draw.random(50), "price": draw.random(50) * 1e5, "kind": ["a", "b"] * 25}).to_csv(
        path, index=False
    )
    return str(path)


def of_table(table: str, target: str, *more: str) -> list[str]:
    return ["data=table", f"data.source.path='{table}'", f"data.source.target={target}", *more]


def chosen(overrides: list[str]) -> tuple[Any, str, list[str]]:
    config = compose(overrides)
    return config.loss._target_, config.model._target_, list(config.metrics.eval.metrics)


@pytest.mark.parametrize(
    ("target", "more", "loss", "metric"),
    [
        ("price", [], MSE, "r2"),
        ("kind", [], BCE, "average_precision"),
        ("kind", ["loss=cross_entropy"], CROSS_ENTROPY, "accuracy"),
        ("kind", ["data.source.task=binary"], BCE, "accuracy"),
        ("nothing", [], CROSS_ENTROPY, "accuracy"),
    ],
)
def test_a_table(table: str, target: str, more: list[str], loss: str, metric: str) -> None:
    found, model, metrics = chosen(of_table(table, target, *more))
    assert (found, model) == (loss, "assay.model.table_mlp.TableMLP")
    assert metric in metrics


@pytest.mark.parametrize(
    ("more", "loss", "metric"),
    [
        ("", BCE, "average_precision"),
        ("  - override /loss: cross_entropy\n", CROSS_ENTROPY, "accuracy"),
        ("  - override /metrics: multiclass\n", CROSS_ENTROPY, "accuracy"),
        ("  - override /model: linear\n", BCE, "average_precision"),
    ],
)
def test_two_classes_that_an_experiment_names(
    table: str, tmp_path: Path, more: str, loss: str, metric: str
) -> None:
    (tmp_path / "conf/experiment").mkdir(parents=True)
    values = f"data:\n  source:\n    path: {table}\n    target: kind\n"
    text = f"# @package _global_\ndefaults:\n  - override /data: table\n{more}{values}"
    (tmp_path / "conf/experiment/own.yaml").write_text(text)
    config = compose(["experiment=own"], tmp_path / "conf")
    assert config.loss._target_ == loss
    assert metric in config.metrics.eval.metrics
    assert config.model._target_ == (
        "torch.nn.Sequential" if "linear" in more else "assay.model.table_mlp.TableMLP"
    )


@pytest.mark.parametrize(("classes", "loss"), [("ab", BCE), ("abc", CROSS_ENTROPY)])
def test_folders_of_pictures(tmp_path: Path, classes: str, loss: str) -> None:
    for name in classes:
        (tmp_path / name).mkdir()
    found, _, _ = chosen(["data=image_folder", f"data.source.root='{tmp_path}'"])
    assert found == loss


def test_a_value_of_what_the_task_chooses_can_be_typed(table: str, tmp_path: Path) -> None:
    typed = of_table(table, "null", "model.latent_size=2")
    assert compose(typed).model.latent_size == 2
    with loader() as hydra:
        composer = JobComposer(hydra, trust_for(hydra, []), tmp_path)
        assert composer.job(typed, 0).config["model"]["latent_size"] == 2
        with pytest.raises(ConfigError, match=r"model\.nothing"):
            composer.job(of_table(table, "null", "model.nothing=1"), 1)


@pytest.mark.parametrize(
    ("targets", "loss", "metric"),
    [
        (np.linspace(0, 9, 60), MSE, "r2"),
        (np.linspace(0, 9, 60, dtype=np.float32).reshape(30, 2), MSE, "r2"),
        (np.arange(60) % 3, CROSS_ENTROPY, "accuracy"),
        ((np.arange(60) % 3).reshape(60, 1), CROSS_ENTROPY, "accuracy"),
        ((np.arange(60) % 2).reshape(20, 3), BCE, "precision"),
        (np.arange(60) % 2 == 0, BCE, "average_precision"),
    ],
    ids=lambda value: str(getattr(value, "dtype", value)),
)
def test_arrays(tmp_path: Path, targets: Any, loss: str, metric: str) -> None:
    """Of one target in a folder, of several in an archive."""
    inputs = np.zeros((len(targets), 4), np.float32)
    root = tmp_path / "own"
    if targets.ndim == 1:
        root.mkdir()
        np.save(root / "inputs.npy", inputs)
        np.save(root / "targets.npy", targets)
    else:
        root = tmp_path / "own.npz"
        np.savez(root, inputs=inputs, targets=targets)
    found, _, metrics = chosen(["data=arrays", f"data.source.root='{root}'"])
    assert found == loss
    assert metric in metrics


@pytest.mark.parametrize(
    ("shape", "more", "model"),
    [
        ((30, 48), [], "assay.model.mlp.MLP"),
        ((30, 3, 48), [], "assay.model.mlp.MLP"),
        ((30, 48), ["model=linear"], "torch.nn.Sequential"),
        ((30, 48), ["data.source.layout=NHW"], "assay.model.small_cnn.SmallCNN"),
        ((30, 1, 8, 8), [], "assay.model.small_cnn.SmallCNN"),
    ],
)
def test_the_model_of_arrays_takes_them(
    tmp_path: Path, shape: tuple[int, ...], more: list[str], model: str
) -> None:
    np.savez(tmp_path / "data.npz", inputs=np.zeros(shape), targets=np.arange(30) % 2)
    overrides = ["data=arrays", f"data.source.root='{tmp_path / 'data.npz'}'", *more]
    assert chosen(overrides)[1] == model
    with loader() as hydra:
        job = JobComposer(hydra, trust_for(hydra, overrides), tmp_path).job(overrides, 0)
    assert job.config["model"]["_target_"] == model


def test_a_job_holds_what_the_folder_says(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_size": 8, "dtype": "x"}))
    model = {"_target_": "assay.model.hf_text.HFText", "config": "auto", "weights": str(tmp_path)}
    config = OmegaConf.create({"model": model})
    OmegaConf.set_struct(config, True)
    settle_network(config)
    assert config.model.config == {"model_type": "bert", "hidden_size": 8}
    nothing = OmegaConf.create({"model": {**model, "weights": str(tmp_path / "none")}})
    settle_network(nothing)
    assert nothing.model.config == "auto", "the model says why"
