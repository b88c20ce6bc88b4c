"""Values of configs, against OmegaConf's own reader; somebody else's file costs neither time nor memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from omegaconf import OmegaConf
from tests.making_runs import make_run

from assay.errors import AssayError
from assay.files.sealed import seal_yaml
from assay.record.runs.config_values import ConfigValues
from assay.record.runs.plain_value import shown
from assay.record.runs.read_runs import read_runs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


def test_every_value_of_a_real_config(digits_run: Trained) -> None:
    (run,) = read_runs([digits_run.run_dir])
    config = OmegaConf.to_container(digits_run.config)
    values = ConfigValues()
    everything = values.all_of(run)
    assert len(everything) > 50
    for key, text in everything.items():
        if "[" not in key:
            expected = OmegaConf.select(OmegaConf.create(config), key)
            expected = OmegaConf.to_container(expected) if OmegaConf.is_config(expected) else expected
            assert text == shown(expected), key
            assert values.value(run, key) == text, "of its block alone, as of the whole"
    assert values.value(run, "optimizer.nothing") is None
    assert values.value(run, "nothing") is None


def test_a_file_without_its_seal_is_read_whole(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    (tmp_path / "a/config.yaml").write_text("{optimizer: {lr: 0.5}, seed: 1}\n")
    (run,) = read_runs([tmp_path])
    assert ConfigValues().value(run, "optimizer.lr") == "0.5"


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"b{n}: &b{n} [*{p},*{p},*{p},*{p},*{p},*{p},*{p},*{p}]\n"
            for n, p in enumerate(["a", *(f"b{m}" for m in range(12))])
        ),
        "b12: &x {y: *x}\n",
        "b12: " + "[" * 5000 + "\n",
        "b12: !!python/object/apply:os.system ['touch owned']\n",
        "just text\n",
        "a: [\n",
        "b12: \x00\n",
    ],
)
@pytest.mark.parametrize("sealed", [False, True])
def test_hostile_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sealed: bool) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs/a")
    (tmp_path / "runs/a/config.yaml").write_text(seal_yaml(text) if sealed else text)
    (run,) = read_runs([tmp_path / "runs"])
    for call in (lambda: ConfigValues().value(run, "b12"), lambda: ConfigValues().all_of(run)):
        try:
            found = call()
        except AssayError as error:
            assert "config.yaml" in error.message  # noqa: PT017 - either is fine
        else:
            assert not isinstance(found, str) or len(found) < 10_000
    assert not (tmp_path / "owned").exists()
