from __future__ import annotations

import re
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from assay.compose.compose import choices, compose, compose_with, job_config, loader, register_resolvers
from assay.compose.job_composer import compose_job
from assay.compose.recipe import settle_recipe
from assay.errors import ConfigError
from assay.paths import CONF_DIR
from assay.sweep.session import plan


def test_typed_wins_over_the_option_and_the_option_over_the_default() -> None:
    config = compose(["optimizer=sgd", "optimizer.lr=0.5", "+optimizer.dampening=0.1"])
    assert config.optimizer._target_ == "torch.optim.SGD"
    assert (config.optimizer.lr, config.optimizer.dampening) == (0.5, 0.1)


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


def test_every_job_has_a_directory_of_its_own() -> None:
    assert compose().run_dir != compose().run_dir


def test_calls_are_resolved_and_the_specs_values_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_DATA", "/data")
    config = job_config(compose(["data=mnist", "model=vit"]))
    monkeypatch.setenv("ASSAY_DATA", "/other")
    assert config.data.source.root == "/data"
    assert "hydra" not in config
    assert OmegaConf.is_interpolation(config.model, "input_shape")
    assert OmegaConf.is_interpolation(config.model.network, "image_size"), "oc.select of the spec waits too"


def test_choices_leave_hydras_own_out() -> None:
    chosen = choices(compose(["data=wine", "optimizer=sgd"]).hydra)
    assert (chosen["data"], chosen["optimizer"], chosen["experiment"]) == ("wine", "sgd", None)
    assert not [group for group in chosen if group.startswith("hydra")]


def test_a_sweep_is_every_combination() -> None:
    jobs = plan(["optimizer=sgd,adam", "seed=1,2", "optimizer.lr=0.5"])
    assert [(job.optimizer._target_.rpartition(".")[2], job.seed, job.optimizer.lr) for job in jobs] == [
        ("SGD", 1, 0.5),
        ("SGD", 2, 0.5),
        ("Adam", 1, 0.5),
        ("Adam", 2, 0.5),
    ]


@pytest.mark.parametrize("typed", ["optimizer=sgd,sdg", "seed=1,", "optimizer.lr=[1"])
def test_a_sweep_with_a_wrong_job(typed: str) -> None:
    with pytest.raises(ConfigError):
        plan([typed, "data=wine,iris"])


def test_leaves_somebody_elses_hydra_alone(tmp_path: Path) -> None:
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
    with pytest.raises(ConfigError, match="no option 'mine'"):
        compose(["model=mine"])
    monkeypatch.chdir(tmp_path)
    assert compose(["model=mine"]).model._target_ == "torch.nn.Identity", "./conf is found by itself"
    assert compose(["model=mlp"]).model._target_ == "assay.model.mlp.MLP", "beside assay's own"


def test_own_folder_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"), loader(tmp_path / "nowhere"):
        pass


def test_what_is_done_to_one_job_is_not_seen_by_the_next() -> None:
    """What is shipped is read once by a process."""
    first = compose(["optimizer=adamw"])
    whole = plain(job_config(first).optimizer)
    OmegaConf.set_struct(first, False)
    first.optimizer.lr = "changed"
    again = compose(["optimizer=adamw"])
    assert plain(job_config(again).optimizer) == whole


def test_a_file_of_the_users_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "conf" / "model" / "own.yaml"
    path.parent.mkdir(parents=True)
    with loader(path.parents[1]) as hydra:
        for width in (3, 5, 7):
            path.write_text(f"# A net.\n_target_: torch.nn.Linear\nin_features: {width}\nout_features: 1\n")
            assert compose_with(hydra, ["model=own"]).model.in_features == width


def test_short_id_is_the_same_within_one_config_only() -> None:
    register_resolvers()
    one, two = (OmegaConf.create({"a": "${short_id:}", "b": "x-${short_id:}"}) for _ in range(2))
    assert re.fullmatch(r"[0-9a-f]{6}", one.a)
    assert one.b == f"x-{one.a}"
    assert one.a != two.a


def test_registering_again_does_no_harm() -> None:
    register_resolvers()
    register_resolvers()
    assert OmegaConf.has_resolver("short_id")


@pytest.mark.parametrize(
    "typed",
    ["experiment=digits_image", "debug=small", "task=binary", "experiment=[digits_image,digits_longtail]"],
)
def test_a_plus_before_a_group_that_has_no_option_yet_changes_nothing(typed: str) -> None:
    plain, added = compose_job([typed]), compose_job([f"+{typed}"])
    assert added.fingerprint == plain.fingerprint
    assert (added.choices, added.set_by) == (plain.choices, plain.set_by)


def test_a_plus_before_a_group_that_has_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="is there already") as caught:
        compose(["+model=mlp"])
    assert caught.value.hint == "leave out the plus: model=…"


def test_a_plus_stays_in_the_jobs_of_a_sweep() -> None:
    plain, added = (plan([f"{sign}experiment=digits_image,digits_longtail"]) for sign in ("", "+"))
    jobs = [[job_config(job) for job in jobs] for jobs in (plain, added)]
    for one, other in zip(*jobs, strict=True):
        one.run_dir = other.run_dir
        assert one == other
