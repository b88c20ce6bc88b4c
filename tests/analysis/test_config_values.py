"""Values of configs, against OmegaConf's own reader; damaged files are one error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tests.making_runs import make_run

from assay.analysis.config_values import ConfigValues, loss_terms, unlike_losses
from assay.analysis.read_runs import read_runs
from assay.analysis.run import shown
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


def test_runs_of_one_fingerprint_have_their_own_values(tmp_path: Path) -> None:
    """Tags, names and what is predicted are no part of a fingerprint."""
    for number, tag in enumerate(("first", "second")):
        make_run(
            tmp_path / tag,
            config={"tags": [tag], "predictions": {"num_samples": number}},
            data_sha256="1" * 64,
            fingerprint="2" * 64,
        )
    runs, values = read_runs([tmp_path]), ConfigValues()
    found = {
        run.path.name: (values.value(run, "tags"), values.value(run, "predictions.num_samples"))
        for run in runs
    }
    assert found == {"first": ("[first]", "0"), "second": ("[second]", "1")}


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
    unlike = unlike_losses(("mine", loss_terms(job)) for job in jobs)
    assert bool(unlike) == (without_nulls(jobs[0]) != without_nulls(jobs[1]))
