"""Secrets that are typed reach the run and no file; one that was not kept is asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from omegaconf import OmegaConf

import assay
from assay.check.checker import check_job
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

LOGGER = """\
# @package logger.keyed
# A logger that wants a key.
_target_: keyed_logger.Keyed
save_dir: ${run_dir}
api_key: ???
"""
MODULE = """\
from lightning.pytorch.loggers import CSVLogger
given = []
class Keyed(CSVLogger):
    def __init__(self, save_dir, api_key):
        super().__init__(save_dir)
        given.append(api_key)
"""
TYPED = "typed-in-plain-sight"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "conf" / "logger").mkdir(parents=True)
    (tmp_path / "conf" / "logger" / "keyed.yaml").write_text(LOGGER)
    (tmp_path / "conf" / "project.yaml").write_text("trusted_packages: [keyed_logger]\n")
    (tmp_path / "keyed_logger.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_typed_key_reaches_the_logger_and_no_file(project: Path) -> None:
    overrides = ["data=iris", "model=linear", "logger=[csv,keyed]", f"logger.keyed.api_key={TYPED}"]
    result = assay.train([*overrides, "trainer.max_epochs=1", "hydra.run.dir=run"])
    import keyed_logger  # type: ignore[import-not-found]  # made by the fixture

    assert keyed_logger.given == [TYPED]
    for path in result.run_dir.rglob("*"):
        if path.is_file():
            assert TYPED.encode() not in path.read_bytes(), path
    assert "logger.keyed.api_key=***" in json.loads((result.run_dir / "record.json").read_text())["overrides"]
    with pytest.raises(ConfigError, match=r"logger\.keyed\.api_key: a secret was here"):
        check_job(job_config(OmegaConf.create(OmegaConf.load(result.run_dir / "config.yaml"))))  # type: ignore[arg-type]  # a mapping


@pytest.mark.parametrize(
    "override",
    [
        "name=a{}",
        "hydra.run.dir=outputs/{}",
        "callbacks.checkpoint.filename=best-{}",
        "hydra.run.dir='outputs/logger.keyed.api_key=abc,x=1'",
    ],
)
def test_no_file_is_named_after_a_secret(
    override: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf0aB4dE6gH8jK1mN3")
    with pytest.raises(ConfigError, match="would contain a secret"):
        check_job(job_config(compose([override.format("hf0aB4dE6gH8jK1mN3")])))
