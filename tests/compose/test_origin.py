from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from assay.compose.compose import compose, loader
from assay.config.tree import split_key, walk
from assay.errors import ConfigError
from assay.terminal import Console
from assay_explain import listing
from assay_explain.listing import complete, groups, list_options
from assay_explain.origin import (
    COMMAND_LINE,
    Origins,
    explain,
    explain_job,
    locate,
    print_explanation,
    trace_origins,
)

EXPERIMENTS = [
    pytest.param(
        [f"experiment={one.name}"],
        marks=[pytest.mark.long] * (one.name not in ("digits_image", "text_topics")),
    )
    for one in list_options("experiment")
]
JOBS = [
    [],
    *EXPERIMENTS,
    ["data=diabetes", "optimizer.lr=0.5", "device=ddp", "precision=bf16"],
    ["model=linear", "callbacks=[default,ema,early_stopping]", "logger=[csv,tensorboard]"],
    ["data=cifar10", "data/transform=imagenet", "debug=profiler", "scheduler=none"],
    ["optimizer.betas=[0.8,0.9]", "~optimizer.eps", "optimizer.amsgrad=null"],
    ["param_groups=no_decay", "model=unet", "tags=[a,b]", "experiment=digits_longtail"],
]


def origins(overrides: Sequence[str] = ()) -> Origins:
    with loader() as hydra:
        return trace_origins(hydra, overrides)


def parsed(text: str) -> object:
    return next(walk(OmegaConf.create(f"x: {text}"))).node._value()


@pytest.mark.parametrize("overrides", JOBS, ids=" ".join)
def test_the_last_setting_of_every_key_and_group_is_what_was_composed(overrides: list[str]) -> None:
    found, config, checked = origins(overrides), compose(overrides), 0
    for entry in walk(config):
        if entry.is_container or entry.key.startswith("hydra."):
            continue
        last, composed = found.chain(split_key(entry.key))[-1], entry.node._value()
        if "${" in last.text and not entry.is_interpolation:
            assert ":" in last.text or entry.key in ("name", "run_dir"), "resolved when it was composed"
        else:
            assert parsed(last.text) == composed, entry.key
        checked += 1
        if last.path:
            line = last.path.read_text(encoding="utf-8").splitlines()[last.line - 1]
            name = split_key(last.key)[-1]
            assert name.isdigit() or f"{name}:" in line, entry.key
        else:
            assert last.override in overrides or entry.key == "run_dir"
    assert checked > 90
    theirs = {
        str(group): option or ""
        for group, option in config.hydra.runtime.choices.items()
        if not str(group).startswith("hydra/")
    }
    assert {group: found.choices[group].option for group in theirs} == theirs
    assert set(found.choices) - set(theirs) <= {"callbacks", "logger"}


DEFAULTS = origins()
DEFAULT_KEYS = [
    entry.key
    for entry in walk(compose())
    if not entry.is_container
    and "[" not in entry.key
    and not entry.key.startswith(("hydra.", "run_dir", "trusted_packages"))
]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from(DEFAULT_KEYS), min_size=1, max_size=20, unique=True), st.integers(-5, 5))
def test_what_is_typed_is_the_end_of_the_chain(keys: list[str], value: int) -> None:
    found = origins([f"{key}={value}" for key in keys])
    for key in keys:
        *before, last = found.chain(split_key(key))
        assert before == DEFAULTS.chain(split_key(key))
        assert (last.where, last.text, last.override) == (COMMAND_LINE, str(value), f"{key}={value}")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "experiment/mine": "# @package _global_\n# M.\noptimizer:\n  lr: 7\n  typo: 1\n",
        "project": "trusted_packages: [mine]\n",
        "extra/part": "# P.\nvalue: 1\n",
        "experiment/deep/own": "# @package _global_\n# O.\ndefaults:\n  - override /optimizer: sgd\n"
        "  - override /data: diabetes\noptimizer:\n  lr: 7\n  momentum: 0.5\ndata:\n  split: {val: 0.3}\n"
        "tags: [a, b]\n",
    }.items():
        path = Path("conf", f"{name}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("key", "typed", "places"),
    [
        (
            "optimizer.lr",
            "experiment=digits_image optimizer.lr=0.1 optimizer.lr=0.2",
            ["conf/optimizer/adamw.yaml:4", "conf/experiment/digits_image.yaml:15", *[COMMAND_LINE] * 2],
        ),
        ("model._args_[1].in_features", "model=linear", ["conf/model/linear.yaml:6"]),
        ("optimizer.betas[1]", "optimizer.betas=[0,1]", ["conf/optimizer/adamw.yaml:5", COMMAND_LINE]),
        ("optimizer.lr", "experiment=mine", ["conf/optimizer/adamw.yaml:4", "conf/experiment/mine.yaml:4"]),
        ("trusted_packages", "", ["conf/project.yaml:1"]),
        ("extra.value", "+extra=part", ["conf/extra/part.yaml:2"]),
        ("hydra.job.chdir", "", ["Hydra's default"]),
    ],
)
def test_the_last_places_oldest_first(key: str, typed: str, places: list[str]) -> None:
    assert [setting.where for setting in origins(typed.split()).chain(split_key(key))][
        -len(places) :
    ] == places


@pytest.mark.parametrize(
    ("typed", "key", "text"),
    [
        ("data.split=null", "data.split.val", "null"),
        ("~data.split", "data.split.val", ""),
        ("+optimizer={lr:3}", "optimizer.lr", "3"),
    ],
)
def test_what_replaces_or_changes_a_whole_node(typed: str, key: str, text: str) -> None:
    last = origins([typed]).chain(split_key(key))[-1]
    assert (last.override, last.text) == (typed, text)


@pytest.mark.parametrize(
    ("key", "overrides", "where"),
    [
        ("optimizer.lr", [], "conf/optimizer/adamw.yaml:4"),
        ("optimizer.lr", ["optimizer.lr=x"], COMMAND_LINE),
        ("optimizer.lr", ["optimizer.lr=interval(1,0)"], COMMAND_LINE),
        ("optimizer.lrr", [], "conf/optimizer/adamw.yaml:2"),
        ("optimizer.lrr", ["+optimizer.lrr=1"], COMMAND_LINE),
        ("optimizer.typo", ["experiment=mine"], "conf/experiment/mine.yaml:5"),
        ("loss", ["data=diabetes"], "conf/data/diabetes.yaml:6"),
        ("metrics.eval.metrics.f1.zzz", [], "conf/metrics/multiclass.yaml:"),
        ("trainer", ["trainer=3"], COMMAND_LINE),
        ("data.source.path, data.source.target", ["data=table"], "conf/data/table.yaml:9"),
        ("no.such.key", [], ""),
        ("optimizer", ["optimizer=sdg", "a=[1"], COMMAND_LINE),
        ("model", ["optimizer=sdg"], ""),
    ],
)
def test_an_error_names_the_place_of_its_key(key: str, overrides: list[str], where: str) -> None:
    error = locate(ConfigError("is wrong", key=key, hint="do this"), overrides)
    assert error.file.startswith(where) if where else not error.file
    assert error.message == f"{key}: is wrong" + (f" ({error.file})" if error.file else "")
    assert str(error).endswith("\n  → do this")


# -- assay explain ---------------------------------------------------------------------------------

Explain = Callable[..., list[str]]
"""Calls `show` and gives the lines, without the spaces that align them."""


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Explain:
    def run(key: str, *overrides: str) -> list[str]:
        print_explanation(Console(highlight=False, soft_wrap=True), explain(key, overrides))
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    return run


def test_a_run_dir_that_was_typed_was_typed() -> None:
    chain = origins(["run_dir=elsewhere"]).chain(("run_dir",))
    assert [setting.where for setting in chain] == ["assay itself", "command line"]


@pytest.mark.parametrize(
    ("key", "typed", "line"),
    [
        ("data.seed", "seed=7", "data.seed = ${seed} → 7"),
        ("model.num_outputs", "", "model.num_outputs = ${spec.num_outputs} → known once the data is read"),
        ("run_dir", "hydra.run.dir=x", "run_dir = ${hydra.run.dir} → x"),
        ("data.source.path", "data=table", "data.source.path = ??? must be given: data.source.path=…"),
        ("optimizer.lr", "~optimizer.lr", "optimizer.lr was removed"),
        ("optimizer.lr=", "optimizer.lr=3", "optimizer.lr = 3"),
        ("callbacks.checkpoint", "", "callbacks.checkpoint"),
        ("experiment", "", "experiment = none"),
    ],
)
def test_the_first_line(key: str, typed: str, line: str, shown: Explain) -> None:
    assert shown(key, *typed.split())[0] == line


def test_groups(shown: Explain) -> None:
    assert shown("loss", "data=diabetes") == [
        "loss = mse",
        "set by conf/data/diabetes.yaml:6 override /loss@_global_.loss: mse",
        "over conf/train.yaml:6 loss: cross_entropy",
        "",
        "loss._target_ torch.nn.MSELoss conf/loss/mse.yaml:2",
    ]
    assert shown("data.transform") == shown("data/transform")
    lines = shown("device", "device=ddp", "trainer.devices=2")
    assert "trainer.accelerator gpu conf/device/ddp.yaml:3" in lines
    assert "trainer.devices -1 conf/device/ddp.yaml:4 overridden: trainer.devices=2, command line" in lines


def test_what_follows_from_the_data(shown: Explain, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{n},{n / 7}\n" for n in range(40)))
    typed = ("data=table", "data.source.path=t.csv", "data.source.target=y")
    assert shown("loss", *typed)[1] == "set by conf/task/regression.yaml:4 override /loss: mse"
    assert shown("task", *typed)[1] == "set by the task of the data task=regression"


def test_every_key_node_and_group_has_an_answer() -> None:
    config, found = compose(), origins()
    groups = [str(group) for group in config.hydra.runtime.choices if not str(group).startswith("hydra/")]
    for key in [*(entry.key for entry in walk(config)), *groups]:
        console = Console(file=io.StringIO(), width=1000)
        print_explanation(console, explain_job(key, config, found))
        text = console.file.getvalue()
        assert text.startswith(key) or key.replace(".", "/") in groups, key
        assert text.count("\n") > 1 or key.startswith("hydra."), key


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("optimizer.lrr", "did you mean 'optimizer.lr'?"),
        ("spec.num_classes", "known once the data is read"),
        ("[", "unknown key"),
    ],
)
def test_an_unknown_key(key: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace("?", r"\?")):
        explain(key)


def write_option(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_lists_options_of_several_folders_without_parts(tmp_path: Path) -> None:
    write_option(tmp_path, "ours/model/mlp.yaml", "#\n# MLP.\n# More.\n")
    write_option(tmp_path, "ours/model/_shared.yaml", "# Part.")
    write_option(tmp_path, "ours/model_zoo/big.yaml", "# @package trainer\n# Big.")
    write_option(tmp_path, "ours/train.yaml", "# Primary.")
    write_option(tmp_path, "mine/model/block/wide.yaml", "lr: 1\n# Too late.")
    folders = (tmp_path / "ours", tmp_path / "mine")
    found = [(option.group, option.name, option.description) for option in list_options("", *folders)]
    assert found == [("model", "mlp", "MLP."), ("model/block", "wide", ""), ("model_zoo", "big", "Big.")]
    assert [option.name for option in list_options("model", *folders)] == ["mlp", "wide"]
    assert groups(*folders) == ["model", "model/block", "model_zoo"]


@pytest.mark.parametrize("group", ["..", "/", "../src", "*"])
def test_nothing_outside_the_groups(group: str) -> None:
    assert list_options(group) == []


VERBS = {
    "train": ["--multirun", "-m", "--config-dir", "-cd"],
    "configs": ["--config-dir"],
    "info": ["--debug"],
}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("assay tr", ["train"]),
        ("assay ", ["configs", "info", "train"]),
        ("assay train optim", ["optimizer.", "optimizer="]),
        ("assay train optimizer=ad", ["optimizer=adagrad", "optimizer=adam", "optimizer=adamw"]),
        ("assay train optimizer=sgd optimizer.mom", ["optimizer.momentum="]),
        (
            "assay train -m optimizer=sgd,ad",
            ["optimizer=sgd,adagrad", "optimizer=sgd,adam", "optimizer=sgd,adamw"],
        ),
        ("assay train callbacks=[default,em", ["callbacks=[default,ema"]),
        ("assay train dat", ["data.", "data/", "data="]),
        ("assay train data/transform=re", ["data/transform=resize", "data/transform=resized_crop"]),
        ("assay try optimizer=ad", ["optimizer=adagrad", "optimizer=adam", "optimizer=adamw"]),
        ("assay train --mul", ["--multirun"]),
        ("assay train --config-dir nowhere model=line", ["model=linear"]),
        ("assay configs schedu", ["scheduler"]),
        ("assay info opt", []),
        ("assay train nonsense=1 optimizer.l", []),
    ],
)
def test_last_word(line: str, words: list[str]) -> None:
    assert complete(line, VERBS) == words


def test_own_options_are_listed_and_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_option(tmp_path, "model/mlperf.yaml", "# Mine.\n_target_: torch.nn.Identity\n")
    assert complete(f"assay train --config-dir {tmp_path} model=ml", VERBS) == ["model=mlp", "model=mlperf"]
    listing.print_options(listing.options_of("model", tmp_path))
    assert "mlperf" in capsys.readouterr().out
