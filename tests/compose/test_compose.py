"""Jobs of a sweep equal jobs composed one by one, in whatever order they are typed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from assay.compose.compose import (
    JobComposer,
    compose,
    compose_job,
    job_config,
    loader,
    register_resolvers,
)
from assay.compose.recipe import settle_recipe
from assay.config.tree import walk
from assay.errors import ConfigError
from assay.paths import CONF_DIR
from assay.targets.trust import Trust, trust_for
from assay_sweep.hydra_node import check_hydra
from assay_sweep.session import plan_sweep

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_is_what_hydra_itself_composes() -> None:
    overrides = ["data=wine", "model=mlp", "optimizer.lr=0.5", "callbacks=[default,ema]", "device=cpu"]
    ours = job_config(compose(overrides))
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        theirs = hydra_compose("train", overrides)
    assert (theirs.optimizer.fused, ours.optimizer.fused) == ("auto", True)
    theirs.optimizer.fused = True
    settle_recipe(theirs)
    for group in ("data", "model", "loss", "optimizer", "scheduler", "trainer", "metrics", "callbacks"):
        assert plain(ours[group]) == plain(theirs[group]), group


def plain(node: DictConfig) -> object:
    return OmegaConf.to_container(node, resolve=False)


def test_name_and_run_dir_are_filled_in() -> None:
    config = compose(["data=wine", "model=mlp"])
    assert config.name == "wine_mlp"
    assert Path(config.run_dir).parts[:2] == ("outputs", "wine_mlp")
    assert compose(["name=mine"]).run_dir.startswith("outputs/mine/")
    assert compose(["hydra.run.dir=x/y"]).run_dir == "x/y"


def test_calls_are_resolved_and_the_specs_values_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_DATA", "/data")
    config = job_config(compose(["data=mnist", "model=mlp"]))
    monkeypatch.setenv("ASSAY_DATA", "/other")
    assert config.data.source.root == "/data"
    assert "hydra" not in config
    assert OmegaConf.is_interpolation(config.model, "input_shape")


def test_leaves_another_hydra_alone(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("x: 1\n", encoding="utf-8")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        theirs = GlobalHydra.instance().hydra
        compose()
        assert GlobalHydra.instance().hydra is theirs
        assert hydra_compose("config").x == 1
    before = HydraConfig.instance().cfg
    with pytest.raises(ConfigError):
        compose(["optimizer=sdg"])
    assert HydraConfig.instance().cfg is before


def write_option(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def test_own_folder_adds_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_option(tmp_path, "conf/model/mine.yaml", "# Mine.\n_target_: torch.nn.Identity\n")
    assert compose(["model=mine"], tmp_path / "conf").model._target_ == "torch.nn.Identity"
    with pytest.raises(ConfigError, match="unknown option 'mine'"):
        compose(["model=mine"])
    monkeypatch.chdir(tmp_path)
    assert compose(["model=mine"]).model._target_ == "torch.nn.Identity", "./conf is found by itself"
    assert compose(["model=mlp"]).model._target_ == "assay.model.mlp.MLP", "beside assay's own"


def test_short_id_is_the_same_within_one_config_only() -> None:
    register_resolvers()
    one, two = (OmegaConf.create({"a": "${short_id:}", "b": "x-${short_id:}"}) for _ in range(2))
    assert re.fullmatch(r"[0-9a-f]{6}", one.a)
    assert one.b == f"x-{one.a}"
    assert one.a != two.a


@pytest.mark.parametrize("typed", ["debug=small", "experiment=[digits_image,digits_longtail]"])
def test_a_plus_before_a_group_that_has_no_option_yet_changes_nothing(typed: str) -> None:
    plain, added = compose_job([typed]), compose_job([f"+{typed}"])
    assert added.fingerprint == plain.fingerprint
    assert added.choices == plain.choices


_CLOCK = re.compile(r"\d{2}-\d{2}-\d{2}-[0-9a-f]{6}|[0-9a-f]{6}$")


def everything_in(config: Any) -> str:
    """Everything in a job, without the time of day, the random id and its place in the sweep."""
    config = OmegaConf.masked_copy(config, list(config))
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.sweep.dir, config.hydra.job.num, config.hydra.job.id = "x", 0, "0"
    text = OmegaConf.to_yaml(config)
    return "\n".join(_CLOCK.sub("", line) for line in text.splitlines() if "run_dir" not in line)


@pytest.mark.always("typed0", "typed2")
@pytest.mark.parametrize(
    "typed",
    [
        ["optimizer=sgd,adam", "seed=1,2", "optimizer.lr=0.5"],
        ["data=wine,iris", "model.hidden=[8],[16,16]", "+model.note=1,2", "hydra.launcher.timeout_min=3"],
        ["callbacks=[default,ema]", "callbacks.ema.decay=0.9,0.99", "~scheduler", "name=x"],
        ["trainer.max_epochs=1,2", "device=cpu", "+trainer.fast_dev_run=true", "~callbacks.lr_monitor"],
        ["tags=[a],[b]", "hydra.sweep.dir=outputs/x", "seed=1,2"],
    ],
)
def test_a_job_is_what_it_is_alone(typed: list[str]) -> None:
    jobs = plan_sweep(typed)
    assert len(jobs) > 1
    for job in jobs:
        alone = compose([*map(str, job.hydra.overrides.hydra), *map(str, job.hydra.overrides.task)])
        assert everything_in(job) == everything_in(alone)


BASE = ["data=wine", "model=mlp", "callbacks=[default,ema]"]


@pytest.fixture(scope="module")
def composers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[JobComposer, JobComposer, list[str]]]:
    """One of a sweep, one of a single run, and every key that a composed or completed job has."""
    with loader() as hydra:
        trusted = trust_for(hydra, [])
        sweep = JobComposer(hydra, trusted, tmp_path_factory.mktemp("sweep"))
        alone = JobComposer(hydra, trusted)
        trees = alone.compose(BASE), OmegaConf.create(alone.job(BASE).config)
        keys = {entry.key for tree in trees for entry in walk(tree)}
        yield sweep, alone, sorted(key for key in keys if not key.startswith("hydra."))


def answer_of(composer: JobComposer, overrides: list[str]) -> tuple[str, str]:
    """The fingerprint of a job, or the key and message of its error."""
    try:
        return "", composer.job(overrides).fingerprint
    except ConfigError as error:
        return error.key, error.message


@settings(max_examples=50, deadline=None)
@given(
    number=st.integers(0, 10**6),
    value=st.sampled_from(["3", "0.5", "auto", "null", "true", "x", "[1]"]),
    plus=st.sampled_from(["", "++"]),
)
def test_a_sweep_accepts_the_keys_that_a_single_run_accepts(
    composers: tuple[JobComposer, JobComposer, list[str]], number: int, value: str, plus: str
) -> None:
    sweep, alone, keys = composers
    overrides = [*BASE, f"{plus}{keys[number % len(keys)]}={value}"]
    assert answer_of(sweep, overrides) == answer_of(alone, overrides)


@pytest.mark.parametrize("plus", ["", "+"])
def test_the_recipe_of_a_model_is_typed_below_the_model(
    composers: tuple[JobComposer, JobComposer, list[str]], plus: str
) -> None:
    assert answer_of(composers[0], [*BASE, f"{plus}recipe.lr=0.05"])[0] == "recipe.lr"
    with pytest.raises(ConfigError) as caught:
        compose_job([*BASE, f"{plus}recipe.lr=0.05"])
    assert (caught.value.key, caught.value.hint) == ("recipe.lr", "model.recipe.lr=0.05")
    assert compose_job([*BASE, str(caught.value.hint)]).config["recipe"]["lr"] == 0.05


def test_what_waits_for_the_data_can_be_typed_inside_of_a_list(tmp_path: Path) -> None:
    layers = "[{_target_:'torch.nn.Linear',in_features:'${spec.num_features}',out_features:3}]"
    with loader() as hydra:
        composer = JobComposer(hydra, trust_for(hydra, []), tmp_path)
        job = composer.job(["data=iris", "model=linear", f"model._args_={layers}"], 0)
    assert job.config["model"]["_args_"][0]["in_features"] == "${spec.num_features}"


@pytest.mark.parametrize(
    ("options", "lost"),
    [
        ({"trainer": "max_epochs: 3", "device": "devices: 2", "precision": "benchmark: true"}, ""),
        ({"trainer": "devices: 3", "device": "devices: 2"}, "devices"),
        ({"device": "benchmark: true", "precision": "benchmark: false"}, "benchmark"),
    ],
)
def test_an_option_whose_value_another_replaces_is_refused(
    options: dict[str, str], lost: str, tmp_path: Path
) -> None:
    """`trainer`, `device` and `precision` are put into one node, where Hydra lets the last one win."""
    for group, text in options.items():
        head = "defaults: [default]\n" if group == "trainer" else ""
        write_option(tmp_path, f"{group}/mine.yaml", f"# @package trainer\n# Mine.\n{head}{text}\n")
    typed = [f"{group}=mine" for group in options]
    if not lost:
        trainer = compose_job(typed, tmp_path).config["trainer"]
        assert (trainer["max_epochs"], trainer["devices"], trainer["benchmark"]) == (3, 2, True)
        return
    with pytest.raises(ConfigError) as caught:
        compose_job(typed, tmp_path)
    assert caught.value.key == f"trainer.{lost}"
    typed.append(f"trainer.{lost}=1")
    assert compose_job(typed, tmp_path).config["trainer"][lost] == 1


def test_custom_parts_keep_what_was_typed_for_them() -> None:
    typed = ["data._target_=my.Data", "data.batch_size=3", "+data.extra={a: 1}", "trusted_packages=[my]"]
    config = compose(typed)
    assert config.data == {"_target_": "my.Data", "batch_size": 3, "extra": {"a": 1}}
    assert config.hydra.runtime.choices.data == "Data"
    choices = compose(["module._target_=my.gan.Gan", "trusted_packages=[my]"]).hydra.runtime.choices
    assert (choices["data"], choices["model"]) == ("digits", "Gan")


GROUPS = {
    "data": ("wine", "digits", "diabetes"),
    "model": ("mlp", "linear"),
    "optimizer": ("sgd", "adam"),
    "scheduler": ("cosine", "onecycle"),
    "experiment": ("digits_longtail",),
    "precision": ("bf16",),
    "callbacks": ("[default,ema]",),
}
VALUES = {
    "optimizer.lr": ("0.5", "0.25"),
    "trainer.max_epochs": ("3", "4"),
    "data.batch_size": ("7", "8"),
    "seed": ("11", "12"),
    "name": ("first", "second"),
    "callbacks.checkpoint.monitor": ("train/loss", "val/loss"),
    "+trainer.fast_dev_run": ("2", "3"),
    "~callbacks.lr_monitor": ("",),
}


@st.composite
def overrides(draw: st.DrawFn) -> list[str]:
    typed = []
    for key, options in {**GROUPS, **VALUES}.items():
        if draw(st.booleans()):
            option = draw(st.sampled_from(options))
            typed.append(f"{key}={option}" if option else key)
    return typed


def composed(typed: list[str]) -> dict[str, Any]:
    config = OmegaConf.to_container(job_config(compose(typed)))
    assert isinstance(config, dict)
    config.pop("run_dir")
    return {str(key): value for key, value in config.items()}


@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data(), overrides())
def test_any_order_composes_the_same_job(data: st.DataObject, typed: list[str]) -> None:
    assert composed(typed) == composed(data.draw(st.permutations(typed)))


@settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data(), st.sampled_from([key for key in VALUES if key[0] not in "+~"]), overrides())
def test_the_last_of_two_values_counts(data: st.DataObject, key: str, typed: list[str]) -> None:
    others = [override for override in typed if not override.startswith(f"{key}=")]
    before, last = data.draw(st.permutations(VALUES[key]))
    position = data.draw(st.integers(0, len(others)))
    twice = [*others[:position], f"{key}={before}", *others[position:], f"{key}={last}"]
    assert composed(twice) == composed([*others, f"{key}={last}"])


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "model" / "x.yaml"
    path.parent.mkdir()
    path.write_bytes(b"# X.\na: \xff\xfe\n")
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(.*model/x\.yaml\)"):
        compose(["model=x"], tmp_path)


def node(key: str, value: Any) -> Any:
    config = OmegaConf.create({"hydra": {"runtime": {"output_dir": "x"}}, "hidden": value})
    OmegaConf.update(config, f"hydra.{key}", value, force_add=True)
    return config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("launcher._target_", "os.system"),
        ("launcher._target_", "assay_sweep.search.grid.GridSearch"),
        ("launcher._target_", "assay_sweep.worker.worker.Worker"),
        ("sweeper._target_", "assay_sweep.launcher.local.LocalLauncher"),
        ("sweeper.sampler._target_", "optuna.storages.RDBStorage"),
        ("sweeper.sampler._target_", "optuna.samplers.os.system"),
        ("sweeper.sampler._target_", ["optuna.samplers.TPESampler"]),
        ("callbacks.mine._target_", "my_package.Callback"),
        ("job.env_set.LD_PRELOAD", "x.so"),
        ("job_logging.handlers.file.class", "logging.handlers.SocketHandler"),
        ("hydra_logging.formatters.simple.()", "os.system"),
    ],
)
def test_what_it_may_not_be_asked(key: str, value: Any) -> None:
    hidden = node(key, "${hidden}")
    hidden.hidden = value
    for config in (node(key, value), hidden):
        with pytest.raises(ConfigError) as refused:
            check_hydra(config.hydra, Trust())
        assert f"hydra.{key}".startswith(str(refused.value.key))
        assert refused.value.hint
