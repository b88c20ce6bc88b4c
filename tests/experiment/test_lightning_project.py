"""A project in the style of lightning-hydra-template, moved by the lines of docs/from_lightning.md."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.command import documented, typed

import assay

PROJECT = Path(__file__).parent / "lightning_project"
PAGE = (Path(__file__).parents[2] / "docs/from_lightning.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
CHANGES, COMMANDS = BLOCKS[0], BLOCKS[1].splitlines()
LEFT_OUT = "the hyper-parameters net, optimizer, scheduler"
QUICK = ("experiment=example", "device=cpu")
# Lightning's advice to whoever keeps a network by `save_hyperparameters`, as such projects do.
pytestmark = pytest.mark.filterwarnings("ignore:Attribute 'net' is an instance of")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project once the page's first lines were typed in it."""
    copy = tmp_path_factory.mktemp("lightning") / "project"
    shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["/bin/sh", "-e", "-c", CHANGES], cwd=copy, check=True)
    return copy


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))


def record_of(run: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(Path(run, "record.json").read_text(encoding="utf-8"))
    return record


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, str]:
    """What each command of the page says; they are typed in the page's order."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.syspath_prepend(str(folder))
        return {line: " ".join(typed(*shlex.split(line)[1:]).output.split()) for line in COMMANDS}


def test_every_command_of_the_page_works(said: dict[str, str]) -> None:
    verbs = [line.split()[1] for line in said]
    assert verbs == ["check", "train", "resume", "eval", "train", "compare"]
    assert "resume" in said[COMMANDS[2]] or "resuming from step" in said[COMMANDS[2]]


def test_check_and_train_say_once_what_a_checkpoint_leaves_out(said: dict[str, str]) -> None:
    check, train = (said[line] for line in COMMANDS[:2])
    assert (check.count(LEFT_OUT), train.count(LEFT_OUT)) == (1, 1)


@pytest.mark.usefixtures("said")
def test_a_checkpoint_keeps_what_is_plain() -> None:
    for role in ("best", "last"):
        saved = torch.load(f"runs/first/checkpoints/{role}.ckpt", weights_only=True)
        assert saved["hyper_parameters"] == {"compile": False}
        assert saved["datamodule_hyper_parameters"]["splits"] == [1200, 300, 297]
        assert saved["datamodule_hyper_parameters"]["batch_size"] == 64


@pytest.mark.usefixtures("said")
def test_a_resumed_run_ends_as_one_that_was_never_interrupted() -> None:
    typed("train", *QUICK, "trainer.max_epochs=4", "hydra.run.dir=runs/whole")
    whole, resumed = record_of("runs/whole"), record_of("runs/first")
    assert whole["weights_sha256"] == resumed["weights_sha256"]
    assert whole["metrics"] == resumed["metrics"]
    assert whole["metrics"]["test/acc"] > 0.85


@pytest.mark.usefixtures("said")
def test_a_run_loads_as_the_projects_own_module() -> None:
    from src.data.digits_datamodule import DigitsDataModule  # type: ignore[import-not-found]  # in the copy
    from src.models.components.dense_net import DenseNet  # type: ignore[import-not-found]  # in the copy
    from src.models.digits_module import DigitsLitModule  # type: ignore[import-not-found]  # in the copy

    path = "runs/first/checkpoints/best.ckpt"
    network = DenseNet(64, 32, 10)
    lightnings = DigitsLitModule.load_from_checkpoint(
        path, net=network, optimizer=None, scheduler=None
    ).eval()
    module = assay.load("runs/first", raw_input=False)
    assert type(module) is DigitsLitModule
    data = DigitsDataModule()
    data.setup()
    pictures, labels = next(iter(data.test_dataloader()))
    with torch.no_grad():
        expected = lightnings.cpu()(pictures)
        assert torch.allclose(assay.load("runs/first", map_location="cpu")(pictures), expected, atol=1e-6)
        assert torch.allclose(module.cpu().eval()(pictures), expected, atol=1e-6)
    assert (expected.argmax(1) == labels).float().mean() > 0.85


@pytest.mark.parametrize("path", ["data/digits.yaml", "callbacks/default.yaml", "train.yaml"])
def test_a_file_that_assays_own_hides_is_refused(path: str, folder: Path) -> None:
    hidden = folder / "conf" / path
    hidden.parent.mkdir(exist_ok=True)
    hidden.write_text("seed: 1\n", encoding="utf-8")
    try:
        said = " ".join(typed("check", "data=digits", code=2).output.split())
        assert f"assay's own {path} takes precedence (conf/{path})" in said
    finally:
        hidden.unlink()


def test_its_settings_are_tuned_though_its_data_names_no_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay_lab.measure.candidates", lambda *_: [(False, ["trainer.max_epochs=99"])])
    monkeypatch.setattr("assay_lab.measure._STEPS", 9)
    code, found = documented("tune", *QUICK, "data.batch_size=8")
    assert (code, [one["gain"] is None for one in found["settings"]]) == (0, [True, False]), found
