"""Runs of a project of its own, reproduced from a clone; what is refused, and what differs and why."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import shutil
import signal
import sys
import time
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import git
import msgspec
import psutil
import pytest
from tests.conftest import DEVICES
from tests.forks import Forks

from assay.checkpoint.checkpoint_file import CheckpointFile
from assay.errors import AssayError
from assay.files.checksum import seal_json, seal_yaml
from assay.record.run_record import RunRecord
from assay_lab.reproduce import Reproduction, causes, differences, first_value, reproduce
from assay_lab.run_again import _check_origin

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, num_features: int, num_outputs: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(num_features, width), nn.{activation}(), nn.Dropout(0.1),
            nn.Linear(width, num_outputs),
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)
"""
MODEL = """# A network of the project's own.
_target_: lab.net.Net
num_features: ${spec.num_features}
num_outputs: ${spec.num_outputs}
width: 12
"""
QUICK = ("trainer.max_epochs=2", "model=net", "callbacks=[default]", "~callbacks.progress_bar")


@dataclass(frozen=True)
class Lab:
    """A project under git, and the runs that were made in it."""

    root: Path

    def git(self, *arguments: str) -> str:
        return str(git.Repo(self.root).git.execute(["git", *arguments]))

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def train(self, name: str, *overrides: str, device: str = "cpu") -> Path:
        """One run in a process of its own, which knows the code of the lab as it is now."""
        run_dir = self.root.parent / "runs" / name
        code, said = self.typed("train", f"device={device}", *QUICK, *overrides, f"hydra.run.dir={run_dir}")
        assert code == 0, said
        return run_dir

    def clone(self, name: str) -> Lab:
        git.Repo(self.root).clone(str(self.root.parent / name))
        return Lab(self.root.parent / name)

    def reproduce(self, run_dir: Path, **options: Any) -> Reproduction:
        with chdir(self.root):
            return reproduce(run_dir, **options)

    def typed(self, *words: str) -> tuple[int, str]:
        """What the command ends with and says, in a fork; a process that it starts is one, too."""
        output = self.root.parent / f"output of {self.root.name}.txt"
        with Forks() as forks:
            ended = forks.command(*words, cwd=self.root, output=output, forked_children=1)
        said = output.read_text(encoding="utf-8")
        output.unlink()
        return ended.code, said

    def content(self) -> dict[str, bytes]:
        every = (path for path in self.root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {str(path.relative_to(self.root)): path.read_bytes() for path in every}


@pytest.fixture(autouse=True)
def own_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of whoever runs the tests reaches git, and one thread does the sums."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    _clean(monkeypatch)


def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name, value in (("NAME", "A"), ("EMAIL", "a@example.org")):
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", value)
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", value)


def make_lab(folder: Path) -> Lab:
    lab = Lab(folder / "lab")
    lab.root.mkdir()
    git.Repo.init(lab.root, initial_branch="main")
    lab.write("lab/__init__.py", "")
    lab.write("lab/net.py", NET.replace("{activation}", "ReLU"))
    lab.write("conf/project.yaml", "trusted_packages: [lab]\n")
    lab.write("conf/model/net.yaml", MODEL)
    lab.git("add", "--all")
    lab.git("commit", "-m", "start")
    return lab


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Path, Path, str]:
    """A lab, a run of its clean tree, a run of its dirty tree, and the commit of both."""
    with pytest.MonkeyPatch.context() as patch:
        _clean(patch)
        lab = make_lab(tmp_path_factory.mktemp("made"))
        commit = lab.git("rev-parse", "HEAD")
        clean = lab.train("clean", "data=iris")
        # Python takes a file of the same size and second for the one that it has compiled.
        lab.write("lab/net.py", NET.replace("{activation}", "GELU") + "# another one\n")
        lab.write("lab/untracked.py", "x = 1\n")
        dirty = lab.train("dirty", "data=iris")
        lab.git("add", "--all")
        lab.git("commit", "-m", "the work went on")
        lab.write("lab/net.py", NET.replace("{activation}", "Tanh"))
        lab.git("commit", "-a", "-m", "and on")
    return lab, clean, dirty, commit


def copied(run_dir: Path, folder: Path) -> Path:
    """A run to tamper with; its config says where it was."""
    shutil.copytree(run_dir, folder / "tampered" / run_dir.name)
    return folder / "tampered" / run_dir.name


def edit_record(run_dir: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """As somebody would who knows how a record is sealed."""
    path = run_dir / "record.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    record.pop("sha256")
    change(record)
    path.write_text(seal_json(json.dumps(record, indent=2)), encoding="utf-8")


# -- the same again ----------------------------------------------------------------------------------------


def test_identical_from_a_fresh_clone_whose_code_has_gone_on(
    made: tuple[Lab, Path, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here of a run under other packages, hash seed and locale, whose checkpoints were removed."""
    monkeypatch.setenv("PYTHONHASHSEED", "2026")
    monkeypatch.setenv("LC_ALL", "POSIX")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    lab, clean, dirty, commit = made
    assert RunRecord.load(dirty).git == {**(RunRecord.load(clean).git or {}), "dirty": True}
    assert (RunRecord.load(clean).git or {})["commit"] == commit
    run_dir = copied(dirty, tmp_path)
    edit_record(run_dir, lambda record: record["packages"].update(torch="2.0.0"))
    shutil.rmtree(run_dir / "checkpoints")
    clone = lab.clone("fresh")
    before = clone.content(), {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    status = clone.git("status", "--porcelain")
    code, refused = clone.typed("reproduce", str(run_dir))
    assert code == 1
    assert "code.patch (lab/net.py, lab/untracked.py) would be run" in " ".join(refused.split())
    assert "--trust-code" in refused
    code, same = clone.typed("reproduce", str(run_dir), "--trust-code")
    assert code == 0, same
    rows = len((run_dir / "metrics.csv").read_text(encoding="utf-8").splitlines()) - 1
    weights = RunRecord.load(dirty).weights_sha256
    assert f"identical: {rows} rows of metrics.csv, all scores and the weights" in same
    assert f"(SHA-256 {weights[:12]})" in same
    assert rows > 4
    assert weights
    notes = [line for line in same.splitlines() if line.startswith("note: ")]
    assert len(notes) == 2
    assert f"note: packages: torch 2.0.0 then, {importlib.metadata.version('torch')} now" in notes
    assert any("last.ckpt; the record holds the SHA-256 of the weights" in note for note in notes)
    assert "Traceback" not in same
    assert not list(scratch.iterdir()), "a run that is the same is not kept"
    after = clone.content(), {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    assert before == after
    assert clone.git("status", "--porcelain") == status
    assert clone.git("worktree", "list").count("\n") == 0


# -- tampered with -----------------------------------------------------------------------------------------


def test_config(made: tuple[Lab, Path, Path, str], tmp_path: Path) -> None:
    lab, clean, *_ = made
    run_dir = copied(clean, tmp_path)
    text = (run_dir / "config.yaml").read_text(encoding="utf-8")
    sealed = text.replace("max_epochs: 2", "max_epochs: 3").rpartition("# sha256:")[0]
    (run_dir / "config.yaml").write_text(seal_yaml(sealed), encoding="utf-8")
    with pytest.raises(AssayError, match=r"config\.yaml in .* has changed since the run wrote it"):
        lab.reproduce(run_dir, trust_code=True)


@pytest.mark.parametrize("commit", ["0" * 40, "HEAD", "--output=x", ""])
def test_commit(made: tuple[Lab, Path, Path, str], tmp_path: Path, commit: str) -> None:
    lab, clean, *_ = made
    run_dir = copied(clean, tmp_path)
    edit_record(run_dir, lambda record: record["git"].update(commit=commit))
    with pytest.raises(AssayError, match=r"code cannot be restored: (commit .* is not in|it has neither)"):
        lab.reproduce(run_dir, trust_code=True)


def test_data(made: tuple[Lab, Path, Path, str], tmp_path: Path) -> None:
    """Of code that lies here, which needs no trust to be run."""
    lab, clean, _, commit = made
    clone = lab.clone("with-other-data")
    clone.git("checkout", "--detach", commit)
    run_dir = copied(clean, tmp_path)
    edit_record(run_dir, lambda record: record.update(data_sha256="0" * 64))
    code, said = clone.typed("reproduce", str(run_dir))
    assert code == 1
    assert "the data has changed since the run began" in said


def test_patch(made: tuple[Lab, Path, Path, str], tmp_path: Path) -> None:
    lab, _, dirty, _ = made
    run_dir = copied(dirty, tmp_path)
    patch = run_dir / "code.patch"
    patch.write_text(patch.read_text(encoding="utf-8").replace("GELU", "SELU"), encoding="utf-8")
    with pytest.raises(AssayError, match=r"code\.patch in .* has changed since the run wrote it"):
        lab.reproduce(run_dir, trust_code=True)


@pytest.mark.parametrize("known", [pytest.param(True, marks=pytest.mark.long), False])
def test_weights(made: tuple[Lab, Path, Path, str], tmp_path: Path, known: bool) -> None:
    lab, clean, *_ = made
    run_dir = copied(clean, tmp_path)
    path = run_dir / "checkpoints" / "last.ckpt"
    checkpoint = CheckpointFile().load_checkpoint(path)
    next(iter(checkpoint["state_dict"].values())).flatten()[0] += 1
    CheckpointFile().save_checkpoint(checkpoint, path)
    with pytest.raises(AssayError, match=r"checkpoints/last\.ckpt in .* has changed since the run wrote it"):
        lab.reproduce(run_dir, trust_code=True)
    if known:
        edit_record(run_dir, lambda record: record["files"].pop("checkpoints/last.ckpt"))
        edit_record(run_dir, lambda record: record.update(weights_sha256="0" * 64))
        result = lab.reproduce(run_dir, trust_code=True)
        assert [line.partition(":")[0] for line in result.different] == ["weights"]
        assert result.kept is not None
        shutil.rmtree(result.kept.parent)


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGHUP", marks=pytest.mark.long)])
def test_told_to_stop_nothing_is_left(made: tuple[Lab, Path, Path, str], tmp_path: Path, name: str) -> None:
    lab, clean, *_ = made
    children: list[psutil.Process] = []
    with Forks(TMPDIR=str(tmp_path)) as forks:
        output = tmp_path.parent / f"{name}.txt"
        forks.start("reproduce", str(clean), "--trust-code", cwd=lab.root, output=output)
        while not forks.has_ended() and not children:
            for one in psutil.Process(forks.pid).children(recursive=True):
                with suppress(psutil.Error):  # git has ended
                    children += [one] if "assay_lab.run_side" in one.cmdline() else []
            time.sleep(0.01)
        [command] = psutil.Process(forks.pid).children()
        command.send_signal(getattr(signal, name))
        ended, said = forks.wait(), output.read_text()
    assert ended.code == {"SIGTERM": 143, "SIGHUP": 129}[name], said
    assert f"stopped by {name}" in said
    assert list(tmp_path.iterdir()) == []
    assert not any(one.is_running() for one in children)


# -- what cannot be reproduced -------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["failed", "interrupted", "running"])
def test_a_run_that_has_not_ended_well(
    made: tuple[Lab, Path, Path, str], tmp_path: Path, status: str
) -> None:
    lab, clean, *_ = made
    run_dir = copied(clean, tmp_path)
    edit_record(run_dir, lambda record: record.update(status=status))
    with pytest.raises(AssayError, match=f"is not a finished run: its status is {status}"):
        lab.reproduce(run_dir)


def test_what_is_not_trusted_here(made: tuple[Lab, Path, Path, str]) -> None:
    lab, clean, _, commit = made
    clone = lab.clone("trusts-nothing")
    clone.git("checkout", "--detach", commit)
    clone.git("rm", "-q", "--cached", "conf/project.yaml")
    (clone.root / "conf" / "project.yaml").unlink()
    with pytest.raises(AssayError, match=r"cannot be reproduced: model\._target_"):
        clone.reproduce(clean, trust_code=True)


# -- the long proof ------------------------------------------------------------------------------------------

MANY = [
    ("data=iris",),
    ("data=digits", "augment=mixup", "trainer.limit_train_batches=5"),
    ("data=iris", "callbacks=[default,ema]"),
    ("data=iris", "callbacks=[default,swa]", "scheduler=none"),
    ("data=digits", "data.num_workers=2", "trainer.limit_train_batches=3"),
    ("data=wine", "trainer.accumulate_grad_batches=3", "trainer.deterministic=true"),
    ("data=digits", "model=resnet18", "trainer.limit_train_batches=2", "trainer.deterministic=true"),
    (
        *("data=digits", "model=resnet18", "trainer.limit_train_batches=2", "trainer.deterministic=true"),
        *("precision=bf16", "trainer.channels_last=true"),
    ),
]


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dirty", [False, True])
def test_many_runs_from_a_fresh_clone(tmp_path: Path, dirty: bool, device: str) -> None:
    lab = make_lab(tmp_path)
    if dirty:
        lab.write("lab/net.py", NET.replace("{activation}", "GELU"))
        lab.write("lab/more.py", "")
    runs = [lab.train(str(number), *words, device=device) for number, words in enumerate(MANY)]
    lab.write("lab/net.py", NET.replace("{activation}", "Tanh"))
    lab.git("add", "--all")
    lab.git("commit", "-m", "the work went on")
    clone = lab.clone("fresh")
    results = [clone.reproduce(run_dir, trust_code=True) for run_dir in runs]
    assert [result.identical for result in results] == [True] * len(MANY), results


def test_what_was_trained_with_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("lab")
    monkeypatch.setitem(sys.modules, "lab", package)
    code = tmp_path / "code"
    package.__file__ = str(code / "src" / "lab" / "__init__.py")
    _check_origin(code, ["lab", "never_imported"])
    package.__file__ = str(tmp_path / "site-packages" / "lab" / "__init__.py")
    with pytest.raises(AssayError, match=r"lab was imported from .*site-packages"):
        _check_origin(code, ["lab"])


TABLE = "epoch,step,train/loss,DeviceStatsMonitor.cpu\n0,1,0.5,3\n0,2,,9\n0,2,0.25,\n"
MACHINE = {"cpu": "A", "cpu_flags": ["avx2"], "threads": 1, "python": "3.11.7", "gpus": [], "environment": {}}


def record(**fields: Any) -> RunRecord:
    known: dict[str, Any] = {
        "git": {"commit": "1"},
        "packages": {"torch": "2.15", "a": "1"},
        "machine": MACHINE,
    }
    plain = RunRecord("r", "r", "finished", "2026-01-01", 0, "f", "c", weights_sha256="1" * 64)
    return msgspec.structs.replace(plain, **{**known, **fields})


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (TABLE, ""),
        (TABLE.replace(",9", ",8"), ""),
        (TABLE.replace("0.25", "0.250001"), "step 2: train/loss 0.25 then, 0.250001 now"),
        (TABLE.replace("0,2,0.25,\n", ""), "step 2: train/loss 0.25 then, not logged now"),
        ("epoch,step,val/loss\n0,1,0.5\n", "step 1: train/loss 0.5 then, not logged now"),
        ("epoch,step\n", "step 1: train/loss 0.5 then, not logged now"),
    ],
)
def test_the_first_value(tmp_path: Path, table: str, expected: str) -> None:
    for name, content in (("then", TABLE), ("now", table)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.csv").write_text(content)
    assert first_value(tmp_path / "then", tmp_path / "now") == expected


def test_scores_and_weights(tmp_path: Path) -> None:
    one = record(metrics={"test/loss": math.nan, "test/accuracy": 0.5})
    assert differences(tmp_path, one, tmp_path, record(metrics=dict(one.metrics))) == []
    other = record(metrics={"test/loss": math.nan, "test/accuracy": 0.25}, weights_sha256="2" * 64)
    assert differences(tmp_path, one, tmp_path, other) == [
        "final scores: test/accuracy 0.5 then, 0.25 now",
        "weights: SHA-256 111111111111 then, 222222222222 now",
    ]


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({"packages": {"a": "2", "torch": "2.14"}}, "packages: torch 2.14 then, 2.15 now, a 2 then, 1 now"),
        ({"machine": {**MACHINE, "cpu": "B"}}, "CPU: B then, A now"),
        (
            {"machine": {**MACHINE, "environment": {"MKL_CBWR": "AVX2"}}},
            "environment: MKL_CBWR=AVX2 then,  now",
        ),
        ({"machine": {**MACHINE, "environment": {"OMP_NUM_THREADS": "1"}}}, "nothing in the records differs"),
        ({"git": None}, "code: unknown, the run was outside a git repository"),
        (
            {"resumed": [{"from_step": 3, "changed": {"optimizer.lr": [1, 2]}}]},
            "config: changed at step 3 (optimizer.lr)",
        ),
        ({}, "nothing in the records differs"),
    ],
)
def test_causes(fields: dict[str, Any], first: str) -> None:
    assert causes(record(**fields), record())[0].startswith(first)
