"""One score has one value: terminal, record, metrics.csv, page, `eval` and `compare`, and scikit-learn."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import metrics as sk  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.neighbors import NearestNeighbors  # type: ignore[import-untyped]  # scikit-learn ships no types
from tests.command import documented, typed

from assay.data.core.rendering import eval_samples
from assay.record.scores import format_score
from assay.run.result import format_scores
from assay.task.evaluator import LEFT_OUT
from assay.terminal import NO_BREAK
from assay_analysis import predictions_file
from assay_report.page import Blocks, Cards, Note, Table
from assay_report.run_page import run_page
from assay_serve.evaluate import evaluate

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained

    from assay.task.predictions import StoredPredictions

MLP = (
    *("model=mlp", "optimizer.lr=0.01", "trainer.max_epochs=3", "callbacks=[checkpoint,last_checkpoint]"),
    *("data.batch_size=16", "data.eval_batch_size=7"),
)


def table(kind: str, folder: Path) -> tuple[str, ...]:
    """Overrides for two tables; the second, which is tested, lacks a class or a label."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(160, 3)), columns=list("abc"))
    noisy = frame + draw.normal(size=frame.shape) / 2
    score = noisy["a"] + noisy["b"]
    lacks: Any = np.zeros(160, bool)
    targets = ["y"]
    if kind == "multiclass":
        frame["y"] = np.array(list("kmnz"))[np.digitize(score, [-1, 0.3, 1.4])]
        lacks = frame["y"] == "z"
    elif kind == "binary":
        frame["y"] = np.where(score > 0.5, "yes", "no")
    elif kind == "one class alone":
        frame["y"] = np.where(score > 0.5, "yes", "no")
        lacks = frame["y"] == "yes"
    elif kind == "multilabel":
        targets = ["l0", "l1", "rare"]
        for name, column in zip(targets, noisy, strict=True):
            frame[name] = (noisy[column] > (1.2 if name == "rare" else 0)).astype(int)
        lacks = frame["rare"] == 1
    elif kind == "regression":
        frame["y"] = score * 10 + 300
    else:
        targets = ["grade", "price"]
        frame["grade"] = np.array(list("kmnz"))[np.digitize(score, [-1, 0.3, 1.4])]
        frame["price"] = score * 10 + 300
        lacks = frame["grade"] == "z"
    test = frame[~lacks].tail(50)
    test.to_csv(folder / "test.csv", index=False)
    frame.drop(test.index).to_csv(folder / "train.csv", index=False)
    target = targets[0] if len(targets) == 1 else f"[{','.join(targets)}]"
    more = ("data.source.task=multilabel",) if kind == "multilabel" else ()
    path, test_path = f"data.source.path={folder}/train.csv", f"data.source.test_path={folder}/test.csv"
    return "data=table", path, test_path, f"data.source.target={target}", *more


SMALL = ("trainer.max_epochs=1", "callbacks=[checkpoint,last_checkpoint]")


def job(kind: str, folder: Path) -> tuple[str, ...]:
    """A small run of a task."""
    if kind == "segmentation":
        sizes = (
            "~data.spec",
            "+data.source.num_samples=[24,8,9]",
            "data.batch_size=8",
            "data.eval_batch_size=4",
        )
        return "data=digits_segmentation", *sizes, "model.widths=[4,8]", "optimizer.lr=0.01", *SMALL
    if kind == "language_modelling":
        for number in range(12):
            lines = [f"def function_{number}_{line}(x):\n    return x + {line}\n" for line in range(12)]
            (folder / f"{number}.py").write_text("\n".join(lines), encoding="utf-8")
        model = ("model.num_layers=1", "model.num_heads=2", "model.embedding_size=16")
        source = (f"data.source.root={folder}", "data.source.context_length=16", "data.eval_batch_size=7")
        return "data=text_files", *source, *model, "trainer.limit_train_batches=6", *SMALL
    if kind in ("reconstruction", "self_supervised"):
        narrow: tuple[str, ...] = ("model.hidden=[16]",)
        if kind == "self_supervised":
            narrow = ("model.num_features=16", "model.encoder.widths=[4,8]")
        return f"task={kind}", "data=digits", "data.batch_size=256", "scheduler=none", *narrow, *SMALL
    return *table(kind, folder), *MLP


def of_columns(columns: list[tuple[Any, Any, Any]]) -> dict[str, float]:
    """Means over the columns of (target, score, guess) with samples."""
    columns = [column for column in columns if column[0].any()]
    areas = [sk.roc_auc_score(true, score) for true, score, _ in columns if not true.all()]
    functions = {"precision": sk.precision_score, "recall": sk.recall_score, "f1": sk.f1_score}
    rates = {
        name: float(np.mean([function(true, guess, zero_division=0) for true, _, guess in columns]))
        for name, function in functions.items()
    }
    return {**rates, "auroc": float(np.mean(areas))}


def of_values(true: Any, values: Any) -> dict[str, float]:
    mae, mse = sk.mean_absolute_error(true, values), sk.mean_squared_error(true, values)
    return {"mae": float(mae), "rmse": float(mse) ** 0.5, "r2": float(sk.r2_score(true, values))}


def by_model(kind: str, run: Trained) -> dict[str, float]:
    """Scores of what the model returns for all test samples at once."""
    data, model = run.datamodule, run.module.model.eval()
    inputs, targets = eval_samples(data, "test", range(len(data.splits.rows["test"])))
    with torch.no_grad():
        outputs = model(inputs)
    if kind == "segmentation":
        true, guess = targets.flatten().numpy(), outputs.argmax(1).flatten().numpy()
        options = {"labels": np.union1d(true, guess), "average": "macro", "zero_division": 0}
        return {
            "mean_iou": float(sk.jaccard_score(true, guess, **options)),
            "mean_dice": float(sk.f1_score(true, guess, **options)),
            "pixel_accuracy": float(sk.accuracy_score(true, guess)),
        }
    if kind == "language_modelling":
        chances = outputs.double().softmax(-1).gather(-1, targets[..., None])
        return {"perplexity": float((-chances.log().mean()).exp())}
    if kind == "reconstruction":
        error, unit = (outputs - inputs).double().numpy(), float(data.spec.std[0])
        return {
            "loss": float((error**2).mean()),
            "mse": float((error**2).mean()) * unit**2,
            "mae": float(np.abs(error).mean()) * unit,
        }
    nearest = NearestNeighbors(n_neighbors=1).fit(outputs.numpy()).kneighbors(return_distance=False)[:, 0]
    return {"one_nn": float((targets[nearest] == targets).double().mean())}


def by_scikit_learn(kind: str, predictions: StoredPredictions) -> dict[str, float]:
    outputs, true = predictions.outputs.astype(float), predictions.targets
    assert true is not None
    guess = outputs.argmax(1)
    if kind == "multiclass":
        columns = [(true == label, outputs[:, label], guess == label) for label in range(outputs.shape[1])]
        return {"accuracy": float(sk.accuracy_score(true, guess)), **of_columns(columns)}
    if kind == "one class alone":
        return {"accuracy": float(sk.accuracy_score(true, guess))}
    if kind == "binary":
        found = of_columns([(true == 1, outputs[:, 1], guess == 1)])
        average = float(sk.average_precision_score(true, outputs[:, 1]))
        return {"accuracy": float(sk.accuracy_score(true, guess)), "average_precision": average, **found}
    if kind == "multilabel":
        labels = range(outputs.shape[1])
        columns = [(true[:, label] == 1, outputs[:, label], outputs[:, label] > 0.5) for label in labels]
        return {"accuracy": float(((outputs > 0.5) == true).mean()), **of_columns(columns)}
    if kind == "regression":
        return of_values(true, outputs)
    grade = outputs[:, :4].argmax(1)
    f1 = sk.f1_score(true[:, 0], grade, labels=np.unique(true[:, 0]), average="macro")
    of_price = {f"price/{name}": value for name, value in of_values(true[:, 1], outputs[:, 4]).items()}
    return {"grade/accuracy": float(sk.accuracy_score(true[:, 0], grade)), "grade/f1": float(f1), **of_price}


NAMES = {
    "precision": r"precision( \(macro\)| of yes)?",
    "recall": r"recall of yes|recall \(macro\)|balanced accuracy",
    "average_precision": r"average precision of yes",
    "mean_iou": "mean iou",
    "mean_dice": "mean dice",
    "pixel_accuracy": "pixel accuracy",
    "one_nn": "recall@1",
    "loss": "error",
}
NO_CARD = {"mse", "mae"}
"""Scores of a reconstruction in the inputs' unit, which stored predictions do not tell."""
OF_TABLES = ("multiclass", "binary", "one class alone", "multilabel", "regression", "multitask")
OF_MODELS = ("segmentation", "language_modelling", "reconstruction", "self_supervised")


@functools.cache
def blocks(run_dir: Path) -> Blocks:
    """Of the page of a run."""
    return [block for section in run_page(run_dir).sections for block in section.blocks]


def on_page(run_dir: Path) -> dict[str, str]:
    (cards,) = (block for block in blocks(run_dir) if isinstance(block, Cards))
    return {name: value for name, value, _ in cards.cards}


def in_table(run_dir: Path) -> dict[str, str]:
    """The test scores of the page's table."""
    tables = [block for block in blocks(run_dir) if isinstance(block, Table)]
    (shown,) = (one for one in tables if one.columns[0] == "metric")
    place = list(shown.columns).index("test")
    return {cells[0].text: cells[place].text for cells in shown.cells}


@pytest.mark.always("one class alone", "multilabel", "multitask", "segmentation")
@pytest.mark.parametrize("kind", [*OF_TABLES, *OF_MODELS])
def test_each_score_has_one_value(kind: str, train: Train, tmp_path: Path) -> None:
    run = train(*job(kind, tmp_path))
    metrics, predictions = run.record["metrics"], predictions_file.read(run.run_dir / predictions_file.FILE)
    expected = by_scikit_learn(kind, predictions) if kind in OF_TABLES else by_model(kind, run)
    tolerance: Any = {"abs": 1e-9} if kind in OF_TABLES else {"rel": 1e-4}  # of other batches
    logged = in_table(run.run_dir)
    page, shares = on_page(run.run_dir), run.record["shares"]
    terminal = format_scores(run.result.metrics, "test", shares).replace(NO_BREAK, " ")
    again = evaluate(run.run_dir).metrics
    asked = [word for name in expected for word in ("--metric", f"test/{name}")]
    exit_code, compared = documented("compare", run.run_dir, *asked)
    assert exit_code == 0
    (row,) = compared["rows"]
    assert expected.keys() <= {name.removeprefix("test/") for name in metrics}
    for name, value in expected.items():
        recorded = metrics[f"test/{name}"]
        assert recorded == pytest.approx(value, **tolerance), name
        assert run.column(f"test/{name}") == [recorded]
        assert again[f"test/{name}"] == recorded
        text = format_score(name, recorded, shares)
        assert f"{name} {text}" in terminal
        head, _, score = name.rpartition("/")
        pattern = NAMES.get(score, score + r"( \(macro\)| of yes)?")
        pattern = f"{head}/{pattern}" if head else pattern
        shown = [text for card, text in page.items() if re.fullmatch(pattern, card)]
        assert shown == [text] or (name in NO_CARD and kind == "reconstruction"), (name, page)
        pattern = rf"{re.escape(name)}( \(\w+\)| of yes)?"
        assert [cell for title, cell in logged.items() if re.fullmatch(pattern, title)] == [text], logged
        assert row["scores"][f"test/{name}"]["mean"] == recorded
    if kind == "one class alone":
        undefined = ("precision", "recall", "f1", "auroc", "average_precision")
        assert {name: metrics[f"test/{name}"] for name in undefined} == dict.fromkeys(undefined, "nan")
        assert page["auroc"] == page["recall of yes"] == "undefined"
        assert logged["auroc"] == logged["f1 of yes"] == "undefined"
        assert "f1 undefined" in terminal
        assert "nan" not in terminal
    lacks = kind in ("multiclass", "one class alone", "multilabel", "multitask")
    assert sum(note.endswith(LEFT_OUT) for note in run.record["notes"]) == lacks
    notes = [block for block in blocks(run.run_dir) if isinstance(block, Note)]
    assert sum(note.text.endswith(LEFT_OUT) for note in notes) == lacks


def test_a_configured_metric_keeps_its_own_definition(train: Train, tmp_path: Path) -> None:
    run = train(
        *table("multiclass", tmp_path),
        *MLP,
        "metrics.eval.metrics.f1.average=weighted",
        "+metrics.eval.metrics.kappa={_target_:torchmetrics.classification.MulticlassCohenKappa,num_classes:4}",
    )
    predictions = predictions_file.read(run.run_dir / predictions_file.FILE)
    true, guess = predictions.targets, predictions.outputs.argmax(1)
    metrics = run.record["metrics"]
    assert metrics["test/f1"] == pytest.approx(sk.f1_score(true, guess, average="weighted"), abs=1e-6)
    assert metrics["test/kappa"] == pytest.approx(sk.cohen_kappa_score(true, guess), abs=1e-6)
    assert evaluate(run.run_dir).metrics["test/f1"] == metrics["test/f1"]


def test_a_score_that_is_undefined_cannot_be_monitored(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(90, 2)), columns=["a", "b"])
    frame["part"] = np.repeat(["train", "val", "test"], [60, 15, 15])
    frame["y"] = np.where((frame["a"] > 0) & (frame["part"] == "train"), "yes", "no")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    done = typed(
        *("train", "data=table", f"data.source.path={tmp_path}/rows.csv", "data.source.target=y", *MLP),
        *("data.split.column=part", "baseline=none", "callbacks=[default,early_stopping]"),
        *("callbacks.early_stopping.monitor=val/auroc", "callbacks.early_stopping.mode=max"),
        *("device=cpu", f"hydra.run.dir={tmp_path}/run"),
        code=1,
        folder=tmp_path,
    )
    assert "val/auroc is undefined" in " ".join(done.output.split())


def test_scores_are_shown_at_the_threshold_of_the_run(train: Train, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(900, 3)), columns=list("abc"))
    noisy = frame["a"] - frame["b"] + 2 * draw.normal(size=900)
    frame["y"] = np.where(noisy > 3, "yes", "no")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    path = f"data.source.path={tmp_path}/rows.csv"
    run = train("data=table", path, "data.source.target=y", *MLP, "data.split.val=0.4")
    threshold = run.record["threshold"]
    predictions = predictions_file.read(run.run_dir / predictions_file.FILE)
    true, chances = predictions.targets, predictions.outputs[:, 1]
    assert true is not None
    guess, by_half = chances >= np.float32(threshold["value"]), chances > 0.5
    assert (guess != by_half).any()
    functions = {"precision": sk.precision_score, "recall": sk.recall_score, "f1": sk.f1_score}
    page, at = on_page(run.run_dir), f"at {threshold['value']:.4g}"
    words = typed("eval", run.run_dir).output
    for name, function in functions.items():
        value = float(function(true, guess))
        assert threshold[name] == pytest.approx(value, abs=1e-9)
        assert page[f"{name} of yes {at}"] == format_score(name, value)
        assert f"{name} {format_score(name, value)}" in words.partition("threshold")[2]
        at_half = format_score(name, float(function(true, by_half, zero_division=0)))
        assert in_table(run.run_dir)[f"{name} of yes"] == at_half
    assert page[f"accuracy {at}"] == format_score("accuracy", float((guess == true).mean()))
    assert evaluate(run.run_dir).threshold == threshold
    frame.tail(300).to_csv(tmp_path / "new.csv", index=False)
    found = evaluate(run.run_dir, [f"data.source.path={tmp_path}/new.csv"])
    again = predictions_file.read(run.run_dir / found.predictions)
    assert again.targets is not None
    guess = again.outputs[:, 1] >= np.float32(threshold["value"])
    assert found.threshold["f1"] == pytest.approx(sk.f1_score(again.targets, guess), abs=1e-9)
    assert (found.threshold["value"], found.threshold["subset"]) == (threshold["value"], "these samples")


def test_undefined_scores_are_named_so() -> None:
    assert format_score("f1", float("nan")) == format_score("r2", float("nan")) == "undefined"
    assert format_score("val/loss", float("nan")) == "nan"
