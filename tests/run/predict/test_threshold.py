"""A threshold that is typed, or chosen by a rule, is said, written beside what it decides, and recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import precision_score, recall_score, roc_curve  # type: ignore[import-untyped]  # it has no stubs
from tests.command import documented, typed
from tests.run.predict.conftest import SHORT

import assay
from assay.errors import ConfigError
from assay.record.run_record import RunRecord
from assay_analysis import predictions_file
from assay_report.page import Note
from assay_report.run_page import run_page
from assay_serve.evaluate import evaluate
from assay_serve.threshold import choose_by

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained


def test_what_was_used_is_written_beside_the_predictions(yes_no_run: Trained, tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).random((20, 30)) * 20
    np.save(tmp_path / "new.npy", inputs)
    out = tmp_path / "said.csv"
    told = typed("predict", yes_no_run.run_dir, tmp_path / "new.npy", "--threshold", "0.3", "-o", out)
    name = yes_no_run.config.spec.class_names[1]
    assert f"note   threshold 0.3, as typed, for '{name}'" in told.stderr
    assert "assay export" in told.stdout
    assert "--threshold=0.3" in told.stdout
    frame = pd.read_csv(out)
    assert np.isclose(frame["threshold"], 0.3, rtol=1e-12).all()
    assert ((frame[f"probability {name}"] >= 0.3) == (frame["prediction"] == name)).all()
    _, document = documented("predict", yes_no_run.run_dir, tmp_path / "new.npy", "--threshold=0.3")
    assert document["threshold"] == {"chosen": "as typed", "value": 0.3, "class": name}


@pytest.mark.parametrize(
    "value", ["recall", "1.5", "nan", "", "recall>=2", "recall>=1.5", "cost=1", "cost=a:b", "f2", "-1"]
)
def test_what_is_no_threshold_is_refused(yes_no_run: Trained, tmp_path: Path, value: str) -> None:
    told = typed("predict", yes_no_run.run_dir, tmp_path / "none.npy", f"--threshold={value}", code=2)
    assert "--threshold" in told.stderr


def test_a_threshold_of_more_classes_is_refused(kind_run: Trained, table: Path) -> None:
    told = typed("predict", kind_run.run_dir, table / "rows.csv", "--threshold=0.3", code=2)
    assert "--threshold: the model does not predict probabilities of two classes" in told.stderr


def test_a_rule_chooses_for_a_package_that_is_typed(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = "class Net(torch.nn.Linear):\n    def __init__(self, *_):\n        super().__init__(30, 1)\n"
    (tmp_path / "chosen_net.py").write_text(f"import torch\n\n\n{net}")
    monkeypatch.syspath_prepend(tmp_path)
    trusted = "trusted_packages=[chosen_net]"
    run = train("data=breast_cancer", *SHORT, trusted, "model._target_=chosen_net.Net")
    found = evaluate(run.run_dir, [trusted], threshold="f1")
    assert found.threshold["chosen"] == "by f1 on validation"


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities, many of them equal, and which samples are of the second class."""
    draw = np.random.default_rng(seed)
    right = draw.random(200) < 0.15
    chances = (draw.normal(0.25, 0.15, 200) + 0.3 * right).clip(0, 1)
    return chances.round(draw.integers(1, 4)).astype(np.float32), right


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("rule", ["recall>=0.8", "precision>=0.3", "cost=10:1", "cost=1:2.5"])
def test_no_other_threshold_is_better_by_the_rule(rule: str, seed: int) -> None:
    chances, right = drawn(seed)
    false_rate, recall, edges = roc_curve(right, chances, drop_intermediate=False)
    alarms, hits = false_rate * (~right).sum(), recall * right.sum()
    precision = hits / np.maximum(hits + alarms, 1)
    if rule.startswith("recall"):
        merits = np.where(recall >= 0.8, precision, -1)
    elif rule.startswith("precision"):
        merits = np.where(precision >= 0.3, recall, -1)
    else:
        miss, alarm = map(float, rule.removeprefix("cost=").split(":"))
        merits = -(miss * (right.sum() - hits) + alarm * alarms)
    try:
        chosen = choose_by(rule, chances, right)
    except ConfigError:
        assert merits[1:].max() <= merits[0]  # never predicting the second class
    else:
        place = np.searchsorted(-edges, -np.float32(chosen), side="right") - 1
        assert merits[place] == pytest.approx(merits[1:].max())


def test_what_cannot_be_had_is_refused_with_what_can() -> None:
    right = np.array([True, False, True, False] * 5)
    chances = np.linspace(1, 0.5, 20, dtype=np.float32)
    chances[:2] = 0.99  # one of either class
    with pytest.raises(ConfigError, match=r"no threshold reaches precision>=0\.9") as refused:
        choose_by("precision>=0.9", chances, right)
    best = max(precision_score(right, chances >= edge) for edge in np.unique(chances))
    assert refused.value.hint == f"--threshold 'precision>={np.floor(best * 1000) / 1000:g}'"
    again = refused.value.hint.split("'")[1]
    assert precision_score(right, chances >= choose_by(again, chances, right)) == best
    with pytest.raises(ConfigError, match="never predicting"):
        choose_by("cost=1:100", chances, right)


@pytest.fixture(scope="module")
def rare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose second class is rare."""
    folder = tmp_path_factory.mktemp("rare")
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(900, 3)), columns=list("abc"))
    frame["left"] = np.where(frame["a"] + draw.normal(size=900) > 1.9, "yes", "no")
    frame.to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv"


@pytest.fixture(scope="module")
def rare_run(train: Train, rare: Path) -> Trained:
    path = f"data.source.path={rare}"
    return train("data=table", path, "data.source.target=left", "data.split.val=0.3", *SHORT)


def test_a_rule_stands_in_the_run_and_on_its_page(rare_run: Trained, rare: Path) -> None:
    run = rare_run
    rows = pd.read_csv(rare)
    validation = rows.iloc[run.datamodule.splits.rows["val"]]
    right = (validation["left"] == "yes").to_numpy()
    found = evaluate(run.run_dir, threshold="recall >= 0.9")
    value = found.threshold["value"]
    chances = assay.load(run.run_dir)(validation).probabilities[:, 1]
    recalls = {edge: recall_score(right, chances >= edge) for edge in np.unique(chances)}
    assert recall_score(right, chances >= np.float32(value)) >= 0.9
    kept = predictions_file.read(run.run_dir / predictions_file.FILE)
    said = kept.outputs[:, 1] >= np.float32(value)
    assert found.threshold["recall"] == pytest.approx(recall_score(kept.targets, said))
    assert found.threshold["chosen"] == "by recall>=0.9 on validation"
    assert max(recalls.values()) == 1
    record = RunRecord.load(run.run_dir)
    assert record.threshold == found.threshold == record.evaluations[-1]["threshold"]
    assert assay.load(run.run_dir).threshold == value
    notes = [block.text for block in run_page(run.run_dir).sections[0].blocks if isinstance(block, Note)]
    assert any("by recall>=0.9 on validation" in note for note in notes)
    typed("eval", run.run_dir, "--threshold", "cost=0:1", code=2)
    assert RunRecord.load(run.run_dir).threshold == found.threshold
    told = typed("eval", run.run_dir, "--threshold", "recall>=0.5")
    assert "by recall>=0.5 on validation" in told.output
    assert "use this threshold from now on" in told.output
    assert RunRecord.load(run.run_dir).threshold != found.threshold
    told = typed("predict", run.run_dir, rare, "--threshold", "cost=10:1")
    assert "by cost=10:1 on validation" in told.stderr
    assert "--threshold=cost=10:1" in told.stdout


def test_other_data_leaves_the_threshold_of_the_run(rare_run: Trained, rare: Path, tmp_path: Path) -> None:
    run = rare_run
    before = RunRecord.load(run.run_dir).threshold
    pd.read_csv(rare).tail(200).to_csv(tmp_path / "new.csv", index=False)
    found = evaluate(run.run_dir, [f"data.source.path={tmp_path / 'new.csv'}"], threshold="0.2")
    assert found.threshold["value"] == 0.2
    assert RunRecord.load(run.run_dir).threshold == before
