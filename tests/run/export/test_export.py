"""An exported file says what the run's model says, runs without assay, and is kept only if it does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]  # ships no types
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from scipy.special import expit, softmax  # type: ignore[import-untyped]  # ships no types
from tests.mounting import room_for

import assay
from assay.errors import AssayError
from assay.run.export.export import export
from assay.run.export.exportable import Exportable, Original

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from tests.conftest import Train, Trained

SHORT = ("callbacks=[default]", "trainer.max_epochs=2", "optimizer.lr=0.01")


def onnx_outputs(path: Path, inputs: Mapping[str, Any]) -> NDArray[np.float32]:
    outputs: NDArray[np.float32] = onnxruntime.InferenceSession(str(path)).run(None, dict(inputs))[0]
    return outputs


def held_out(run: Trained) -> tuple[Any, NDArray[np.int64]]:
    """What the run's source holds, and the rows of its test subset."""
    parts: Any = run.datamodule.splits
    return parts.data["test"], parts.rows["test"]


def trained_outputs(run: Trained) -> NDArray[np.float32]:
    """Of the trained module itself on the batches that it was tested with."""
    batches = [
        run.datamodule.on_after_batch_transfer(batch, 0)[0] for batch in run.datamodule.test_dataloader()
    ]
    with torch.no_grad():
        outputs: NDArray[np.float32] = run.module.model.eval()(torch.cat(batches)).numpy()
    return outputs


@pytest.fixture(scope="module")
def pictures_run(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Pictures of bytes in colour that evaluation scales and crops."""
    draw = np.random.default_rng(0)
    labels = np.arange(300) % 3
    pictures = draw.integers(0, 90, (300, 3, 20, 18)) + 80 * np.eye(3, dtype=int)[labels][:, :, None, None]
    folder = tmp_path_factory.mktemp("my pictures")
    np.savez(folder / "all.npz", inputs=pictures.astype(np.uint8), targets=labels)
    return train(
        *(
            "data=arrays",
            f"data.source.root='{folder / 'all.npz'}'",
            "data/transform=resize",
            "model=small_cnn",
        ),
        *("data.transform.size=[12,12]", 'data.source.class_names=[red,green,"a|b<script>"]', *SHORT),
        *("model=small_cnn", "model.widths=[8,8]"),
    )


@pytest.fixture(scope="module")
def houses() -> pd.DataFrame:
    """Prices that depend on numbers with gaps, a date, and categories, some of them integers with gaps."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": draw.gamma(9, 13, 400).round(1),
            "garden": draw.random(400) > 0.5,
            "district": draw.choice(["Nord", "Süd", "West"], 400),
            "floor": draw.choice(["1", "2", "ground"], 400),
            "built": pd.Timestamp("1999-05-06") + pd.to_timedelta(draw.integers(0, 9000, 400), unit="D"),
        }
    )
    frame["price"] = 90_000 + 2_100 * frame["size"] + 60_000 * (frame["district"] == "Süd")
    frame["size"] = frame["size"].mask(frame.index % 50 == 7)
    frame["district"] = frame["district"].mask(frame.index % 40 == 3)
    return frame


@pytest.fixture(scope="module")
def houses_run(train: Train, houses: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    path = tmp_path_factory.mktemp("houses") / "houses.csv"
    houses.to_csv(path, index=False, sep=";", decimal=",")
    return train(
        *("data=table", f"data.source.path='{path}'", "data.source.target=price", "loss=mse"),
        *("metrics=regression", *SHORT),
    )


def test_classes_by_a_perceptron(digits_run: Trained, tmp_path: Path) -> None:
    exported = export(digits_run.run_dir, "onnx", out=tmp_path / "my models")
    assert exported.path == tmp_path / "my models" / "model.onnx"
    data, rows = held_out(digits_run)
    found = onnx_outputs(exported.path, {"inputs": data.inputs[rows].numpy()})
    np.testing.assert_allclose(found, softmax(trained_outputs(digits_run), 1), atol=1e-5)
    assert exported.agreement is not None
    assert exported.agreement.num_samples == len(rows)
    accuracy = np.mean(found.argmax(1) == data.targets[rows].numpy())
    assert accuracy == pytest.approx(digits_run.record["metrics"]["test/accuracy"], abs=1e-7)
    metadata = onnxruntime.InferenceSession(str(exported.path)).get_modelmeta().custom_metadata_map
    assert json.loads(metadata["names"]) == list("0123456789")
    about = json.loads(metadata["assay"])
    assert about["run"]["fingerprint"] == digits_run.record["fingerprint"]
    assert about["run"]["metrics"]["test/accuracy"] == digits_run.record["metrics"]["test/accuracy"]
    assert about["inputs"] == [{"name": "inputs", "dtype": "float32", "shape": ["batch", 1, 8, 8]}]
    onnx.checker.check_model(str(exported.path), full_check=True)
    script = f"{code_in(exported.card)}import sys; print(outputs.shape, 'assay' in sys.modules)"
    command = [sys.executable, "-I", "-W", "error", "-c", script]
    assert subprocess.check_output(command, text=True, cwd=exported.path.parent) == "(1, 10) False\n"


def test_pictures_of_any_size_by_a_network_of_convolutions(pictures_run: Trained, tmp_path: Path) -> None:
    exported = export(pictures_run.run_dir, "onnx", out=tmp_path / "pictures.onnx")
    assert exported.description["inputs"][0]["shape"] == ["batch", 3, "height", "width"]
    assert "Resize" in exported.description["inside"]
    data, rows = held_out(pictures_run)
    found = onnx_outputs(exported.path, {"inputs": data.inputs[rows].numpy()})
    np.testing.assert_allclose(found, softmax(trained_outputs(pictures_run), 1), atol=1e-2)
    sizes = onnxruntime.InferenceSession(str(exported.path)).get_inputs()[0].shape
    assert sizes == ["batch", 3, "height", "width"]
    larger = np.repeat(np.repeat(data.inputs[rows[:5]].numpy(), 3, axis=2), 2, axis=3)
    assert (onnx_outputs(exported.path, {"inputs": larger}).argmax(1) == found[:5].argmax(1)).all()


def both_classes(logit: NDArray[np.float32]) -> NDArray[np.float32]:
    yes: NDArray[np.float32] = expit(logit[:, 0])
    return np.stack([1 - yes, yes], 1)


@pytest.mark.always("labels")
@pytest.mark.parametrize(
    ("typed", "expected", "name"),
    [
        pytest.param(["experiment=breast_cancer_binary"], both_classes, "probabilities", id="binary"),
        pytest.param(
            [
                *("data=synthetic", "data.source.task=multilabel", "data.source.num_classes=4"),
                *("data.source.input_shape=[6]", "data.source.num_samples=400", "data.source.dtype=float32"),
                *("metrics=multilabel", "loss=bce_with_logits", "model=mlp"),
            ],
            expit,
            "probabilities",
            id="labels",
        ),
        pytest.param(
            ["experiment=digits_embedding", "trainer.limit_train_batches=2", "model.widths=[8,8]"],
            lambda outputs: outputs,
            "embeddings",
            id="embeddings",
        ),
    ],
)
def test_what_outputs_become(
    typed: list[str], expected: Any, name: str, train: Train, tmp_path: Path
) -> None:
    run = train(*typed, *SHORT)
    exported = export(run.run_dir, "onnx", out=tmp_path)
    data, rows = held_out(run)
    found = onnx_outputs(exported.path, {"inputs": data.inputs[rows].numpy()})
    np.testing.assert_allclose(found, expected(trained_outputs(run)), atol=1e-4)
    assert exported.description["output"]["name"] == name


def test_rows_of_a_table_with_gaps_and_new_categories(
    houses_run: Trained, houses: pd.DataFrame, tmp_path: Path
) -> None:
    exported = export(houses_run.run_dir, "onnx", out=tmp_path)
    _, rows = held_out(houses_run)
    config, raw = houses_run.datamodule, houses.iloc[rows]
    dates, training = raw["built"].dt, houses.iloc[config.splits.rows["train"]]
    elapsed = (raw["built"] - training["built"].min()).dt.days
    features = [raw["size"], raw["garden"], dates.year, dates.month, dates.day_of_week, elapsed]
    numbers = np.column_stack([one.astype("float64") for one in features]).astype("float32")
    texts = raw[["district", "floor"]].astype(object).where(raw[["district", "floor"]].notna(), "").to_numpy()
    found = onnx_outputs(exported.path, {"numbers": numbers, "categories": texts})
    spec = config.spec
    prices = trained_outputs(houses_run) * spec.target_std[0] + spec.target_mean[0]
    np.testing.assert_allclose(found, prices, rtol=1e-5)
    assert np.isnan(numbers).any()
    assert (texts == "").any()
    new = np.array([["Mars", "2.0"], ["", "2"]], dtype=object)
    found = onnx_outputs(exported.path, {"numbers": numbers[:2], "categories": new})
    assert np.isfinite(found).all()
    card = exported.card.read_text(encoding="utf-8")
    assert f"| date, days since {training['built'].min().date()} |" in card
    assert "| date, 0 is Monday |" in card


def code_in(card: Path) -> str:
    found = re.search(r"```python\n(.*?)```", card.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


def test_weights_alone(digits_run: Trained, tmp_path: Path) -> None:
    exported = export(digits_run.run_dir, "safetensors", out=tmp_path)
    saved = digits_run.checkpoint("best")["state_dict"]
    loaded = load_file(exported.path)
    assert {f"model.{name}" for name in loaded} == set(saved)
    assert all(torch.equal(loaded[name], saved[f"model.{name}"]) for name in loaded)
    code = code_in(exported.card).replace('"RUN"', repr(str(digits_run.run_dir)))
    names: dict[str, Any] = {}
    with chdir(tmp_path):
        exec(code, names)  # noqa: S102 - the lines that a user is told to run
    assert all(torch.equal(value.cpu(), loaded[name]) for name, value in names["model"].state_dict().items())


@pytest.mark.parametrize("link", ["export", "export/safetensors"])
def test_nothing_is_written_through_a_link(digits_run: Trained, tmp_path: Path, link: str) -> None:
    run_dir = shutil.copytree(digits_run.run_dir, tmp_path / "run", ignore=shutil.ignore_patterns("export"))
    (tmp_path / "elsewhere").mkdir()
    (run_dir / link).parent.mkdir(exist_ok=True)
    (run_dir / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AssayError, match="safetensors leads out of the run by a link"):
        export(run_dir, "safetensors")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_that_says_something_else_is_not_kept(
    digits_run: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "new folder" / "digits.onnx"
    monkeypatch.setattr(Exportable, "forward", without_normalisation)
    with pytest.raises(AssayError, match=r"Nothing was kept"):
        export(digits_run.run_dir, out=out)
    assert list(tmp_path.iterdir()) == []


def without_normalisation(module: Exportable, *inputs: torch.Tensor) -> torch.Tensor:
    return module.predictor.postprocess(module.predictor.model(inputs[0]))


@pytest.mark.parametrize("file_format", ["onnx", "safetensors"])
def test_a_full_disk_leaves_nothing(digits_run: Trained, tmp_path: Path, file_format: Any) -> None:
    """Torch's own writer would end the process."""
    with room_for(20_000), pytest.raises(AssayError, match=r"cannot be written: .*[Ff]ile too large"):
        export(digits_run.run_dir, file_format, out=tmp_path / "made")
    assert not list(tmp_path.rglob("*"))


def test_data_that_is_gone_or_another_one(houses_run: Trained, tmp_path: Path) -> None:
    path = Path(houses_run.config.data.source.path)
    kept = shutil.copy(path, tmp_path / "kept.csv")
    try:
        path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:300]), "utf-8")
        exported = export(houses_run.run_dir, "onnx", out=tmp_path / "changed")
        assert exported.notes == ("the data is not what the run was trained on: its SHA-256 differs",)
        assert exported.subset == "test"
        shutil.move(path, tmp_path / "away.csv")
        exported = export(houses_run.run_dir, "onnx", out=tmp_path / "gone")
        assert exported.subset == ""
        assert exported.notes[0].startswith("the run's data cannot be read: ")
        assert "made-up samples" in exported.card.read_text(encoding="utf-8")
    finally:
        shutil.copy(kept, path)


def test_half_precision_is_widened(train: Train, tmp_path: Path) -> None:
    run = train(
        *("data=iris", "precision=bf16_true", "callbacks=[default]", "trainer.max_epochs=1"),
        "predictions.max_megabytes=0",
    )
    original = Original(run.run_dir, "best")
    assert {one.dtype for one in original.stored.parameters()} == {torch.bfloat16}
    exported = export(run.run_dir, "onnx", out=tmp_path / "onnx")
    assert exported.notes == ("the weights are bfloat16 in the checkpoint and float32 in the file",)
    export(run.run_dir, "safetensors", out=tmp_path / "weights")
    weights = load_file(tmp_path / "weights" / "model.safetensors")
    bare = assay.load(run.run_dir, map_location="cpu", raw_input=False).state_dict()
    assert all(
        torch.equal(weights[name], bare[name]) and weights[name].dtype == torch.bfloat16 for name in weights
    )


def test_a_table_without_test_rows(houses_run: Trained, train: Train, tmp_path: Path) -> None:
    path = houses_run.config.data.source.path
    run = train(
        *("data=table", f"data.source.path='{path}'", "data.source.target=price", "data.split.test=0"),
        *("loss=mse", "metrics=regression", *SHORT),
    )
    exported = export(run.run_dir, "onnx", out=tmp_path)
    assert exported.subset == "val"
    assert exported.agreement is not None
    assert exported.agreement.num_samples == len(run.datamodule.splits.rows["val"])
