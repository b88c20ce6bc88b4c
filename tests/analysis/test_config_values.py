"""Values of configs, against OmegaConf's own reader; damaged files are one error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tests.making_runs import make_run

from assay.analysis.comparison import compare
from assay.analysis.read_runs import read_runs
from assay.analysis.run import (
    ConfigValues,
    config_columns,
    find_unlike_losses,
    flatten,
    format_value,
    loss_terms,
    plain_value,
    typed_values,
)
from assay.errors import AssayError
from assay.files.checksum import seal_yaml

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
