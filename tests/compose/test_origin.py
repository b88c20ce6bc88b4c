from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from assay.compose.compose import compose
from assay.compose.listing import list_options
from assay.compose.origin import Origins, locate, located, origins
from assay.config.source_location import COMMAND_LINE, Setting, split
from assay.config.tree import walk
from assay.errors import ConfigError, DataError
from assay.sweep.session import plan

if TYPE_CHECKING:
    from pathlib import Path

    from omegaconf import DictConfig

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
    [
        "data=cifar10",
        "data/transform=imagenet",
        "debug=profiler",
        "scheduler=none",
        "augment=flip_crop_mixup",
    ],
    [
        "optimizer.betas=[0.8,0.9]",
        "~optimizer.eps",
        "+optimizer.fused={a:1,b:[2,{c:3}]}",
        "optimizer.amsgrad=null",
    ],
    ["param_groups=no_decay", "model=vit", "tags=[a,b]"],
]


def plain_keys(overrides: list[str]) -> list[str]:
    entries = walk(compose(overrides))
    return [entry.key for entry in entries if not entry.is_container and not entry.key.startswith("hydra.")]


def parsed(text: str) -> object:
    return next(walk(OmegaConf.create(f"x: {text}"))).node._value()


@pytest.mark.parametrize("overrides", JOBS, ids=" ".join)
def test_the_last_setting_of_every_key_is_what_was_composed(overrides: list[str]) -> None:
    found = origins(overrides)
    checked = 0
    for entry in walk(compose(overrides)):
        if entry.is_container or entry.key.startswith("hydra."):
            continue
        chain = found.chain(entry.key)
        assert chain, entry.key
        last, composed = chain[-1], entry.node._value()
        if "${" in last.text and not entry.is_interpolation:
            assert ":" in last.text or entry.key in ("name", "run_dir"), "resolved when it was composed"
        elif entry.key.startswith("optimizer.fused") and last.text.startswith("{"):
            continue
        else:
            assert parsed(last.text) == composed, entry.key
        checked += 1
        if last.path:
            line = last.path.read_text(encoding="utf-8").splitlines()[last.line - 1]
            name = split(last.key)[-1]
            assert name.isdigit() or f"{name}:" in line, entry.key
        else:
            assert last.override in overrides or entry.key == "run_dir"
    assert checked > 90


DEFAULT_KEYS = [
    key for key in plain_keys([]) if "[" not in key and key not in ("run_dir", "trusted_packages")
]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from(DEFAULT_KEYS), min_size=1, max_size=20, unique=True), st.integers(-5, 5))
def test_what_is_typed_is_the_end_of_the_chain(keys: list[str], value: int) -> None:
    found = origins([f"{key}={value}" for key in keys])
    for key in keys:
        check_end(key, value, DEFAULTS.chain(key), found.chain(key))


def check_end(key: str, value: int, before: list[Setting], after: list[Setting]) -> None:
    assert after[:-1] == before
    assert (after[-1].where, after[-1].text, after[-1].override) == (
        COMMAND_LINE,
        str(value),
        f"{key}={value}",
    )


DEFAULTS: Origins = origins()


def places(key: str, *overrides: str) -> list[str]:
    return [setting.where for setting in origins(overrides).chain(key)]


def test_layers_oldest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert places("optimizer.lr", "experiment=digits_image", "optimizer.lr=0.1", "optimizer.lr=0.2") == [
        "conf/optimizer/adamw.yaml:4",
        "conf/experiment/digits_image.yaml:15",
        COMMAND_LINE,
        COMMAND_LINE,
    ]


def test_items_of_lists_and_what_replaces_a_whole_node() -> None:
    assert places("model._args_[1].in_features", "model=linear") == ["conf/model/linear.yaml:6"]
    assert places("optimizer.betas[1]", "optimizer.betas=[0,1]") == [
        "conf/optimizer/adamw.yaml:5",
        COMMAND_LINE,
    ]
    chain = origins(["data.split=null"]).chain("data.split.val")
    assert [one.text for one in chain] == ["0.1", "null"]
    chain = origins(["~data.split"]).chain("data.split.val")
    assert (chain[-1].override, chain[-1].text) == ("~data.split", "")
    chain = origins(["+optimizer={lr:3}"]).chain("optimizer.lr")
    assert (chain[-1].text, chain[-1].override) == ("3", "+optimizer={lr:3}")


def test_choices() -> None:
    found = origins(["data=diabetes", "device=cpu", "callbacks=[ema]"])
    assert [one.text for one in found.choices["loss"].settings] == [
        "loss: cross_entropy",
        "override /loss@_global_.loss: mse",
    ]
    assert [one.where for one in found.choices["loss"].settings] == [
        "conf/train.yaml:6",
        "conf/data/diabetes.yaml:6",
    ]
    assert (found.choices["device"].option, found.choices["device"].package) == ("cpu", "trainer")
    assert found.choices["device"].settings[-1].override == "device=cpu"
    assert found.choices["callbacks"].option == "ema"
    assert found.choices["data/transform"].settings[0].where == "conf/data/_loading.yaml:3"
    assert found.choices["experiment"].option == ""
    assert origins(["data=diabetes", "loss=l1"]).choices["loss"].option == "l1", "what is typed wins"


@pytest.mark.parametrize("overrides", JOBS, ids=" ".join)
def test_choices_are_hydras_own(overrides: list[str]) -> None:
    theirs = compose(overrides).hydra.runtime.choices
    ours = origins(overrides).choices
    expected = {str(group): option for group, option in theirs.items() if not str(group).startswith("hydra/")}
    for group, option in expected.items():
        assert ours[str(group)].option == (option or ""), group
    assert set(ours) - set(expected) <= {"callbacks", "logger"}


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path, "conf/experiment/mine.yaml", "# @package _global_\n# M.\noptimizer:\n  lr: 7\n  typo: 1\n"
    )
    write(tmp_path, "conf/project.yaml", "trusted_packages: [mine]\n")
    write(tmp_path, "conf/extra/part.yaml", "# P.\nvalue: 1\n")
    return tmp_path


def test_the_users_own_files(project: Path) -> None:
    assert places("optimizer.lr", "experiment=mine")[-1] == "conf/experiment/mine.yaml:4"
    assert places("trusted_packages", "experiment=mine")[-1] == "conf/project.yaml:1"
    found = origins(["+extra=part"])
    assert found.chain("extra.value")[0].where == "conf/extra/part.yaml:2"
    assert found.choices["extra"].settings[0].override == "+extra=part"
    assert origins(["experiment=mine"], project / "conf").chain("optimizer.lr")[-1].where.startswith("conf/")


def test_hydras_own_values() -> None:
    assert places("hydra.job.chdir")[-1] == "Hydra's own default"
    assert places("hydra.run.dir")[-1] == "conf/hydra/output/assay.yaml:4"
    assert places("hydra.run.dir", "hydra.run.dir=x")[-1] == COMMAND_LINE


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "overrides", "where"),
    [
        ("optimizer.lr", [], "conf/optimizer/adamw.yaml:4"),
        ("optimizer.lr", ["optimizer.lr=x"], COMMAND_LINE),
        ("optimizer.lrr", [], "conf/optimizer/adamw.yaml:2"),
        ("optimizer.lrr", ["+optimizer.lrr=1"], COMMAND_LINE),
        ("optimizer.typo", ["experiment=mine"], "conf/experiment/mine.yaml:5"),
        ("loss", ["data=diabetes"], "conf/data/diabetes.yaml:6"),
        ("loss", ["loss=mse"], COMMAND_LINE),
        ("metrics.eval.metrics.f1.zzz", [], "conf/metrics/multiclass.yaml:"),
        ("callbacks.checkpoint", [], "conf/callbacks/checkpoint.yaml:3"),
        ("trainer", ["trainer=3"], COMMAND_LINE),
        ("data.source.path, data.source.target", ["data=table"], "conf/data/table.yaml:9"),
        ("nobody.knows", [], ""),
        ("optimizer", ["optimizer=sdg"], COMMAND_LINE),
        ("optimizer", ["optimizer=sdg", "a=[1"], COMMAND_LINE),
        ("model", ["optimizer=sdg"], ""),
    ],
)
def test_locate(key: str, overrides: list[str], where: str, project: Path) -> None:
    error = ConfigError("is wrong", key=key, hint="do this")
    assert locate(error, overrides) is error
    assert error.file.startswith(where) if where else not error.file
    assert error.message == f"{key}: is wrong" + (f" ({error.file})" if error.file else "")
    assert str(error).endswith("\n  → do this")


def test_a_place_that_is_known_stays() -> None:
    error = ConfigError("is wrong", key="optimizer.lr", file="here:1")
    assert locate(error, []).file == "here:1"
    assert locate(ConfigError("no key"), []).message == "no key"


def test_never_raises(tmp_path: Path) -> None:
    error = ConfigError("is wrong", key="optimizer.lr")
    assert locate(error, ["a=[", "b"], tmp_path / "nowhere").message == "optimizer.lr: is wrong"


def test_located_leaves_other_errors_alone() -> None:
    with pytest.raises(DataError, match=r"^no data$"), located([]):
        raise DataError("no data")
    with pytest.raises(ConfigError, match=r"seed: is wrong \(conf/train\.yaml:29\)"), located([]):
        raise ConfigError("is wrong", key="seed")


def overrides_of(config: DictConfig) -> list[str]:
    typed: Any = OmegaConf.to_container(config.hydra.overrides, resolve=False)  # `seed=${x}` as it was typed
    return [*typed["hydra"], *typed["task"]]


def test_a_job_of_a_sweep_knows_its_own_overrides() -> None:
    jobs = plan(["optimizer=sgd,adam", "optimizer.lr=1", "hydra.sweep.dir=x"])
    assert [set(overrides_of(job)) for job in jobs] == [
        {"optimizer=sgd", "optimizer.lr=1", "hydra.sweep.dir=x"},
        {"optimizer=adam", "optimizer.lr=1", "hydra.sweep.dir=x"},
    ]
    assert "seed=${nowhere}" in overrides_of(compose(["seed=${nowhere}"]))


# -- across groups ---------------------------------------------------------------------------------


def test_what_an_option_sets_outside_of_its_group(project: Path) -> None:
    write(
        project,
        "conf/experiment/deep/own.yaml",
        "# @package _global_\n# O.\ndefaults:\n  - override /optimizer: sgd\n  - override /data: diabetes\n"
        "optimizer:\n  lr: 7\n  momentum: 0.5\ndata:\n  split: {val: 0.3}\ntags: [a, b]\n",
    )
    typed = ["experiment=deep/own", "optimizer.momentum=0.1", "debug=small"]
    found = origins(typed).set_across_groups()
    experiment, small = "experiment=deep/own", "debug=small"
    ours = {key: by for key, by in found.items() if by == experiment}
    assert ours == dict.fromkeys(("optimizer", "data", "optimizer.lr", "data.split.val", "tags"), experiment)
    assert found["loss"] == found["model"] == found["metrics"] == "data=diabetes"
    assert found["trainer.max_epochs"] == small, "of two that set a value, the later one counts"
    assert "optimizer.momentum" not in found, "typed"
    assert origins(["optimizer=sgd", "optimizer.lr=1"]).set_across_groups() == {}


def test_an_option_may_set_keys_with_a_dot_in_their_names() -> None:
    """`sweep=lr` does, below `hydra.sweeper.params`."""
    found = origins(["sweep=lr"]).set_across_groups()
    assert found["hydra.sweeper.num_trials"] == "sweep=lr"
    assert found["hydra.sweeper.params.optimizer.lr"] == "sweep=lr"
