"""An exported file takes rows as they stand in a user's file, and says of them what `assay predict` says."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]  # ships no types
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit  # type: ignore[import-untyped]  # ships no types
from torch import Tensor, nn

import assay
from assay.errors import AssayError
from assay.run.predictor import Predictor
from assay_serve.export.export import export, open_onnx, write_onnx
from assay_serve.predict import predict

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained

COLUMNS = ("amount", "count", "flag", "town", "grade", "since", "empty", "badge")


@pytest.fixture(scope="module")
def fraud(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rare class, codes of missing values among numbers and texts, and a column without a value."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "amount": draw.normal(40, 10, 900).round(2),
            "count": draw.integers(1_699_999_700, 1_700_000_301, 900),
            "flag": draw.random(900) > 0.5,
            "town": draw.choice(["Nord", "Süd", "West", "?"], 900),
            "grade": draw.choice(["1", "2", "10"], 900),
            "since": pd.Timestamp("2001-02-03") + pd.to_timedelta(draw.integers(0, 3000, 900), unit="D"),
            "empty": np.nan,
            "badge": [f"K{17 * row}x" if row % 3 == 0 else "" for row in range(900)],
        }
    )
    risk = frame["amount"] - 40 + 8 * (frame["town"] == "Süd") + 4 * frame["flag"]
    frame["kind"] = np.where(risk + draw.normal(0, 3, 900) > 17, "fraud", "fine")
    frame.loc[draw.random(900) < 0.1, "amount"] = -999
    path = tmp_path_factory.mktemp("my data") / "fraud.csv"
    frame.to_csv(path, index=False)
    return path


@dataclass(frozen=True)
class Served:
    """A run and its exported file."""

    run: Trained
    session: Any
    about: dict[str, Any]
    predictor: Predictor

    def run_raw(self, rows: list[dict[str, str]]) -> dict[str, Any]:
        """Outputs for the cells of a CSV file, prepared by what the file itself says of its inputs."""
        inputs: dict[str, Any] = {}
        for described in self.about["inputs"]:
            cells = [[self._value(column, row) for column in described["columns"]] for row in rows]
            dtype = object if described["dtype"] == "string" else described["dtype"]
            inputs[described["name"]] = np.array(cells, dtype)
        names = [output.name for output in self.session.get_outputs()]
        return dict(zip(names, self.session.run(None, inputs), strict=True))

    @staticmethod
    def _value(column: dict[str, Any], row: dict[str, str]) -> Any:
        text = row[column.get("date", column["name"])]
        if column["kind"] == "category":
            return text
        if text in ("", "?", "unknown"):
            return np.nan
        if column["kind"] == "number":
            return {"True": 1.0, "False": 0.0}.get(text) if text in ("True", "False") else float(text)
        date = pd.Timestamp(text)
        if column["part"] == "elapsed":
            return (date - pd.Timestamp(column["start"])) / pd.Timedelta(days=1)
        cycle, _, wave = column["part"].partition("_")
        if wave in ("sine", "cosine"):
            start = date.to_period(cycle[0].upper()).start_time
            end = (date.to_period(cycle[0].upper()) + 1).start_time
            share = (date - start) / (end - start)
            return float({"sine": np.sin, "cosine": np.cos}[wave](2 * np.pi * share))
        return float(getattr(date, column["part"]))


def serve(train: Train, path: Path, out: Path, *typed: str) -> Served:
    run = train(
        *("data=table", f"data.source.path='{path}'", "data.source.target=kind", "model=mlp"),
        *('data.source.na_values=[-999,"?"]', "data.source.positive=fraud", "data.split.val=0.3"),
        *("data.source.keep=[empty]", "data.source.categories=[grade]", "trainer.max_epochs=4"),
        *("data.source.max_categories=3", "callbacks=[checkpoint]", *typed),
    )
    exported = export(run.run_dir, "onnx", out=out)
    session = onnxruntime.InferenceSession(str(exported.path))
    return Served(run, session, exported.description, assay.load(run.run_dir, map_location="cpu"))


@pytest.fixture(scope="module")
def served(train: Train, fraud: Path, tmp_path_factory: pytest.TempPathFactory) -> Served:
    return serve(train, fraud, tmp_path_factory.mktemp("out"), "data.source.missing=impute")


CELLS = {
    "amount": st.one_of(
        st.sampled_from(["", "-999", "-999.0", "1e300", "-998", "9.5e9", "?", "unknown"]),
        st.floats(-100, 200).map("{:.3f}".format),
    ),
    "count": st.one_of(st.just(""), st.integers(1_699_900_000, 1_700_100_000).map(str)),
    "flag": st.sampled_from(["True", "False"]),
    "town": st.sampled_from(
        ["Nord", "Süd", "West", "?", "", "Mars", "nord", "NA", "-999", "-", "missing", " ", " ?"]
    ),
    "grade": st.sampled_from(["1", "2", "10", "", "3", "-999"]),
    "since": st.one_of(st.just(""), st.dates().map(str)),
    "empty": st.one_of(st.just(""), st.integers(-2, 2).map(str)),
    "badge": st.sampled_from(["", "K17x", "new", "12", "NA", " "]),
}


@given(st.lists(st.fixed_dictionaries(CELLS), min_size=1, max_size=40))
@settings(max_examples=12)
def test_raw_rows_are_predicted_as_by_assay(
    served: Served, tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "new.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    expected = pd.DataFrame(predict(served.predictor, served.run.run_dir, [path]).rows)
    found = served.run_raw(rows)
    fails = expected["error"].notna().to_numpy()
    assert (np.isnan(found["probabilities"]).any(1) == fails).all()
    assert (found["prediction"][fails] == -1).all()
    if fails.all():
        return
    fraud = expected["probability fraud"].to_numpy("float64")[~fails]
    second = served.about["names"].index("fraud")
    np.testing.assert_allclose(found["probabilities"][~fails, second], fraud, rtol=1e-3)
    names = [served.about["names"][index] for index in found["prediction"][~fails]]
    near = np.abs(fraud - served.about["threshold"]["value"]) < 1e-5
    assert (near | (names == expected["prediction"][~fails])).all()


def test_missing_codes_are_described(served: Served) -> None:
    columns = {column["name"]: column for part in served.about["inputs"] for column in part["columns"]}
    assert columns["amount"]["missing_codes"] == [-999.0]
    assert columns["town"]["missing_codes"] == ["-999", "?"]
    assert {part["name"]: part["dtype"] for part in served.about["inputs"]} == {
        "numbers": "float64",
        "categories": "string",
    }


def test_a_file_that_forgets_the_missing_codes_is_not_kept(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the run's own test rows, once they are read, hold no code."""
    monkeypatch.setattr("assay_serve.export.exportable.missing_numbers", lambda _: [])
    with pytest.raises(AssayError, match=r"differ from the original's by .*\n.*nothing was kept"):
        export(served.run.run_dir, "onnx", out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_rows_without_a_value_where_none_was_learned(train: Train, fraud: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(fraud).drop(columns=["empty", "badge"])
    frame = frame[(frame["amount"] != -999) & (frame["town"] != "?")]
    frame.to_csv(tmp_path / "whole.csv", index=False)
    served = serve(
        train, tmp_path / "whole.csv", tmp_path / "out", "data.source.missing=error", "data.source.keep=[]"
    )
    row = dict(zip(COLUMNS, ("40", "160100", "True", "Süd", "2", "2004-05-06"), strict=False))
    missing = [("amount", "-999"), ("amount", ""), ("town", "?"), ("since", "")]
    rows = [row, *({**row, name: value} for name, value in missing)]
    found = served.run_raw(rows)
    assert np.isnan(found["probabilities"]).any(1).tolist() == [False, True, True, True, True]
    assert np.isnan(found["logits"]).any(1).tolist() == [False, True, True, True, True]
    assert (found["prediction"] == -1).tolist() == [False, True, True, True, True]


def test_the_threshold_of_the_run_decides(served: Served, fraud: Path) -> None:
    chosen = served.run.record["threshold"]
    assert served.about["threshold"]["value"] == chosen["value"] != 0.5
    with fraud.open(encoding="utf-8", newline="") as file:
        found = served.run_raw(list(csv.DictReader(file)))
    expected = found["probabilities"][:, 1] >= np.float32(chosen["value"])
    assert (found["prediction"] == expected).all()
    assert (expected != (found["probabilities"][:, 1] >= 0.5)).any()
    metadata = served.session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["assay"])["threshold"] == {
        "chosen": "by F1 on validation",
        "subset": "the test",
        **chosen,
    }


class Sigmoid(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.sigmoid()


def test_rare_events_keep_their_order(tmp_path: Path) -> None:
    """ONNX Runtime's own sigmoid is 0 below -17, and falls in places."""
    batch = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(Sigmoid(), (torch.zeros(3, 1),), dynamic_shapes=batch)
    write_onnx(tmp_path / "x.onnx", program, names=["inputs"], outputs=["values"], metadata={})
    inputs = np.linspace(-69, 15, 2000, dtype=np.float32)[:, None]
    found = open_onnx(tmp_path / "x.onnx")({"inputs": inputs})["values"]
    np.testing.assert_allclose(found, expit(inputs.astype(np.float64)), rtol=1e-6)
    assert (np.diff(found[:, 0]) >= 0).all()
    far = open_onnx(tmp_path / "x.onnx")({"inputs": np.array([[-1e30], [1e30], [np.nan]], np.float32)})[
        "values"
    ]
    np.testing.assert_array_equal(far, [[0], [1], [np.nan]])


def test_a_file_that_loses_rare_events_is_not_kept(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No probability of it is more than 1e-4 away."""
    run = train(
        *("data=synthetic", "data.source.task=multilabel", "data.source.num_classes=4"),
        *("data.source.input_shape=[6]", "data.source.num_samples=400", "data.source.dtype=float32"),
        *("metrics=multilabel", "loss=bce_with_logits", "model=linear", "callbacks=[checkpoint]"),
    )
    usual = Predictor.model_outputs
    monkeypatch.setattr(Predictor, "model_outputs", lambda *given: usual(*given) * 5 - 30)
    exported = export(run.run_dir, "onnx", out=tmp_path / "good")
    agreement = exported.agreement
    assert agreement is not None
    assert agreement.relative_difference is not None
    assert agreement.relative_difference < 1e-3
    assert [output.name for output in onnxruntime.InferenceSession(str(exported.path)).get_outputs()] == [
        *("probabilities", "logits", "prediction")
    ]

    def sigmoid(values: Any) -> Any:
        from onnxscript import opset18

        return opset18.Sigmoid(values)

    monkeypatch.setattr("assay_serve.export.export._sigmoid", sigmoid)
    with pytest.raises(AssayError, match="relative probabilities of the file differ"):
        export(run.run_dir, "onnx", out=tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


@pytest.fixture(scope="module")
def folds(train: Train, fraud: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folds; a town stands in one row alone, so that training of one of them lacks it."""
    folder = tmp_path_factory.mktemp("two folds")
    frame = pd.read_csv(fraud)
    frame.loc[17, "town"] = "Ost"
    frame.loc[18, "since"] = "1999-12-31"
    frame.to_csv(folder / "fraud.csv", index=False)
    for fold in range(2):
        train(
            *("data=table", f"data.source.path='{folder / 'fraud.csv'}'", "data.source.target=kind"),
            *("model=mlp", "model.hidden=[8]", "callbacks=[checkpoint]", "optimizer.lr=0.01"),
            *("data.source.keep=[empty]", "data.source.na_values=[-999,unknown]"),
            "data.source.categories=[grade]",
            *("data.split.folds=2", f"fold={fold}", f"hydra.run.dir='{folder / 'runs' / str(fold)}'"),
        )
    return folder


def test_one_file_holds_all_runs_of_a_folder(folds: Path) -> None:
    exported = export(folds / "runs", threshold="0.2")
    assert exported.path == folds / "runs" / "export" / "onnx" / "model.onnx"
    session = onnxruntime.InferenceSession(str(exported.path))
    about = json.loads(session.get_modelmeta().custom_metadata_map["assay"])
    nothing: Any = None  # it has no run of its own
    served = Served(nothing, session, about, nothing)
    with (folds / "fraud.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))[:200]
    said = served.run_raw(rows)
    members = [assay.load(folds / "runs" / str(fold), map_location="cpu") for fold in range(2)]
    frame = pd.read_csv(folds / "fraud.csv")[:200]
    with pytest.warns(UserWarning, match="'Ost', which no training row has"):
        expected = np.mean([one(frame).probabilities for one in members], 0)
    np.testing.assert_allclose(said["probabilities"], expected, atol=1e-5)
    np.testing.assert_array_equal(said["prediction"], expected[:, 1] >= np.float32(0.2))
    assert about["outputs"] == ["probabilities", "prediction"]
    assert (about["threshold"]["value"], about["run"]["members"]) == (0.2, ["0", "1"])
    starts = {one.preprocess.encoder.columns[-3].start for one in members}  # type: ignore[union-attr]
    towns = [one.preprocess.encoder.columns[3].codes for one in members]  # type: ignore[union-attr]
    assert len(starts) == 2
    assert ("Ost" in towns[0]) != ("Ost" in towns[1])
    out = exported.card.read_text(encoding="utf-8")
    assert "The mean of 2 runs" in out
    assert "outputs, prediction = session.run" in out
    with pytest.raises(AssayError, match="whose weights are not one model"):
        export(folds / "runs", "safetensors")


def test_pictures_of_several_runs(train: Train, tmp_path: Path) -> None:
    words = ("data=digits", "model=linear", "callbacks=[checkpoint]", "trainer.limit_train_batches=9")
    for seed in range(2):
        train(*words, f"seed={seed}", f"hydra.run.dir={tmp_path / 'runs' / str(seed)}")
    exported = export(tmp_path / "runs")
    pictures = np.random.default_rng(0).random((5, 1, 8, 8), np.float32)
    said = open_onnx(exported.path)({"inputs": pictures})
    found = assay.load(tmp_path / "runs", map_location="cpu")(pictures)
    np.testing.assert_allclose(said["probabilities"], found.probabilities, atol=1e-5)
    np.testing.assert_array_equal(said["prediction"], found.indices)


def test_ngrams_are_refused(train: Train, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    towns = ["Köln", "Bonn", "Essen", "Ulm", "Trier"]
    texts = [" ".join(draw.choice([*towns, "Süd", "West", "am Rhein"], 4)) for _ in range(400)]
    table = pd.DataFrame({"where": texts, "y": [text[0] for text in texts]})
    table.to_csv(tmp_path / "towns.csv", index=False)
    words = ("data=table", f"data.source.path={tmp_path / 'towns.csv'}", "data.source.target=y")
    run = train(*words, "model=mlp", "trainer.max_epochs=1", "baseline=none", "callbacks=[checkpoint]")
    with pytest.raises(AssayError, match="n-grams of the column 'where' cannot be part of") as caught:
        export(run.run_dir, "onnx")
    assert "--format safetensors" in caught.value.hint
    assert "'data.source.exclude=[where]' trains without it" in caught.value.hint
    assert export(run.run_dir, "safetensors").path.is_file()
