"""Runs of one configuration as one predictor, against the mean over each of them loaded by itself."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.command import documented, typed
from tests.conftest import train_each
from tests.making_runs import make_run
from tests.run.predict.conftest import SHORT

import assay
from assay.errors import AssayError, ConfigError
from assay.files.checksum import seal_json
from assay.record.run_record import RunRecord
from assay_serve.ensemble import read
from assay_serve.members import find_members
from assay_serve.predict import predict
from assay_serve.threshold import set_threshold

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from tests.conftest import Train, Trained


def each(folder: Path) -> list[Any]:
    paths = sorted(path for path in folder.iterdir() if (path / "record.json").exists())
    return [assay.load(path, map_location="cpu") for path in paths]


@pytest.fixture(scope="session")
def kinds(train: Train, table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three folds of a table with gaps, categories and dates; each fits an encoder of its own."""
    return train_each(
        train,
        tmp_path_factory.mktemp("kinds of houses"),
        ("fold=0", "fold=1", "fold=2"),
        *("data=table", f"data.source.path={table / 'rows.csv'}", "data.source.target=kind", *SHORT),
        *("data.source.keep=[since]", "data.source.exclude=[price]", "data.split.folds=3"),
    )


@pytest.fixture(scope="session")
def prices(train: Train, table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folds whose targets are standardised by other statistics each."""
    return train_each(
        train,
        tmp_path_factory.mktemp("prices"),
        ("fold=0", "fold=1"),
        *("data=table", f"data.source.path={table / 'rows.csv'}", "data.source.target=price", *SHORT),
        *("data.source.exclude=[kind]", "data.split.folds=3"),
    )


def test_classes_are_those_of_the_mean_probability(kinds: Path, table: Path) -> None:
    rows = pd.read_csv(table / "rows.csv")
    found = assay.load(kinds, map_location="cpu")(rows)
    members = np.stack([one(rows).probabilities for one in each(kinds)])
    np.testing.assert_allclose(found.probabilities, members.mean(0), atol=1e-6)
    chosen = members.mean(0).argmax(1)
    assert found.labels == [found.class_names[index] for index in chosen]
    spread = members.std(0)[np.arange(len(rows)), chosen]
    np.testing.assert_allclose(found.uncertainty, spread, atol=1e-6)
    assert spread.max() > 0.01
    assert len({json.dumps(one.preprocess.encoder.as_plain()) for one in each(kinds)}) == 3


def test_values_are_averaged_in_the_unit_of_the_target(prices: Path, table: Path) -> None:
    rows = pd.read_csv(table / "rows.csv")
    predictor = assay.load(prices, map_location="cpu")
    members = np.stack([one(rows).values for one in each(prices)])
    np.testing.assert_allclose(predictor(rows).values, members.mean(0), rtol=1e-5)
    np.testing.assert_allclose(predictor(rows).uncertainty, members.std(0), rtol=1e-3)
    assert predictor(dict(rows.iloc[5])).value == pytest.approx(members.mean(0)[5, 0], rel=1e-5)


def test_a_file_is_predicted_as_from_python_and_odd_rows_are_named(
    kinds: Path, table: Path, tmp_path: Path
) -> None:
    rows = pd.read_csv(table / "rows.csv", dtype={"code": str}).head(40)
    rows["rooms"] = rows["rooms"].astype(object)
    rows.loc[3, "rooms"] = "many"
    rows.loc[7, "district"] = "Atlantis"
    rows.to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "found.parquet"
    code, document = documented("predict", kinds, tmp_path / "new.csv", "--out", out, "--keep", "customer_id")
    assert (code, document["num_samples"], document["num_failed"]) == (0, 40, 1)
    assert f"the mean of 3 runs of {kinds}: 0, 1, 2" in document["notes"]
    assert document["next"] == [f"assay export '{kinds}'"]
    frame = pd.read_parquet(out)
    assert "'many', not a number" in frame["error"][3]
    assert "'Atlantis', which no training row has" in frame["warning"][7]
    good = rows.drop(index=3).astype({"rooms": int})
    with pytest.warns(UserWarning, match="unlike the training rows"):
        members = np.stack([one(good).probabilities for one in each(kinds)])
    expected = np.insert(members.mean(0).max(1), 3, np.nan)
    np.testing.assert_allclose(frame["probability"], expected, atol=1e-6)
    assert frame["customer_id"].tolist() == rows["customer_id"].map(str).tolist()
    assert frame["uncertainty"].notna().sum() == 39


def test_pictures_are_normalised_by_each_run(train: Train, photos: Path, tmp_path: Path) -> None:
    folder = train_each(
        train,
        tmp_path / "runs",
        ("fold=0", "fold=1"),
        *("data=image_folder", f"data.source.root={photos}", "data.source.image_size=[12,10]", *SHORT),
        *("data.num_workers=0", "data.split.folds=3"),
    )
    paths = sorted(photos.glob("*/*"))[::9]
    members = np.stack([one(paths).probabilities for one in each(folder)])
    predictor = assay.load(folder, map_location="cpu")
    np.testing.assert_allclose(predictor(paths).probabilities, members.mean(0), atol=1e-6)
    assert predictor(paths[0]).probability == pytest.approx(members.mean(0)[0].max(), abs=1e-6)
    means = [tuple(one.preprocess.normalize.mean) for one in each(folder)]
    assert means[0] != means[1]


def test_texts_are_tokenized_by_each_run(train: Train, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    words = np.array(["fine", "good", "great", "bad", "awful", "poor"])
    kind = np.arange(90) % 2
    texts = [" ".join(draw.choice(words[3 * one : 3 * one + 3], 9)) + f" {n}" for n, one in enumerate(kind)]
    pd.DataFrame({"text": texts, "kind": np.where(kind, "no", "yes")}).to_csv(tmp_path / "t.csv", index=False)
    folder = train_each(
        train,
        tmp_path / "runs",
        ("fold=0", "fold=1"),
        *("data=text_table", f"data.source.path={tmp_path / 't.csv'}", "data.source.target=kind"),
        *("data.source.text=text", "data.split.folds=2", "callbacks=[checkpoint]", "trainer.max_steps=2"),
    )
    members = np.stack([one(texts[:20]).probabilities for one in each(folder)])
    found = assay.load(folder, map_location="cpu")(texts[:20])
    np.testing.assert_allclose(found.probabilities, members.mean(0), atol=1e-5)


def copy_of(folder: Path, path: Path) -> Path:
    return shutil.copytree(folder, path / "copy of runs")


def change_record(run_dir: Path, **fields: Any) -> None:
    record = RunRecord.load(run_dir)
    for name, value in fields.items():
        setattr(record, name, value)
    record.save(run_dir)


def twins(run_dir: Path, folder: Path) -> Path:
    """Two runs that differ in nothing but their seed, as far as their records say."""
    for number in range(2):
        change_record(shutil.copytree(run_dir, folder / str(number)), fingerprint=f"{number}", seed=number)
    return folder


def test_what_has_not_finished_is_left_out_and_named(kinds: Path, table: Path, tmp_path: Path) -> None:
    folder = copy_of(kinds, tmp_path)
    change_record(folder / "1", status="failed", cause="exception", reason="ValueError: no")
    (folder / "3").mkdir()
    (folder / "3" / "record.json").write_text("{")
    rows = pd.read_csv(table / "rows.csv")[:20]
    members = np.stack([one(rows).probabilities for one in (each(kinds)[0], each(kinds)[2])])
    predictor = assay.load(folder, map_location="cpu")
    np.testing.assert_allclose(predictor(rows).probabilities, members.mean(0), atol=1e-6)
    assert predictor.notes[:2] == [
        f"the mean of 2 runs of {folder}: 0, 2",
        f"{folder}: run 1 failed: ValueError: no; left out",
    ]
    assert predictor.notes[2].startswith(f"{folder}: run 3 broken: ")
    change_record(folder / "2", status="pruned", reason="pruned after epoch 1")
    with pytest.raises(AssayError) as caught:
        assay.load(folder)
    for part in ("run 0 finished", "run 1 failed: ValueError: no", "run 2 pruned: pruned after epoch 1"):
        assert part in caught.value.message
    assert caught.value.hint == f"name a run; assay ls '{folder}' lists them"
    change_record(folder / "0", status="interrupted")
    with pytest.raises(AssayError, match=r"several finished runs .*run 0 interrupted"):
        assay.load(folder)


def test_of_several_configurations_the_best_is_taken(tmp_path: Path) -> None:
    for number, (rate, seed, score) in enumerate([(1, 0, 0.5), (1, 1, 0.7), (2, 0, 0.9), (2, 1, 0.8)]):
        best = {"monitor": "val/accuracy", "value": score, "epoch": 1}
        typed_words = (f"optimizer.lr={rate}", f"seed={seed}")
        make_run(tmp_path / str(number), *typed_words, best=best, metrics={"val/accuracy": score})
    found = find_members(tmp_path)
    assert found is not None
    assert found.run_dirs == (tmp_path / "2", tmp_path / "3")
    words = "; of 2 configurations the best by val/accuracy: optimizer.lr=2"
    assert found.notes == (f"the mean of 2 runs of {tmp_path}: 2, 3{words}",)
    make_run(tmp_path / "4", "data=wine", best=best, data_sha256="1", metrics={"val/accuracy": 1.0})
    with pytest.raises(AssayError, match=r"3 configurations, and it is not known which is the best: .*data"):
        find_members(tmp_path)


def test_runs_that_answer_something_else_are_refused_by_name(
    kinds: Path, prices: Path, tmp_path: Path
) -> None:
    folder = copy_of(kinds, tmp_path)
    fingerprint = RunRecord.load(folder / "0").config_fingerprint
    shutil.rmtree(folder / "2")
    shutil.copytree(prices / "0", folder / "2")
    change_record(folder / "2", config_fingerprint=fingerprint)
    with pytest.raises(AssayError) as caught:
        assay.load(folder)
    assert caught.value.message == (
        f"the tasks of {folder / '0'} and {folder / '2'} differ, so they cannot be averaged: "
        "multiclass against regression"
    )
    shutil.rmtree(folder / "2")
    shutil.copytree(folder / "1", folder / "2")
    change_record(folder / "2", fingerprint="another", fold=2)
    path = folder / "2" / "encoder.json"
    plain = json.loads(path.read_text())
    plain.pop("sha256", None)
    plain["columns"][0]["name"] = "width"
    path.write_text(seal_json(json.dumps(plain, indent=2)))
    with pytest.raises(
        AssayError, match=r"the inputs of .* differ.*: size \(number\) against width \(number\)"
    ):
        assay.load(folder)


def test_embeddings_have_no_mean(train: Train, tmp_path: Path) -> None:
    run = train("data=wine", "loss=triplet", "metrics=retrieval", "callbacks=[checkpoint]")
    with pytest.raises(AssayError, match="embeddings of several runs cannot be averaged"):
        assay.load(twins(run.run_dir, tmp_path))


def test_the_threshold_of_two_classes(yes_no_run: Trained, tmp_path: Path) -> None:
    folder = twins(yes_no_run.run_dir, tmp_path)
    for number, value in enumerate((0.2, 0.3)):
        change_record(folder / str(number), threshold={"value": value, "class": "benign"})
    predictor = read(folder, "best", "cpu")
    assert predictor.threshold == pytest.approx(0.25)
    assert predictor.about_threshold["chosen"] == "the mean of the runs' thresholds"
    set_threshold(predictor, folder, "0.4")
    assert predictor.threshold == 0.4
    with pytest.raises(ConfigError, match=r"one run, and .* has several"):
        set_threshold(predictor, folder, "f1")
    change_record(folder / "1", threshold={})  # the run has chosen none
    assert read(folder, "best", "cpu").threshold == 0.5


def test_a_folder_without_runs_and_a_bare_model(kinds: Path, tmp_path: Path) -> None:
    assert "holds no run" in typed("predict", tmp_path, "x.csv", code=1).output
    assert "there is no run directory" in typed("predict", tmp_path / "no", "x.csv", code=1).output
    with pytest.raises(AssayError, match="there is no run directory"):
        assay.load(tmp_path / "no")
    with pytest.raises(AssayError, match=r"is not a run directory: it has no config\.yaml"):
        assay.load(kinds, raw_input=False)


OF_MEMBERS = ("model=table_mlp", "callbacks=[checkpoint]", "trainer.limit_train_batches=4")


def values_of_members(run: Trained, inputs: torch.Tensor) -> NDArray[np.float32]:
    """What each member answers, `[members, N, num_outputs]`."""
    model: Any = run.module.model.eval()
    with torch.no_grad():
        return np.stack([model.member_outputs(inputs)[:, k].numpy() for k in range(model.members)])


def predicted_from(run: Trained, path: Path, out: Path) -> tuple[pd.DataFrame, torch.Tensor, Any]:
    """Written predictions, inputs of the network, and predictions from Python."""
    predictor = assay.load(run.run_dir, map_location="cpu")
    predict(predictor, run.run_dir, [path], out=out, batch_size=64)
    rows = pd.read_csv(path)
    assert predictor.preprocess is not None
    return pd.read_parquet(out), predictor.preprocess(rows), predictor(rows)


@pytest.fixture(scope="module")
def price_run(train: Train, table: Path) -> Trained:
    """Four members for one value."""
    return train(
        *("data=table", f"data.source.path={table / 'rows.csv'}", "data.source.target=price", *OF_MEMBERS),
        *("data.source.missing=impute", "data.source.exclude=[kind]", "model.members=4"),
    )


def test_of_values_in_the_unit_of_the_target(price_run: Trained, table: Path, tmp_path: Path) -> None:
    run = price_run
    frame, inputs, found = predicted_from(run, table / "rows.csv", tmp_path / "found.parquet")
    spec = run.datamodule.spec
    members = values_of_members(run, inputs)[:, :, 0] * spec.target_std[0] + spec.target_mean[0]
    np.testing.assert_allclose(frame["uncertainty"], members.std(0), rtol=1e-3)
    np.testing.assert_allclose(frame["prediction"], members.mean(0), rtol=1e-5)
    assert frame["uncertainty"].min() > 1  # in the unit of prices, not of standardised ones
    np.testing.assert_allclose(found.uncertainty[:, 0], frame["uncertainty"], rtol=1e-4)
    assert found[3].uncertainty == found.uncertainty[3]
    assert found[3].to_frame()["uncertainty"].item() == found.uncertainty[3].item()


def test_of_the_probability_of_the_predicted_class(train: Train, table: Path, tmp_path: Path) -> None:
    run = train(
        *("data=table", f"data.source.path={table / 'rows.csv'}", "data.source.target=kind", *OF_MEMBERS),
        *("data.source.missing=impute", "data.source.exclude=[price]", "model.members=4"),
    )
    frame, inputs, found = predicted_from(run, table / "rows.csv", tmp_path / "found.parquet")
    logits = values_of_members(run, inputs)
    shares = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    names = list(run.datamodule.spec.class_names)
    chosen = [names.index(name) for name in frame["prediction"]]
    expected = shares.std(0)[np.arange(len(frame)), chosen]
    np.testing.assert_allclose(frame["uncertainty"], expected, atol=1e-6)
    np.testing.assert_allclose(found.uncertainty, expected, atol=1e-6)
    assert found[5].to_frame()["uncertainty"].item() == found.uncertainty[5]
    assert expected.std() > 0


def test_a_single_network_has_none(train: Train, table: Path, tmp_path: Path) -> None:
    run = train(
        *("data=table", f"data.source.path={table / 'rows.csv'}", "data.source.target=price", *OF_MEMBERS),
        *("data.source.missing=impute", "data.source.exclude=[kind]", "model.members=1"),
    )
    frame, _, found = predicted_from(run, table / "rows.csv", tmp_path / "found.parquet")
    assert "uncertainty" not in frame
    assert found.uncertainty is None


def test_a_model_is_asked_once_for_its_output_and_its_spread(
    price_run: Trained, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = assay.load(price_run.run_dir, map_location="cpu")
    model: Any = predictor.model
    original = model.member_outputs
    sizes = []

    def count(inputs: torch.Tensor) -> torch.Tensor:
        sizes.append(len(inputs))
        return original(inputs)  # type: ignore[no-any-return]  # of any model

    monkeypatch.setattr(model, "member_outputs", count)
    num_rows = len(pd.read_csv(table / "rows.csv"))
    found = predict(
        predictor, price_run.run_dir, [table / "rows.csv"], out=tmp_path / "found.csv", batch_size=64
    )
    assert (found.num_samples, sum(sizes)) == (num_rows, num_rows)
