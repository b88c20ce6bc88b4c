"""Many run directories are read at once, whatever state they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tests.making_runs import make_run
from typer.testing import CliRunner

import assay
from assay.cli.app import app
from assay.errors import AssayError
from assay.files.checksum import seal_yaml
from assay.record.run_lock import lock_run
from assay.record.run_record import Outcome
from assay_analysis.comparison import compare
from assay_analysis.journal import JobRecord, Journal
from assay_analysis.read_runs import read_curves, read_runs
from assay_analysis.run import (
    ConfigValues,
    config_columns,
    find_unlike_losses,
    flatten,
    format_value,
    loss_terms,
    plain_value,
    typed_values,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


def test_a_folder_is_searched_and_each_run_is_there_once(tmp_path: Path) -> None:
    for name in ("a/1", "a/2", "b/sweeps/date/0"):
        make_run(tmp_path / name)
    found = read_runs([tmp_path, tmp_path / "a", tmp_path / "a" / ".." / "a" / "1"])
    assert [run.path.relative_to(tmp_path).as_posix() for run in found] == ["a/1", "a/2", "b/sweeps/date/0"]


def test_one_that_runs_and_one_that_was_killed(tmp_path: Path) -> None:
    make_run(tmp_path / "alive", status="running", metrics={})
    make_run(tmp_path / "dead", status="running", metrics={})
    with lock_run(tmp_path / "alive"):
        alive, dead = read_runs([tmp_path])
    assert alive.status == "running"
    assert alive.metrics == {"val/loss": 0.5, "val/accuracy": 0.75}, "the last values so far"
    assert (dead.status, dead.cause) == ("failed", "killed")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"schema_version": 1}',
        b"\xff\xfe",
        b'{"schema_version": 1, "metrics": {"val/loss": 1' + b"0" * 400 + b"}}",
    ],
)
def test_a_record_that_is_none_is_broken_and_the_others_are_there(tmp_path: Path, content: bytes) -> None:
    make_run(tmp_path / "good")
    make_run(tmp_path / "bad")
    (tmp_path / "bad/record.json").write_bytes(content)
    bad, good = read_runs([tmp_path])
    assert (bad.status, good.status) == ("broken", "finished")
    assert "record.json" in bad.reason


def test_a_record_that_was_changed_or_is_gone(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    path = tmp_path / "a/record.json"
    path.write_text(path.read_text().replace('"seconds": 60.0', '"seconds": 61.0'))
    (tmp_path / "b/record.json").unlink()
    changed, gone = read_runs([tmp_path])
    assert changed.status == gone.status == "broken"
    assert "SHA-256" in changed.reason
    assert "no record.json" in gone.reason


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="holds no run"):
        read_runs([tmp_path])
    with pytest.raises(AssayError, match="there is no folder"):
        read_runs([tmp_path / "nowhere"])


def test_what_resuming_changed_counts(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "trainer.max_epochs=5", resumed=[{"overrides": ["trainer.max_epochs=9"]}])
    assert read_runs([tmp_path])[0].typed == {"trainer.max_epochs": "9"}


def test_a_fold_that_an_option_has_set_is_one(tmp_path: Path) -> None:
    for fold in range(2):
        fields: dict[str, Any] = {
            "fold": fold,
            "metrics": {"test/x": 0.5 + fold / 10},
        }
        for seed in range(2):
            path = tmp_path / f"{fold}-{seed}"
            make_run(path, f"experiment=fold{fold}", f"seed={seed}", config={"fold": fold}, **fields)
    make_run(tmp_path / "none", "experiment=fold1", **(fields | {"fold": None}))
    found = {run.path.name: run.fold for run in read_runs([tmp_path])}
    assert found == {"0-0": 0, "0-1": 0, "1-0": 1, "1-1": 1, "none": None}
    (row,) = compare(read_runs([tmp_path / name for name in found if name != "none"])).rows
    assert (row.folds, row.scores["test/x"].n) == (2, 2), "seeds of one fold are one test"


def test_a_real_run_as_pandas_reads_it(digits_run: Trained) -> None:
    table = pd.read_csv(digits_run.run_dir / "metrics.csv")
    curves = read_curves(digits_run.run_dir)
    assert set(curves) == set(table.columns) - {"epoch", "step"}
    for name, curve in curves.items():
        rows = table[table[name].notna()]
        assert curve.values == rows[name].tolist()
        assert curve.steps == rows["step"].tolist()


def test_a_line_that_is_being_written_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("epoch,step,a\n1,5,0.5\n,6,nan\n2,7,0.2")
    curve = read_curves(tmp_path)["a"]
    assert curve.steps == [5, 6]
    assert curve.epochs == [1, None]
    assert str(curve.values) == "[0.5, nan]"


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("", "metrics.csv:1 is damaged"),
        ("epoch,step,a\n1,2,3\n1,2\n", "metrics.csv:3 is damaged"),
        ("epoch,step,a\n1,2,x\n", "metrics.csv:2 is damaged"),
        ("epoch,step,a\n1,2,\x00\n", "damaged"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path: Path, content: str, place: str) -> None:
    (tmp_path / "metrics.csv").write_bytes(content.encode())
    with pytest.raises(AssayError, match=place):
        read_curves(tmp_path)


def test_runs_are_wide_and_typed(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "optimizer.lr=0.1", "seed=1", metrics={"val/loss": 0.5, "loss": 1.0})
    make_run(tmp_path / "b", "model=small_cnn", metrics={"val/loss": float("nan")}, status="pruned")
    make_run(tmp_path / "c")
    (tmp_path / "c/record.json").write_text("{}")
    frame = assay.runs([tmp_path])
    assert frame["status"].tolist() == ["finished", "pruned", "broken"]
    assert frame["optimizer.lr"].tolist()[:2] == [0.1, 0.001], "what was not typed comes from the config"
    assert frame["model"].tolist()[:2] == ["mlp", "small_cnn"]
    assert frame["seed"].tolist() == [1, 0, pd.NA]
    assert frame["loss"].tolist()[:2] == ["ce", "ce"], "the group keeps its name"
    assert frame["loss (metric)"][0] == 1.0
    assert frame["val/loss"].dtype == np.float64
    assert frame["val/loss"].isna().tolist() == [False, True, True]


def test_a_run_without_curves_is_said(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", csv=None)
    make_run(tmp_path / "c", csv="nonsense\n")
    with pytest.warns(UserWarning, match="left out") as told:
        frame = assay.curves(tmp_path)
    assert len(told) == 2
    assert frame["run"].unique().tolist() == [str(tmp_path / "a")]
    assert frame["epoch"].tolist() == [1, 2, 1, 2]


def sweep(path: Path) -> Journal:
    """Two learning rates, two seeds each: two jobs have run, one died, one waits."""
    journal = Journal.create(path, overrides=["optimizer.lr=0.1,0.2", "seed=0,1"])
    for number, (lr, seed) in enumerate((("0.1", 0), ("0.2", 0), ("0.1", 1), ("0.2", 1))):
        typed = (f"optimizer.lr={lr}", f"seed={seed}")
        fingerprint = f"{number}" * 64
        if number < 2:
            made = make_run(path / str(number), *typed, metrics={"val/accuracy": 0.5})
            fingerprint = made.fingerprint
        journal.add([JobRecord(number, fingerprint, typed, seed=seed)])
    for number in (0, 1, 2):
        journal.start(number, 1)
        end = Outcome("finished") if number < 2 else Outcome("failed", "killed", "died <b>early\x1b[31m")
        journal.end(number, end)
    return journal


def test_a_job_that_died_before_it_had_a_directory_is_listed(tmp_path: Path) -> None:
    sweep(tmp_path / "sweep")
    runs = read_runs([tmp_path], lost=True)
    assert [run.path.name for run in runs] == ["0", "1", "2"]
    lost = runs[2]
    assert (lost.status, lost.cause, lost.seed, lost.typed["optimizer.lr"]) == ("failed", "killed", 1, "0.1")
    assert (lost.config_fingerprint, lost.choices) == (runs[0].config_fingerprint, runs[0].choices)
    said = CliRunner().invoke(app, ["compare", str(tmp_path)]).stdout
    assert "2 configurations, 3 runs" in said
    assert "1 of 2  1 finished, 1 failed (killed)" in said
    listed = CliRunner().invoke(app, ["ls", str(tmp_path / "sweep")]).stdout
    assert any(line.endswith("/sweep/2") and "failed (killed)" in line for line in listed.splitlines())
    assert [run.path.name for run in read_runs([tmp_path / "sweep/0"])] == ["0"]
    assert len(read_runs([tmp_path / "sweep/0"], lost=True)) == 1


def test_every_value_of_a_real_config(digits_run: Trained) -> None:
    (run,) = read_runs([digits_run.run_dir])
    config = OmegaConf.create(OmegaConf.to_container(digits_run.config))
    values = ConfigValues()
    everything = values.all_of(run)
    assert len(everything) > 50
    for key, text in everything.items():
        if "[" not in key:
            expected = OmegaConf.select(config, key)
            expected = OmegaConf.to_container(expected) if OmegaConf.is_config(expected) else expected
            assert text == format_value(expected), key
            assert values.value(run, key) == text, "of its block alone, as of the whole"
    assert values.value(run, "optimizer.nothing") is None
    assert values.value(run, "nothing") is None


@pytest.mark.parametrize(
    "text",
    [
        "b12: " + "[" * 5000 + "\n",
        "b12: !!python/object/apply:os.system ['touch owned']\n",
        "just text\n",
        "a: [\n",
        "b12: \x00\n",
        "b12: &a\n  b: *a\n",
        "b12: &a [1, *a]\n",
        "loss: &a\n  b: [*a]\nb12: 1\n",
    ],
)
@pytest.mark.parametrize("sealed", [False, True])
def test_hostile_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sealed: bool) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs/a")
    (tmp_path / "runs/a/config.yaml").write_text(seal_yaml(text) if sealed else text)
    (run,) = read_runs([tmp_path / "runs"])
    compare([run])
    for call in (lambda: ConfigValues().value(run, "b12"), lambda: ConfigValues().all_of(run)):
        try:
            found = call()
        except AssayError as error:
            assert "config.yaml" in error.message  # noqa: PT017 - either is fine
        else:
            assert not isinstance(found, str) or len(found) < 10_000
    assert not (tmp_path / "owned").exists()


WRITTEN = (
    *("a: 1", "a:", "  b: 1", "- 1", "# b: 2", "", "a: [1,", "b: 2]", "a: {", "b: 1}", "'a': 2", "c: 'x"),
    *("a: y'", "? a", "a: |", "   text", "d: &x 1", "e: *x", "<<: {a: 5}", "---", "...", "f: 3\x85a: 9"),
    *("a: 1\rb: 2", "a b: 1"),
)
"""Lines whose meaning hangs on the lines around them."""


@given(lines=st.lists(st.sampled_from(WRITTEN), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_that_is_read_piece_by_piece_says_what_it_says_as_a_whole(
    tmp_path: Path, lines: list[str]
) -> None:
    if not (tmp_path / "record.json").exists():
        make_run(tmp_path)
    text = "\n".join(lines)
    (tmp_path / "config.yaml").write_bytes(text.encode())
    (run,) = read_runs([tmp_path])
    try:
        whole = yaml.safe_load(text)
    except yaml.YAMLError:
        whole = None
    try:
        found = ConfigValues().all_of(run)
    except AssayError:
        assert not isinstance(whole, dict)
    else:
        assert found == {key: format_value(value) for key, value in flatten(whole)}


PLAIN = st.none() | st.sampled_from([0.0, 0.5, 19.0, "mean", "sum"])
NODES = st.recursive(
    PLAIN | st.lists(PLAIN, max_size=2), lambda inner: st.dictionaries(st.sampled_from("ab"), inner)
)


def without_nulls(node: object) -> object:
    """What is null says nothing, as what is not there."""
    if not isinstance(node, dict):
        return node
    found = {name: one for name, inner in node.items() if (one := without_nulls(inner)) is not None}
    return found if found or not node else None


@given(one=NODES, other=NODES, targets=st.tuples(st.booleans(), st.booleans()))
def test_losses_are_one_quantity_where_their_whole_nodes_are_the_same(
    one: object, other: object, targets: tuple[bool, bool]
) -> None:
    jobs = [
        {"loss": {"_target_": "L", "x": node}, "data": {"standardize_targets": scaled}}
        for node, scaled in zip((one, other), targets, strict=True)
    ]
    unlike = find_unlike_losses(("mine", loss_terms(job)) for job in jobs)
    assert bool(unlike) == (without_nulls(jobs[0]) != without_nulls(jobs[1]))


def test_of_very_many_keys_that_nobody_typed_some_are_shown_and_the_rest_is_counted(tmp_path: Path) -> None:
    make_run(tmp_path / "a", config={"model": {f"size{n}": 1 for n in range(9)}})
    make_run(tmp_path / "b", config={"model": {f"size{n}": 2 for n in range(9)}})
    columns, values, notes = config_columns(read_runs([tmp_path]), (), ConfigValues())
    assert columns == [f"model.size{n}" for n in range(6)]
    assert [own["model.size0"] for own in values] == ["1", "2"]
    assert "differ in 3 more keys" in notes[0]


def test_an_experiment_is_a_column_where_every_run_has_one(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "experiment=narrow")
    make_run(tmp_path / "b", "experiment=wide", "model=wide")
    columns, values, _ = config_columns(read_runs([tmp_path]), (), ConfigValues())
    assert columns == ["experiment", "model"]
    assert [own["experiment"] for own in values] == ["narrow", "wide"]
    make_run(tmp_path / "c", "model=deep")
    columns, values, _ = config_columns(read_runs([tmp_path]), (), ConfigValues())
    assert columns == ["model"]
    assert [own["model"] for own in values] == ["mlp", "wide", "deep"]


def test_what_an_experiment_sets_is_shown_where_another_run_has_none(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", "experiment=faster", config={"trainer": {"max_epochs": 9}})
    columns, values, _ = config_columns(read_runs([tmp_path]), (), ConfigValues())
    assert columns == ["trainer.max_epochs"]
    assert [own["trainer.max_epochs"] for own in values] == ["5", "9"]


@pytest.mark.parametrize(
    "text", ["1", "-3", "1e-3", "0.5", "true", "False", "null", "adam", "inf", "a_b", "nan", "a b"]
)
def test_plain_values_are_what_hydra_reads(text: str) -> None:
    expected = OverridesParser.create().parse_override(f"x={text}").value()
    assert repr(plain_value(text)) == repr(expected)


def test_what_was_typed() -> None:
    typed = ["model=mlp", "++optimizer.lr=0.1", "~scheduler", "a='x=y'", "hydra/launcher=ray", "model=linear"]
    assert typed_values(typed) == {"model": "linear", "optimizer.lr": "0.1", "scheduler": "~", "a": "x=y"}
