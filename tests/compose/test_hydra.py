"""What Hydra's documentation says, and what docs/hydra.md says instead."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any

import hydra.utils
import pytest
from omegaconf import OmegaConf
from packaging.version import Version
from tests.command import ASSAY, documented, typed

import assay.config
from assay.check.checker import Checker
from assay.compose.compose import compose, compose_job, loader
from assay.config.serialize import to_raw_dict
from assay.config.tree import walk
from assay.errors import ConfigError
from assay.targets.allowed_targets import check_name
from assay.targets.trust import Trust
from assay_explain.listing import options_of
from assay_explain.origin import explain
from assay_sweep.definition import compose_sweep
from assay_sweep.session import plan_sweep

if TYPE_CHECKING:
    from pathlib import Path

IS_1_4 = Version(version("hydra-core")) >= Version("1.4.dev0")
NETWORK = "# A network.\n_target_: assay.model.mlp.MLP\nhidden: [4]\n"
SWEPT = """# @package _global_
defaults:
  - override /data: wine
  - override /model: mlp
hydra:
  mode: MULTIRUN
  sweeper:
    params:
      optimizer.lr: 0.1,0.01
"""
STORE = """
from dataclasses import dataclass
from enum import Enum
from typing import Tuple

from hydra.core.config_store import ConfigStore


class Kind(Enum):
    SMALL = 1


@dataclass
class Net:
    _target_: str = "assay.model.mlp.MLP"
    hidden: Tuple[int, int] = (7, 5)
    kind: Kind = Kind.SMALL
    inner: Tuple[dict, ...] = ({"_target_": "os.system"},)


ConfigStore.instance().store(group="model", name="stored_PACKAGE", node=Net)
ConfigStore.instance().store(group="lab_PACKAGE", name="one", node={"lr": 0.5})
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a network and a sweep, in the current directory."""
    write(tmp_path, "conf/model/here.yaml", NETWORK)
    write(tmp_path, "conf/experiment/swept.yaml", SWEPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def store(project: Path, package: str) -> None:
    write(project, f"{package}/__init__.py", "")
    write(project, f"{package}/parts/options.py", STORE.replace("PACKAGE", package))
    write(project, f"{package}/parts/broken.py", "raise RuntimeError\n")  # names no options: not imported


def test_the_versions_go_together() -> None:
    pair = Version(version("hydra-core")).release[:2], Version(version("omegaconf")).release[:2]
    assert pair in (((1, 3), (2, 3)), ((1, 4), (2, 4)))


def test_versions_that_do_not_go_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omegaconf.__version__", "2.3.0" if IS_1_4 else "2.4.0")
    with pytest.raises(ImportError, match=r"this Hydra: 1\.3 needs OmegaConf 2\.3"):
        runpy.run_path(assay.config.__file__)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "hydra", None)
    with pytest.raises(ImportError, match="does not go with this Hydra"):
        runpy.run_path(assay.config.__file__)


def test_another_module_of_the_name_is_not_taken_for_hydra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hydra", ModuleType("hydra"))
    monkeypatch.setattr("omegaconf.__version__", "2.4.0")
    with pytest.raises(ImportError, match="does not go with this Hydra"):
        runpy.run_path(assay.config.__file__)


def test_a_plugin_of_another_hydra_is_named_and_left_out(tmp_path: Path) -> None:
    write(tmp_path, "hydra_plugins/old.py", "from hydra.core.no_longer import This\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [*ASSAY, "train", "--cfg", "-p", "optimizer"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("# @package optimizer")
    assert "Error importing 'hydra_plugins.old'" in done.stderr


@pytest.mark.filterwarnings("ignore:hydra.job.override_dirname is deprecated")
def test_the_name_of_the_overrides() -> None:
    directory = "hydra.run.dir=runs/${hydra.job.override_dirname}"
    config = compose(
        ["data=wine", directory, "optimizer.lr=0.1", "hydra.job.config.override_dirname.kv_sep=-"]
    )
    assert config.run_dir == "runs/data-wine,optimizer.lr-0.1"


def test_a_mode_in_an_experiment_makes_a_sweep_with_its_parameters(project: Path) -> None:
    assert Checker().single_job(["experiment=swept"]) is None
    assert Checker().single_job(["hydra.mode=MULTIRUN", "seed=1,2"]) is None
    assert Checker().single_job(["model=here"]) is not None
    with pytest.raises(ConfigError, match="seed=1,2"):
        Checker().single_job(["model=here", "seed=1,2"])
    printed = typed("train", "--cfg", "-p", "optimizer", "experiment=swept", folder=project).stdout
    assert [line for line in printed.splitlines() if line.startswith("lr:")] == ["lr: 0.1", "lr: 0.01"]
    with pytest.raises(ConfigError, match="asks for a sweep, but this is a single run") as refused:
        compose_job(["experiment=swept"])
    assert (refused.value.key, refused.value.hint) == ("hydra.mode", "assay train -m experiment=swept")
    assert explain("model.hidden", ["experiment=swept"]).key == "model.hidden"


def test_a_folder_is_added_to_that_of_the_project(project: Path) -> None:
    more = project / "more"
    write(more, "model/there.yaml", NETWORK)
    for name in ("here", "there"):
        assert compose([f"model={name}"], more).model.hidden == [4]
        assert name in {option.name for option in options_of("model", more)}
    assert compose(["model=here"], project / "conf").model.hidden == [4], "named twice"
    write(more, "model/here.yaml", NETWORK)
    with pytest.raises(ConfigError, match=r"would be ignored: conf/model/here\.yaml takes precedence"):
        compose(["model=here"], more)


def test_a_folder_from_elsewhere_is_still_asked_about(project: Path) -> None:
    write(project, "conf/project.yaml", "trusted_packages: [ours]\n")
    write(project, "more/project.yaml", "trusted_packages: [theirs]\n")
    with pytest.raises(ConfigError, match="asks to trust theirs"):
        compose([], project / "more")
    assert compose(["trusted_packages=[]"], project / "more").trusted_packages == ["ours"]


def test_an_option_of_the_config_store_of_a_trusted_package(project: Path) -> None:
    store(project, "stored_lab")
    with pytest.raises(ConfigError, match="unknown option 'stored_stored_lab'"):
        compose(["model=stored_stored_lab"])
    trust = "trusted_packages=[stored_lab]"
    config = compose(
        ["model=stored_stored_lab", "+lab_stored_lab=one", "optimizer.lr=${lab_stored_lab.lr}", trust]
    )
    plain = to_raw_dict(config)
    assert plain["model"]["hidden"] == [7, 5]
    assert plain["model"]["kind"] == "SMALL"
    assert OmegaConf.create(plain).optimizer.lr == 0.5
    (setting,) = explain("model.hidden", ["model=stored_stored_lab", trust]).set_by
    assert setting.where == "ConfigStore"


def test_what_lies_in_a_tuple_is_looked_at(project: Path) -> None:
    store(project, "tuple_lab")
    words = ["model=stored_tuple_lab", "data=wine", "trusted_packages=[tuple_lab]"]
    assert "model.inner[0]._target_" in {entry.key for entry in walk(compose(words))}


def test_a_module_of_options_that_cannot_be_imported_is_named(project: Path) -> None:
    write(project, "broken_lab.py", "ConfigStore\n")
    with pytest.raises(ConfigError, match="broken_lab cannot be imported: NameError"):
        compose(["trusted_packages=[broken_lab]"])


@pytest.mark.parametrize("models", ["small_cnn,mlp", "mlp,small_cnn"])
def test_the_swept_option_without_a_key_is_named(models: str) -> None:
    with pytest.raises(ConfigError, match="unknown key") as refused:
        plan_sweep([f"model={models}", "model.hidden=[8]", "data=wine"])
    assert refused.value.key == "model.hidden"
    assert "model=small_cnn has: " in refused.value.hint


def test_a_key_that_all_swept_options_have_needs_no_plus() -> None:
    with loader() as opened:
        composed = compose_sweep(opened, ["model=mlp,linear", "data=wine", "model.hidden=[8]"], Trust())
    assert composed.model.hidden == [8]


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (["--cfg", "job", "-p", "optimizer"], "# @package optimizer"),
        (["--cfg", "hydra", "-p", "hydra.sweeper"], "# @package hydra.sweeper"),
        (["--cfg", "hydra"], "hydra:"),
        (["--info", "defaults"], ""),
    ],
)
def test_what_it_prints_and_does_not_run(words: list[str], first: str, tmp_path: Path) -> None:
    printed = typed("train", *words, "data=wine", folder=tmp_path).stdout
    assert printed.startswith(first)
    assert not list(tmp_path.iterdir())


def test_both_parts_of_the_config(tmp_path: Path) -> None:
    printed: Any = OmegaConf.create(typed("train", "--cfg", "all", "data=wine", folder=tmp_path).stdout)
    assert {"hydra", "model", "optimizer"} <= {*printed}


def test_what_hydra_prints_is_no_document(tmp_path: Path) -> None:
    code, document = documented("train", "--info", folder=tmp_path)
    assert (code, document["error"]["key"]) == (2, "--info")


@pytest.mark.parametrize("word", ["optimizer.lr", "nothing"])
def test_only_a_node_can_be_printed_alone(word: str, tmp_path: Path) -> None:
    typed("train", "--cfg", "-p", word, "data=wine", code=2, folder=tmp_path)


@pytest.mark.skipif(not IS_1_4, reason="Hydra 1.3 has none")
def test_the_whitelist_of_hydra_counts_beside_ours() -> None:
    whitelist: Any = hydra.utils.execution_whitelist  # type: ignore[attr-defined]
    with whitelist(["torch.optim.*", "os.system"]):
        check_name("optimizer", "torch.optim.SGD", ())
        for target in ("torch.nn.ReLU", "os.system"):
            with pytest.raises(ConfigError):
                check_name("model", target, ())
    check_name("model", "torch.nn.ReLU", ())
