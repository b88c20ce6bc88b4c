from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.making_runs import make_run
from tests.task.made_predictions import of_embeddings, of_labels, of_values

from assay.figure import Bars, Line
from assay.record.run_record import RunRecord
from assay.task.task_of import task_of
from assay_analysis import predictions_file
from assay_analysis.importances import Importances, write_importances
from assay_analysis.predictions_file import KeptSample
from assay_analysis.read_runs import Curve, read_curves
from assay_report.page import Cards, Note, Page, Pictures, Table, render
from assay_report.run_page import at_best_epoch, curve_figures, read_values, run_page

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained

    from assay.task.predictions import StoredPredictions


@pytest.fixture
def run_dir(digits_run: Trained, tmp_path: Path) -> Path:
    """A copy of a real run, to damage."""
    shutil.copytree(digits_run.run_dir, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    return tmp_path / "run"


def notes(page: Page) -> list[str]:
    return [block.text for section in page.sections for block in section.blocks if isinstance(block, Note)]


def test_a_real_run_is_shown_whole(digits_run: Trained) -> None:
    page = run_page(digits_run.run_dir)
    assert page.status == ("finished", "good")
    names = {figure.name for figure in page.figures}
    assert {"confusion_matrix", "confusion_matrix_normalised", "per_class", "roc", "calibration"} <= names
    assert {"learning_rate", "curve_0"} <= names
    blocks = [block for section in page.sections for block in section.blocks]
    (cards,) = (block for block in blocks if isinstance(block, Cards))
    accuracy = digits_run.record["metrics"]["test/accuracy"]
    assert cards.cards[0][:2] == ("accuracy", f"{100 * accuracy:.2f} %")
    assert re.fullmatch(r"\d+\.\d\d to \d+\.\d\d %", cards.cards[0][2])
    worst, confused, drawn = (block for block in blocks if isinstance(block, Pictures))
    titles = ("The most wrong", "The most frequent confusion", "At random")
    assert (worst.title, confused.title, drawn.title) == titles
    marked = [picture.tone for picture in confused.pictures]
    assert marked == sorted(marked, reverse=True)
    assert marked[0] == "bad"
    assert "where the loss is highest" in worst.caption
    assert len(worst.pictures) == len(drawn.pictures) == 24
    assert all(picture.png.startswith(b"\x89PNG") for picture in worst.pictures)
    last, config, _ = (block for block in blocks if isinstance(block, Table))
    assert last.columns == ("metric", "train", "val", "test")
    shown = {row[0].text: [cell.title for cell in row[1:]] for row in last.cells}
    best = digits_run.record["best"]
    curves = read_curves(digits_run.run_dir)
    (at,) = [at for at, epoch in enumerate(curves["val/f1"].epochs) if epoch == best["epoch"]]
    assert best["epoch"] < max(epoch or 0 for epoch in curves["val/f1"].epochs), "the best is not the last"
    assert shown["f1 (macro)"] == [
        "",
        repr(curves["val/f1"].values[at]),
        repr(digits_run.record["metrics"]["test/f1"]),
    ]
    assert shown["loss"][1] == repr(best["value"])
    assert "accuracy" in shown
    assert last.caption == f"All of epoch {best['epoch']}, the best by val/loss, whose checkpoint was tested."
    (f1,) = (figure for figure in page.figures if figure.title == "f1 (macro)")
    *_, line = f1.marks
    assert isinstance(line, Line)
    assert (line.name, line.is_reference) == (f"epoch {best['epoch']}, tested", True)
    assert list(line.x) == [curves["val/f1"].steps[at]] * 2
    tones = {row[0].text: row[0].tone for row in config.cells}
    assert (tones["optimizer.lr"], tones["optimizer.eps"]) == ("best", "")


@pytest.mark.parametrize("make", [of_values, of_labels, of_embeddings])
def test_each_task_brings_its_own(make: type, run_dir: Path) -> None:
    predictions: StoredPredictions = make()
    predictions_file.write(run_dir / predictions_file.FILE, predictions)
    predictions_file.write_samples(
        run_dir / predictions_file.SAMPLES,
        [KeptSample("3", "worst", None, {"a": 1.5, "b": "x"}), KeptSample("4", "random", None, {"a": None})],
    )
    page = run_page(run_dir)
    shown = {figure.name for figure in page.figures}
    task = task_of(predictions.task)
    assert {figure.name for figure in task.figures(predictions)} <= shown
    tables = [block for section in page.sections for block in section.blocks if isinstance(block, Table)]
    worst = tables[1]
    assert next(iter(worst.cells))[1].text == task.predicted_label(predictions, 3)
    assert worst.columns == ("sample", "predicted", "a", "b")
    assert (worst.title, worst.caption) == ("The most wrong", task.hardest_caption(predictions))
    assert notes(page) == [text for text in notes(page) if "git" in text]


@pytest.mark.always
@pytest.mark.parametrize("damage", ["metrics.csv", "predictions.parquet", "samples.parquet", "config.yaml"])
@pytest.mark.parametrize("content", [None, b"\x00\xff damaged", b""])
def test_what_is_missing_or_damaged_becomes_a_marked_box(
    damage: str, content: bytes | None, run_dir: Path
) -> None:
    if content is None:
        (run_dir / damage).unlink()
    else:
        (run_dir / damage).write_bytes(content)
    page = run_page(run_dir)
    render(page)
    if damage != "samples.parquet" or content is not None:
        assert any(damage in note for note in notes(page))


def test_a_metric_of_one_class_names_it_without_predictions_too(tmp_path: Path) -> None:
    metric = {"_target_": "torchmetrics.classification.BinaryF1Score"}
    config = {"metrics": {"eval": {"metrics": {"f1": metric}}}, "spec": {"class_names": ["no", "yes"]}}
    make_run(tmp_path / "run", config=config, csv="epoch,step,val/f1\n1,10,0.5\n")
    assert "f1 of yes" in [figure.title for figure in run_page(tmp_path / "run").figures]


def test_what_was_typed_stands_out(tmp_path: Path) -> None:
    config = {"data": {"transform": {"train": []}, "batch_size": 8}, "model": {"hidden": 3}}
    make_run(tmp_path / "run", "data/transform=none", "model=mlp", "+trainer.max_epochs=3", config=config)
    [table] = next(one for one in run_page(tmp_path / "run").sections if one.name == "config").blocks[1:]
    assert isinstance(table, Table)
    tones = {key.text: key.tone for key, _ in table.cells}
    marked = {"data.transform.train", "model._target_", "model.hidden", "trainer.max_epochs"}
    assert {key for key, tone in tones.items() if tone} >= marked
    assert not tones["data.batch_size"]


def test_importances_carry_the_names_of_columns(run_dir: Path) -> None:
    columns = {"city, <b>": [0.1, 0.3], "day": [0.5, 0.7]}
    write_importances(run_dir, Importances("accuracy", 0.9, 100, 100, columns))
    page = run_page(run_dir)
    (figure,) = (figure for figure in page.figures if figure.name == "importances")
    (bars,) = figure.marks
    assert isinstance(bars, Bars)
    assert list(bars.labels) == ["day", "city, <b>"]
    assert list(bars.values) == pytest.approx([0.6, 0.2])
    assert "<b>" not in render(page).split("<body")[1]
    path = run_dir / "importances.json"
    path.write_text(path.read_text().replace("0.7", "0.8"))
    assert f"{path} has changed since the run wrote it" in notes(run_page(run_dir))


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("running", "a process of the run died"),
        ("interrupted", "The run has been interrupted: SIGTERM"),
        ("failed", "The run has failed (out of memory): too large"),
    ],
)
def test_a_run_that_did_not_end_well_says_so(status: str, said: str, run_dir: Path) -> None:
    record = RunRecord.load(run_dir)
    record.status = status  # type: ignore[assignment]  # one of them
    record.reason = {"failed": "too large", "interrupted": "SIGTERM"}.get(status, "")
    record.cause = "out_of_memory" if status == "failed" else ""
    record.save(run_dir)
    assert any(said in note for note in notes(run_page(run_dir)))


def test_a_config_from_elsewhere_is_not_shown(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "secrets.yaml").write_text("passphrase: hunter2")
    (run_dir / "config.yaml").unlink()
    (run_dir / "config.yaml").symlink_to(tmp_path / "secrets.yaml")
    assert "hunter2" not in render(run_page(run_dir))
    values, problem = read_values(run_dir)
    assert not values
    assert "secrets.yaml, outside of " in problem


CURVES = {
    "lr-SGD": Curve([0, 5], [None, None], [0.1, 0.2]),
    "val/accuracy": Curve([9], [1], [0.5]),
    "val/loss": Curve([9, 19], [1, 2], [0.5, float("nan")]),
    "train/loss": Curve([8, 18], [1, 2], [0.7, 0.6]),
    "train/loss_step": Curve([0, 5], [None, None], [0.9, 0.8]),
    "test/loss": Curve([20], [2], [0.5]),
    "DeviceStatsMonitor.on_train_batch_end/allocated_bytes.all.peak": Curve([1, 2], [1, 1], [2**20, 2**21]),
    "DeviceStatsMonitor.on_train_batch_start/allocated_bytes.all.peak": Curve([1], [1], [2**20]),
    "DeviceStatsMonitor.on_train_batch_end/num_alloc_retries": Curve([1], [1], [0]),
}


def test_each_metric_has_a_figure_with_a_line_per_subset() -> None:
    figures = {figure.title: figure for figure in curve_figures(CURVES)}
    assert list(figures) == ["loss", "accuracy", "Learning rate"]
    assert [getattr(mark, "name", "") for mark in figures["loss"].marks] == [
        "val",
        "train",
        "train, each batch",
    ]
    (rate,) = figures["Learning rate"].marks
    assert isinstance(rate, Line)
    assert list(rate.y) == [0.1, 0.2]
    assert "1 of 6 values are not finite" in figures["loss"].caption


def test_the_best_checkpoint_s_scores_are_those_of_its_validation() -> None:
    """Validated twice an epoch; training is a mean of the whole epoch."""
    curves = {
        "val/loss": Curve([4, 9, 14, 19], [1, 1, 2, 2], [0.9, 0.5, 0.2, 0.3]),
        "val/f1": Curve([4, 9, 14, 19], [1, 1, 2, 2], [0.1, 0.5, 0.8, 0.7]),
        "train/loss": Curve([9, 19], [1, 2], [0.7, 0.6]),
        "lr-SGD": Curve([0], [None], [0.1]),
    }
    best = {"monitor": "val/loss", "value": 0.2, "epoch": 2}
    assert at_best_epoch(curves, best) == (14, {"val/loss": 0.2, "val/f1": 0.8, "train/loss": 0.6})
    assert at_best_epoch(curves, best | {"epoch": 7}) is None
    assert at_best_epoch(curves, {}) is None
    loss = curve_figures(curves, str.upper, ("epoch 2, tested", 14))[0]
    *_, line = loss.marks
    assert isinstance(line, Line)
    assert (loss.title, line.name) == ("LOSS", "epoch 2, tested")
    assert (list(line.x), list(line.y)) == ([14, 14], [0.2, 0.9])


def test_the_page_warns_of_copies(tmp_path: Path) -> None:
    note = "data: 3 of 5 samples in test are also in training: scores on them are optimistic"
    make_run(tmp_path / "a", metrics={"test/accuracy": 0.9}, notes=[note, "data: another note"])
    assert [text for text in notes(run_page(tmp_path / "a")) if text.startswith("data:")] == [note]
