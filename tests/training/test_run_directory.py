"""What a run leaves behind, however it ended."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import OmegaConf
from tests.command import typed

from assay.files.symlinks import IMPORTANCES, RESULTS

if TYPE_CHECKING:
    import pytest
    from tests.conftest import Train, Trained

PROJECT = Path(__file__).parent / "project"
FILES = {"config.yaml", "overrides.yaml", "record.json", "metrics.csv", "log.txt", ".lock"}
CHECKPOINTS = {f"checkpoints/{role}.ckpt{suffix}" for role in ("best", "last") for suffix in ("", ".sha256")}


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_files_of_a_finished_run(digits_run: Trained) -> None:
    assert files(digits_run.run_dir) == FILES | CHECKPOINTS | {*RESULTS} - {IMPORTANCES}
    record = digits_run.record
    assert record["status"] == "finished"
    assert record["reason"] == ""
    assert record["git"] is None
    assert record["overrides"] == OmegaConf.load(digits_run.run_dir / "overrides.yaml")
    assert record["metrics"] == digits_run.result.metrics
    assert record["choices"]["model"] == "mlp"
    assert digits_run.result.exit_code == 0
    for role in ("best", "last"):
        path = digits_run.run_dir / "checkpoints" / f"{role}.ckpt"
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert path.with_name(f"{role}.ckpt.sha256").read_text().split() == [digest, f"{role}.ckpt"]
    config = (digits_run.run_dir / "config.yaml").read_text()
    assert "${" not in config, "the config is resolved"
    assert sum(OmegaConf.create(config).spec.class_counts) == 1257


def test_what_git_would_lose_is_kept(train: Train, tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)  # noqa: S607 - the test's own commands

    git("init", "--quiet")
    (tmp_path / ".gitignore").write_text("run/\n")
    (tmp_path / "train_notes.txt").write_text("before\n")
    git("add", ".")
    git("commit", "--quiet", "--message", "First")
    (tmp_path / "train_notes.txt").write_text("after\n")
    result = train("data=digits", "model=linear", "trainer.limit_train_batches=1", cwd=tmp_path)
    assert files(result.run_dir) == FILES | {"code.patch"} | {*RESULTS} - {IMPORTANCES}
    patch = (result.run_dir / "code.patch").read_text()
    assert "-before" in patch
    assert "+after" in patch
    assert result.record["git"]["dirty"] is True
    assert result.record["patch_sha256"] == hashlib.sha256(patch.encode()).hexdigest()


# -- runs that end badly --------------------------------------------------


def test_a_failing_training_ends_the_command_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROJECT))
    own = ("--config-dir", str(PROJECT / "conf"), "trusted_packages=[own_project]", "model=fragile")
    words = ["train", *own, "data=digits", "device=cpu", "trainer.max_epochs=2", "hydra.run.dir=run"]
    ended = typed(*words, code=1, folder=tmp_path)
    run_dir, lines = tmp_path / "run", ended.stderr.splitlines()
    assert lines[0].startswith("failed: RuntimeError: out of luck in step 3")
    assert [line.split()[0] for line in lines] == ["failed:", "run", "log"]
    assert "Traceback" not in ended.output
    record = json.loads((run_dir / "record.json").read_text())
    assert record["status"] == "failed"
    code = PROJECT / "own_project" / "fragile.py"
    [line] = [i for i, text in enumerate(code.read_text().splitlines(), 1) if "raise RuntimeError" in text]
    assert record["reason"] == f"RuntimeError: out of luck in step 3 ({code}:{line}, in forward)"
    assert record["metrics"] == {}
    assert record["best"] == {}
    assert files(run_dir) == FILES, "no checkpoint of a broken epoch, no half-written file"
    log = (run_dir / "log.txt").read_text()
    assert "out of luck in step 3" in log
    assert "Traceback" in log
    assert "fragile.py" in log
    assert "finished" not in log
