"""Configs of other projects become an assay project that trains, and no code of theirs runs before."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.config_store import ConfigStore
from tests.command import documented, typed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/convert.md").read_text(encoding="utf-8")
MOVE, CLI = (
    block.splitlines() for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
)
CONFIG = """
seed_everything: 7
trainer:
  accelerator: cuda
  strategy: ddp_find_unused_parameters_true
  devices: 2
  precision: bf16-mixed
  max_epochs: null
  max_steps: 30
  fast_dev_run: 3
  callbacks:
  - class_path: lightning.pytorch.callbacks.EarlyStopping
    init_args: {monitor: val/acc, patience: 4}
  - {class_path: lightning.pytorch.callbacks.ModelCheckpoint, init_args: {monitor: val/acc, mode: max}}
  logger: {class_path: lightning.pytorch.loggers.TensorBoardLogger, init_args: {save_dir: logs}}
model:
  class_path: nets.LitNet
  init_args: {lr: 1e-3, net: {class_path: torch.nn.Linear, init_args: {in_features: 2}}}
data: {class_path: nets.Points}
optimizer: {class_path: torch.optim.Adam}
ckpt_path: null
"""

FORK = """
fork/mine/__init__.py: raise SystemExit('was run')
fork/configs/train.yaml: |
  defaults: [_self_, {datamodule: mnist.yaml}, {module: lit}, {logger: many}, {callbacks: default},
    {trainer: gpu}, {extras: default}]
  task_name: t
  test: false
  classes: 10
  unread: 3
fork/configs/eval.yaml: "{defaults: [{module: lit}], ckpt_path: '???'}"
fork/configs/extras/default.yaml: "print_config: true"
fork/configs/datamodule/mnist.yaml: |
  _target_: mine.Data # theirs
  n: ${module.n}
fork/configs/datamodule/small.yaml: |
  defaults:
    - mnist
  _target_: mine.Data
fork/configs/module/lit.yaml: |
  _target_: mine.Lit
  n: ${classes}
  size: ${datamodule.n}
  steps: ${eval:'__import__("os").abort()'} # of Python
  other: {_target_: monai.Net}
fork/configs/trainer/default.yaml: |
  _target_: pytorch_lightning.Trainer
  max_epochs: 3
  accelerator: cpu
  auto_lr_find: true
fork/configs/trainer/gpu.yaml: "{defaults: [default], accelerator: gpu, precision: 16}"
fork/configs/logger/many.yaml: |
  wandb: {_target_: pytorch_lightning.loggers.WandbLogger, project: p, save_dir: x}
  neptune: {_target_: lightning.pytorch.loggers.NeptuneLogger}
fork/configs/callbacks/default.yaml: |
  swa: {_target_: pytorch_lightning.callbacks.StochasticWeightAveraging, swa_lrs: 0.1}
  bar: {_target_: lightning.pytorch.callbacks.RichProgressBar}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder := tmp_path / "a folder").mkdir()
    monkeypatch.chdir(folder)
    return folder


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def read(path: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    return content


def choices(experiment: dict[str, Any]) -> dict[str, Any]:
    return {
        key.split()[-1].strip("/"): option for item in experiment["defaults"] for key, option in item.items()
    }


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Attribute 'net' is an instance of")
def test_every_command_of_the_page_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = ROOT / "tests/experiment/lightning_project"
    shutil.copytree(project, "lightning_project", ignore=shutil.ignore_patterns("__pycache__"))
    write(folder, {"cli/config.yaml": CONFIG, "cli/nets.py": "raise SystemExit('was run')\n"})
    for line in [*CLI, *MOVE]:
        if line.startswith("cd "):
            monkeypatch.chdir(line.removeprefix("cd "))
            monkeypatch.syspath_prepend(str(Path.cwd()))
        else:
            typed(*shlex.split(line)[1:])
    records = [json.loads(path.read_text(encoding="utf-8")) for path in Path("runs").glob("*/record.json")]
    assert [record["status"] for record in records] == ["finished"]


def test_the_project_of_the_page(folder: Path) -> None:
    _, document = documented("convert", str(ROOT / "tests/experiment/lightning_project"))
    assert sorted(document["experiments"]) == ["example", "train"]
    assert document["trusted_packages"] == ["src"]
    moved = Path(document["folder"])
    assert moved == Path("lightning_project_assay")
    assert read(f"{moved}/conf/project.yaml") == {"trusted_packages": ["src"]}
    original = ROOT / "tests/experiment/lightning_project/configs/model/dense.yaml"
    assert (moved / "conf/module/dense.yaml").read_bytes() == original.read_bytes()
    experiment = read(f"{moved}/conf/experiment/example.yaml")
    assert (
        choices(experiment).items() >= {"module": "dense", "data": "digits_pictures", "device": "cpu"}.items()
    )
    assert experiment["trainer"] == {"min_epochs": 2, "max_epochs": 3, "gradient_clip_val": 0.5}
    assert experiment["callbacks"] == {"checkpoint": {"monitor": "val/acc", "mode": "max"}}
    assert experiment["module"] == {"optimizer": {"lr": 0.002}, "net": {"hidden": 32}}
    assert experiment["seed"] == 12345


def test_a_fork_that_names_things_otherwise(folder: Path) -> None:
    write(folder, yaml.safe_load(FORK))
    _, document = documented("convert", "fork")
    assert not any(name == "mine" for name in sys.modules)
    assert document["mapped"]["eval"] == "assay eval RUN"
    assert document["mapped"]["trainer/gpu"] == "device=gpu precision=fp16"
    data = Path("fork_assay/conf/data/my_mnist.yaml").read_text(encoding="utf-8")
    assert data == "_target_: mine.Data # theirs\nn: ${module.n}\n"
    assert read("fork_assay/conf/data/small.yaml")["defaults"] == ["my_mnist"]
    assert read("fork_assay/conf/module/lit.yaml")["size"] == "${data.n}"
    train = read("fork_assay/conf/experiment/train.yaml")
    expected = {
        "data": "my_mnist",
        "device": "gpu",
        "precision": "fp16",
        "logger": ["csv", "wandb"],
        "module": "lit",
    }
    assert choices(train) == {**expected, "callbacks": ["default"]}
    assert train["trainer"] == {"max_epochs": 3}
    assert train["logger"] == {"wandb": {"project": "p"}}
    swa = {"_target_": "lightning.pytorch.callbacks.StochasticWeightAveraging", "swa_lrs": 0.1}
    assert train["callbacks"] == {"swa": swa}
    assert train["classes"] == 10
    assert not train.keys() & {"task_name", "test", "unread"}
    unsure = {name: str(doubts) for name, doubts in document["unsure"].items()}
    assert "unread=3" in unsure["train"]
    assert "assay eval RUN" in unsure["train"]
    assert "abort" in unsure["module/lit"]
    assert "monai" in unsure["module/lit"]
    assert "auto_lr_find" in unsure["trainer/default"]
    assert "NeptuneLogger" in unsure["logger/many"]


def test_a_lightning_cli(folder: Path) -> None:
    write(folder, {"cli/config.yaml": CONFIG, "cli/nets.py": "raise SystemExit('was run')\n"})
    said = typed("convert", "cli/config.yaml").output
    assert "trainer.fast_dev_run=3" in said
    assert "optimizer" in said
    module = {
        "_target_": "nets.LitNet",
        "lr": 0.001,
        "net": {"_target_": "torch.nn.Linear", "in_features": 2},
    }
    assert read("cli_assay/conf/module/lit_net.yaml") == module
    assert Path("cli_assay/nets.py").is_file()
    experiment = read("cli_assay/conf/experiment/config.yaml")
    expected = {"module": "lit_net", "data": "points", "device": "ddp", "precision": "bf16"}
    assert choices(experiment) == {**expected, "logger": ["csv", "tensorboard"], "callbacks": ["default"]}
    assert experiment["trainer"] == {"devices": 2, "max_steps": 30, "max_epochs": -1}
    assert experiment["seed"] == 7
    assert experiment["callbacks"]["early_stopping"]["patience"] == 4


@pytest.mark.parametrize(
    ("files", "words", "said"),
    [
        ({"p/notes.txt": ""}, ["p"], "expected configs/train.yaml"),
        ({}, ["nowhere"], "nowhere: expected configs/train.yaml"),
        ({"p/config.yaml": "a: [1"}, ["p"], "invalid YAML"),
        ({"p/config.yaml": "a: !!python/object/apply:os.abort []"}, ["p"], "plain YAML, without tags"),
        ({"p/config.yaml": "a: 1"}, ["p"], "expected the keys trainer and model (p/config.yaml)"),
        ({"p/config.yaml": CONFIG, "q/file": ""}, ["p", "--out", "q"], "--out: q exists; refusing"),
        ({"p/conf/project.yaml": ""}, ["p"], "p: is already an assay project"),
        ({"p/config.yaml": "trainer: {}\nmodel: {lr: 1}"}, ["p"], "nothing was written"),
    ],
)  # fmt: skip
def test_bad_input(folder: Path, files: dict[str, str], words: list[str], said: str) -> None:
    write(folder, files)
    before = sorted(Path().rglob("*"))
    code, document = documented("convert", *words)
    assert code in (1, 2)
    assert said in document["error"]["message"]
    assert sorted(Path().rglob("*")) == before


@dataclass
class Schema:
    seed: int = 0


def test_the_schema_of_an_installed_plugin_is_not_assays(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ConfigStore.instance().repo["hydra"].get("sweeper", {})
    monkeypatch.setitem(ConfigStore.instance().repo["hydra"], "sweeper", dict(tree))
    ConfigStore.instance().store(group="hydra/sweeper/sampler", name="tpe", node=Schema)
    words = ("hydra/sweeper=optuna", "--cfg", "seed=1,2", "optimizer.lr=0.1,0.2")
    printed = typed("train", "-m", *words).stdout
    assert "seed: 1\n" in printed, "a job is shown, with assay's own options"
