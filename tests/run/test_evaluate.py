"""A run tested again comes to its own scores; other data is treated as the run treats its own."""

from __future__ import annotations

import errno
import os
import re
import shutil
from contextlib import chdir
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.datasets import load_iris  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.metrics import accuracy_score  # type: ignore[import-untyped]  # as above
from tests.mounting import mount, mounted

import assay
from assay.errors import AssayError, ConfigError, DataError
from assay.record import run_lock
from assay.record.run_lock import lock_run
from assay.record.run_record import RunRecord
from assay_analysis import predictions_file
from assay_serve.evaluate import Evaluation, evaluate

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from tests.conftest import Train, Trained

KEPT = ("callbacks=[checkpoint,last_checkpoint]", "model=mlp", "optimizer.lr=0.01")


def stage(metrics: Any, name: str) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if key.startswith(f"{name}/")}


@pytest.mark.always("embeddings")
@pytest.mark.parametrize(
    "overrides",
    [
        ("data=wine", "loss=triplet", "metrics=retrieval", "optimizer.lr=0.001"),
        ("data=digits", "callbacks=[checkpoint,drw]", "callbacks.drw.start_fraction=0"),
    ],
    ids=["embeddings", "reweighted"],
)
def test_the_same_data_comes_to_the_runs_own_scores(train: Train, overrides: tuple[str, ...]) -> None:
    """Those of each task are in tests/contract/test_scores.py."""
    run = train(*KEPT, *overrides)
    found = evaluate(run.run_dir)
    assert found.metrics == stage(run.result.metrics, "test")
    assert (found.subset, found.same_data, found.notes) == ("test", True, [])
    own = predictions_file.read(run.run_dir / predictions_file.FILE)
    again = predictions_file.read(run.run_dir / found.predictions)
    np.testing.assert_array_equal(own.outputs, again.outputs)
    np.testing.assert_array_equal(own.targets, again.targets)
    assert (own.keys, found.num_samples) == (again.keys, len(again.keys))


def test_scores_of_validation_are_those_of_the_tested_weights(train: Train) -> None:
    words = ("data=wine", "model=mlp", "optimizer.lr=0.05", "scheduler=none", "callbacks=[checkpoint]")
    run = train(*words, "trainer.max_epochs=12", "seed=1")
    found = evaluate(run.run_dir, split="val").metrics
    best, scores = run.record["best"], stage(run.record["metrics"], "val")
    assert (best["epoch"] < 12, best["value"]) == (True, scores["val/loss"])
    assert scores == pytest.approx(found)
    assert scores["val/accuracy"] != run.column("val/accuracy")[-1]


def test_each_evaluation_is_an_entry_of_the_record(digits_run: Trained, tmp_path: Path) -> None:
    run_dir = shutil.copytree(digits_run.run_dir, tmp_path / "run")
    before = RunRecord.load(run_dir)
    first = evaluate(run_dir)
    second = evaluate(run_dir, ["data.eval_batch_size=100"], checkpoint="last", split="val")
    assert first.metrics == stage(before.metrics, "test")
    last = {name: digits_run.column(name)[-1] for name in second.metrics}
    assert second.metrics == pytest.approx(last, abs=1e-6)
    record = RunRecord.load(run_dir)  # sealed again
    assert [one["metrics"] for one in record.evaluations] == [first.metrics, second.metrics]
    assert [one["checkpoint"] for one in record.evaluations] == ["best.ckpt", "last.ckpt"]
    assert record.evaluations[0]["checkpoint_sha256"] == before.best["sha256"]
    assert record.evaluations[1]["overrides"] == ["data.eval_batch_size=100"]
    assert record.evaluations[0]["data_sha256"] == before.data_sha256
    assert record.evaluations[0]["predictions"] != record.evaluations[1]["predictions"]
    assert predictions_file.read(run_dir / record.evaluations[1]["predictions"]).subset == "val"
    record.evaluations = []
    assert record == before
    trained = evaluate(run_dir, split="train")
    assert trained.num_samples == 1257
    assert "trained on" in trained.notes[0]
    assert trained.metrics["train/accuracy"] > first.metrics["test/accuracy"]


@pytest.fixture(scope="module")
def flowers() -> pd.DataFrame:
    data = load_iris(as_frame=True)
    frame: pd.DataFrame = data.data.copy()
    frame["kind"] = [str(data.target_names[index]) for index in data.target]
    frame["soil"] = np.where(frame.index % 3 == 0, "wet", "dry")
    return frame.sample(frac=1, random_state=0, ignore_index=True)


@pytest.fixture(scope="module")
def flower_run(train: Train, flowers: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    path = tmp_path_factory.mktemp("flowers") / "flowers.csv"
    flowers[:110].to_csv(path, index=False)
    return train(
        *("data=table", f"data.source.path='{path}'", "data.source.target=kind", *KEPT),
        "trainer.max_epochs=8",
    )


def on(run: Trained, frame: pd.DataFrame, folder: Path, *more: str) -> Evaluation:
    """The run, tested on a file of these rows."""
    frame.to_csv(folder / "new.csv", index=False)
    return evaluate(run.run_dir, [f"data.source.path='{folder}/new.csv'", *more])


def test_new_rows_are_all_tested_with_the_runs_preprocessing(
    flower_run: Trained, flowers: pd.DataFrame, tmp_path: Path
) -> None:
    new = flowers[110:]
    found = on(flower_run, new, tmp_path)
    assert (found.subset, found.num_samples, found.same_data) == ("all", 40, False)
    predictions = predictions_file.read(flower_run.run_dir / found.predictions)
    names = [predictions.class_names[index] for index in predictions.outputs.argmax(1)]
    assert found.metrics["all/accuracy"] == pytest.approx(accuracy_score(new["kind"], names), abs=1e-6)
    # Shifted, fewer, in another order of rows, columns and classes: each row is told the same.
    few = new[new["kind"] != "setosa"][:4][::-1]
    few = few[[*few.columns[::-1]]].assign(more=1)
    again = on(flower_run, few, tmp_path)
    assert any("has no class setosa" in note for note in again.notes)
    outputs = predictions_file.read(flower_run.run_dir / again.predictions).outputs
    positions = np.array([list(new.index).index(index) for index in few.index])
    np.testing.assert_allclose(outputs, predictions.outputs[positions], atol=1e-6)
    divided = on(flower_run, flowers[:110], tmp_path)  # the run's own rows at another place
    assert (divided.subset, divided.same_data) == ("test", True)
    assert divided.metrics == stage(flower_run.result.metrics, "test")


def test_rows_that_the_model_does_not_take_are_refused(
    flower_run: Trained, flowers: pd.DataFrame, tmp_path: Path
) -> None:
    new = flowers[110:]
    column = new.columns[0]
    name = re.escape(repr(column))
    before = flower_run.record["evaluations"]
    for frame, message in (
        (new.assign(kind=["rose", *new["kind"][1:]]), "does not know the class 'rose'"),
        (new.drop(columns=column), rf"data\.source\.path: .*new\.csv has no column {name}"),
        (new.assign(**{column: "long"}), r"row 0 \(rows count from 0\): '.*' is 'long', not "),
    ):
        with pytest.raises((DataError, ConfigError), match=message) as caught:
            on(flower_run, frame, tmp_path)
        assert "\n" not in caught.value.message
    strange = on(flower_run, new.assign(soil="sand"), tmp_path)
    assert any("'soil' is 'sand', which no training row has" in note for note in strange.notes)
    assert len(flower_run.record["evaluations"]) == len(before) + 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.lr=1", "optimizer.lr: an evaluation cannot change this key"),
        ("data.source._target_=os.system", "cannot change this key"),
        ("data.source.keep=[soil]", "data.source.keep: an evaluation cannot change this key"),
        ("data.source.pth=x", "no such key; did you mean 'data.source.path'"),
        ("data.source.path=a,b", "several values"),
        ("data=iris", r"shape \[4\]"),
        ("data=diabetes", "the task is regression"),
        ("device=gpus", "unknown option 'gpus'"),
    ],
)
def test_what_would_do_nothing_or_harm_is_refused(flower_run: Trained, override: str, message: str) -> None:
    before = flower_run.record
    with pytest.raises(AssayError, match=message) as caught:
        evaluate(flower_run.run_dir, [override])
    assert "\n" not in caught.value.message
    assert flower_run.record == before


def test_data_that_has_changed_since_is_not_the_runs(
    train: Train, flowers: pd.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "flowers.csv"
    flowers[:100].to_csv(path, index=False)
    run = train("data=table", f"data.source.path='{path}'", "data.source.target=kind", *KEPT)
    flowers.to_csv(path, index=False)
    with pytest.raises(AssayError, match="its SHA-256 differs"):
        evaluate(run.run_dir)
    found = evaluate(run.run_dir, [f"data.source.path='{path}'"])
    assert (found.subset, found.num_samples, found.same_data) == ("all", 150, False)
    assert any("is not known" in note for note in found.notes)


def test_a_file_that_would_not_be_read_is_refused(
    train: Train, flowers: pd.DataFrame, tmp_path: Path
) -> None:
    for name, rows in (("train", flowers[:90]), ("test", flowers[90:120]), ("new", flowers[120:])):
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    run = train(
        *("data=table", f"data.source.path='{tmp_path}/train.csv'", "data.source.target=kind", *KEPT),
        f"data.source.test_path='{tmp_path}/test.csv'",
    )
    with pytest.raises(ConfigError, match="this would not be tested"):
        evaluate(run.run_dir, [f"data.source.path='{tmp_path}/new.csv'"])
    found = evaluate(run.run_dir, [f"data.source.test_path='{tmp_path}/new.csv'"])
    assert (found.subset, found.num_samples, found.same_data) == ("test", 30, False)
    assert evaluate(run.run_dir).metrics == stage(run.result.metrics, "test")


def test_a_run_that_is_written_is_left_alone(
    digits_run: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = shutil.copytree(digits_run.run_dir, tmp_path / "run")
    monkeypatch.setattr(run_lock, "_PATIENCE", 0.0)
    with lock_run(run_dir), pytest.raises(AssayError, match="still being written"):
        evaluate(run_dir)
    assert RunRecord.load(run_dir).evaluations == []


def test_scores_of_a_run_that_cannot_be_written_are_not_kept(digits_run: Trained, tmp_path: Path) -> None:
    with mounted(folder := tmp_path / "shared", "size=64m") as is_mounted:
        run_dir = shutil.copytree(digits_run.run_dir, folder / "run")
        if is_mounted:
            assert mount("-o", "remount,ro", str(folder))
        else:
            run_dir.chmod(0o555)
        if os.access(run_dir, os.W_OK):
            pytest.skip("the superuser can write everywhere, and cannot mount")
        found = evaluate(run_dir)
        assert found.metrics == stage(digits_run.result.metrics, "test")
        assert found.notes == [f"the scores are not kept: {run_dir} cannot be written"]
        assert RunRecord.load(run_dir).evaluations == []


def test_a_full_disk_leaves_no_folder_of_an_evaluation(
    digits_run: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = shutil.copytree(digits_run.run_dir, tmp_path / "run")

    def fail(path: Path, _: object) -> None:
        path.parent.mkdir(parents=True)
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(predictions_file, "write", fail)
    with pytest.raises(AssayError, match="cannot be written"):
        evaluate(run_dir)
    assert not (run_dir / "evaluations").exists()


def test_a_table_needs_its_encoder(flower_run: Trained, tmp_path: Path) -> None:
    run_dir = shutil.copytree(flower_run.run_dir, tmp_path / "run")
    (run_dir / "encoder.json").unlink()
    for use in (evaluate, assay.load):
        with pytest.raises(AssayError, match=r"encoder\.json is missing"):
            use(run_dir)


def test_code_of_the_users_own_is_tested_too(train: Train, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(
        "import lightning as L, torch\n"
        "class Mine(L.LightningModule):\n"
        "    def __init__(self):\n"
        "        super().__init__(); self.layer = torch.nn.Linear(13, 3)\n"
        "    def training_step(self, batch, index):\n"
        "        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])\n"
        "    def validation_step(self, batch, index): pass\n"
        "    def test_step(self, batch, index):\n"
        "        self.log('test/mine', self.training_step(batch, index))\n"
        "    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)\n"
    )
    trusted = "trusted_packages=[theirs]"
    with chdir(tmp_path):
        run = train(
            *("data=wine", "module._target_=theirs.Mine", trusted, "callbacks=[last_checkpoint]"),
            cwd=tmp_path,
        )
        with pytest.raises(AssayError, match="theirs"):
            evaluate(run.run_dir)
        found = evaluate(run.run_dir, [trusted])
    assert found.metrics == stage(run.result.metrics, "test")
    assert found.predictions == ""
    assert "no predictions are kept: Mine has no prediction_kind" in (run.run_dir / "log.txt").read_text()


def test_a_file_without_a_label_of_the_run_is_tested(train: Train, tmp_path: Path) -> None:
    import pandas

    rows = np.random.default_rng(0).normal(size=(80, 3)).round(2)
    frame = pandas.DataFrame(rows, columns=["a", "b", "c"])
    frame["tags"] = [
        ";".join(name for name, x in zip(("red", "blue"), row, strict=False) if x > 0) or "grey"
        for row in rows
    ]
    frame.to_csv(tmp_path / "tags.csv", index=False)
    frame[~frame["tags"].str.contains("blue")].to_csv(tmp_path / "new.csv", index=False)
    source = (
        f"data.source.path={tmp_path}/tags.csv",
        "data.source.target=tags",
        "data.source.label_separator=';'",
    )
    run = train("data=table", *source, "trainer.max_epochs=1", "callbacks=[checkpoint]")
    found = evaluate(run.run_dir, [f"data.source.path={tmp_path}/new.csv"])
    predictions = predictions_file.read(run.run_dir / found.predictions)
    assert predictions.class_names == ("blue", "grey", "red")
    assert predictions.targets is not None
    assert predictions.targets.sum(axis=0).tolist()[0] == 0


def test_16_bits_hold_what_has_been_normalised(train: Train, tmp_path: Path) -> None:
    """Around 1,000 bfloat16 has steps of 4; scores of training and of an evaluation are the same."""
    random = np.random.default_rng(0)
    x = random.normal(size=600)
    path = tmp_path / "table.csv"
    np.savetxt(path, np.column_stack([1000 + x, 3 * x]), delimiter=",", header="x,y", comments="")
    job = ("data=table", f"data.source.path={path}", "data.source.target=y", "data.source.keep=[x]")
    short = ("precision=bf16_true", "trainer.max_epochs=8", "model.members=1", "model.hidden=[64]")
    run = train(*job, *short, KEPT[0], cwd=tmp_path)
    assert run.result.metrics["test/r2"] > 0.9
    assert evaluate(run.run_dir).metrics == stage(run.result.metrics, "test")
