from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from assay.compose.compose import compose, job_config
from assay.errors import AssayError
from assay.record.run_record import RunRecord
from assay_report.difference import (
    difference,
    print_difference,
    read_side,
    record_difference,
    score_difference,
)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


SPEC = {"input_shape": [1, 8, 8], "num_outputs": 10, "num_features": 64, "class_counts": [1] * 10}
SPEC |= {"num_classes": 10, "total_steps": 100, "steps_per_epoch": 10, "ignore_index": -100}


def write_run(name: str, *overrides: str, **fields: object) -> RunRecord:
    """A run directory as a finished run leaves it."""
    config = job_config(compose([*overrides, f"hydra.run.dir={name}"]))
    OmegaConf.set_struct(config, False)
    config.spec = SPEC
    Path(name).mkdir()
    (Path(name) / "config.yaml").write_text(OmegaConf.to_yaml(config, resolve=True), encoding="utf-8")
    record = RunRecord(name, "x", "finished", "2026-01-01T00:00:00+00:00", config.seed, "f", "c", **fields)  # type: ignore[arg-type]  # as given
    record.save(Path(name))
    return record


def told(first: str, second: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_difference(difference(first, second))
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("first", "second"), [("", ""), ("seed=0", ""), ("one", "one"), ("", "one/config.yaml")]
)
def test_no_difference(first: str, second: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_run("one")
    assert told(first, second, capsys) == ["no difference"]


def test_two_runs_and_their_records(capsys: pytest.CaptureFixture[str]) -> None:
    machine = {"hostname": "a", "cores": 2, "gpus": []}
    one = write_run(
        "one",
        git={"commit": "abc", "dirty": False},
        packages={"torch": "1", "x": "1"},
        machine=machine,
        metrics={"test/loss": 0.25},
        interpolations={"data.seed": "${seed}"},
    )
    other = write_run(
        "other",
        "seed=3",
        git={"commit": "def", "dirty": False},
        packages={"torch": "2", "x": "1"},
        machine=machine | {"hostname": "b"},
        data_sha256="d",
        metrics={"test/loss": 0.5, "lr-SGD": 0.1},
        interpolations={"data.seed": "${seed}"},
    )
    assert told("one", "other", capsys) == [
        "config",
        "one other",
        "seed 0 3",
        "record",
        "one other",
        "seed 0 3",
        "data_sha256 '' d",
        "git.commit abc def",
        "machine.hostname a b",
        "packages.torch '1' '2'",
        "scores",
        "one other",
        "test/loss 0.25 0.5",
    ]
    assert not record_difference(one, one)
    one.metrics = {"test/loss": math.nan, "test/mae": 1.0}
    other.metrics = {"test/loss": math.nan}
    assert score_difference(one, other) == {"test/mae": ("1", None)}
    other.git = None
    assert record_difference(one, other)["git.commit"] == ("abc", None)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere", "neither a run directory, nor a YAML file, nor overrides"),
        ("outputs/x/config.yaml", "neither"),
        ("empty", "not a run directory: it has no config.yaml"),
        ("broken.yaml", "broken.yaml:1 is not YAML"),
        ("list.yaml", "does not hold a mapping"),
        ("bytes.yaml", "cannot be read"),
        ("unsafe.yaml", "could not determine a constructor"),
        ("x='a", "No closing quotation"),
        ("damaged", "cannot be read"),
    ],
)
def test_what_cannot_be_read(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.yaml").write_text("a: b: c", encoding="utf-8")
    (tmp_path / "list.yaml").write_text("- a", encoding="utf-8")
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff")
    (tmp_path / "unsafe.yaml").write_text("a: !!python/object/apply:os.getcwd []", encoding="utf-8")
    write_run("damaged")
    (tmp_path / "damaged" / "record.json").write_text(json.dumps({})[:-1], encoding="utf-8")
    with pytest.raises(AssayError) as caught:
        read_side(name)
    assert says in caught.value.message
    assert "\n" not in caught.value.message
