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
from scipy.special import softmax  # type: ignore[import-untyped]  # ships no types
from tests.mounting import room_for
from torch import Tensor, nn
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

import assay
from assay.data.core.normalize import Normalize
from assay.data.core.transforms import Transforms
from assay.errors import AssayError
from assay.record.run_record import RunRecord
from assay.run.predictor import Predictor
from assay.terminal import escape_markdown
from assay_serve.export.export import export, open_onnx, write_onnx
from assay_serve.export.exportable import Exportable, Original, trace, traceable
from assay_serve.export.model_card import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from tests.conftest import Train, Trained
    from torch.export import ExportedProgram


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
    larger = np.repeat(np.repeat(data.inputs[rows[:5]].numpy(), 3, axis=2), 2, axis=3)
    assert (onnx_outputs(exported.path, {"inputs": larger}).argmax(1) == found[:5].argmax(1)).all()


def test_rows_of_a_table_with_gaps_and_new_categories(
    houses_run: Trained, houses: pd.DataFrame, tmp_path: Path
) -> None:
    exported = export(houses_run.run_dir, "onnx", out=tmp_path)
    _, rows = held_out(houses_run)
    config, raw = houses_run.datamodule, houses.iloc[rows]
    dates, training = raw["built"].dt, houses.iloc[config.splits.rows["train"]]
    elapsed = (raw["built"] - training["built"].min()).dt.days
    features = [raw["size"], raw["garden"], dates.year, dates.month, dates.day_of_year, dates.day_of_week]
    for letter in ("Y", "W"):
        periods = dates.to_period(letter)
        start = periods.dt.start_time
        turn = 2 * np.pi * ((raw["built"] - start) / ((periods + 1).dt.start_time - start))
        features += [np.sin(turn), np.cos(turn)]
    features.append(elapsed)
    numbers = np.column_stack([one.astype("float64") for one in features])
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
    assert f'"start": "{training["built"].min().date()}T00:00:00"' in card
    assert '"part": "day_of_week"' in card


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
    card, record = exported.card.read_text(encoding="utf-8"), digits_run.record
    assert card.startswith(MARK)
    accuracy = f"| test/accuracy | {100 * record['metrics']['test/accuracy']:.2f} % |"
    for words in (record["fingerprint"], record["data_sha256"], accuracy):
        assert words in card
    assert "takes inputs that are encoded, transformed and normalised already" in card


@pytest.mark.parametrize("link", ["export", "export/safetensors"])
def test_nothing_is_written_through_a_link(digits_run: Trained, tmp_path: Path, link: str) -> None:
    run_dir = shutil.copytree(digits_run.run_dir, tmp_path / "run", ignore=shutil.ignore_patterns("export"))
    (tmp_path / "elsewhere").mkdir()
    (run_dir / link).parent.mkdir(exist_ok=True)
    (run_dir / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AssayError, match="safetensors is a link to a folder outside of the run"):
        export(run_dir, "safetensors")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_that_says_something_else_is_not_kept(
    digits_run: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "new folder" / "digits.onnx"
    monkeypatch.setattr(Exportable, "forward", without_normalisation)
    with pytest.raises(AssayError, match="nothing was kept"):
        export(digits_run.run_dir, out=out)
    assert list(tmp_path.iterdir()) == []


def without_normalisation(module: Exportable, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    logits = module.predictor.model(inputs[0])
    probabilities = module.predictor.postprocess(logits)
    return probabilities, logits.clone(), probabilities.argmax(1)


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


def test_half_precision_is_widened_here_without_a_test(train: Train, tmp_path: Path) -> None:
    run = train(
        *("data=iris", "model=linear", "precision=bf16_true", "callbacks=[checkpoint]"),
        *("predictions.max_megabytes=0", "data.split.test=0"),
    )
    original = Original(run.run_dir, "best")
    assert {one.dtype for one in original.stored.parameters()} == {torch.bfloat16}
    exported = export(run.run_dir, "onnx", out=tmp_path / "onnx")
    assert exported.notes == ("the weights are bfloat16 in the checkpoint and float32 in the file",)
    assert exported.agreement is not None
    num_val = len(run.datamodule.splits.rows["val"])
    assert (exported.subset, exported.agreement.num_samples) == ("val", num_val)
    export(run.run_dir, "safetensors", out=tmp_path / "weights")
    weights = load_file(tmp_path / "weights" / "model.safetensors")
    bare = assay.load(run.run_dir, map_location="cpu", raw_input=False).state_dict()
    assert all(
        torch.equal(weights[name], bare[name]) and weights[name].dtype == torch.bfloat16 for name in weights
    )


@pytest.mark.parametrize("interpolation", [v2.InterpolationMode.BILINEAR, v2.InterpolationMode.BICUBIC])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_resizing_without_a_branch(interpolation: v2.InterpolationMode, dtype: torch.dtype) -> None:
    resize = v2.Resize([20, 12], interpolation=interpolation)
    draw = torch.Generator().manual_seed(0)
    for size in ((20, 12), (64, 48), (7, 31)):
        pictures = torch.randint(256, (3, 3, *size), generator=draw).to(dtype)
        found, wanted = traceable(resize)(pictures), resize(pictures)
        assert found.dtype == wanted.dtype
        # torchvision has another kernel for bytes, which may round to the neighbouring level
        torch.testing.assert_close(
            found.float(), wanted.float(), atol=1.0 if dtype == torch.uint8 else 1e-3, rtol=0
        )


BATCH = torch.export.Dim("batch")


def traced(model: nn.Module, *example: torch.Tensor) -> ExportedProgram:
    return torch.export.export(model.eval(), example, dynamic_shapes=tuple({0: BATCH} for _ in example))


def test_large_weights_lie_beside_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay_serve.export.export._IN_ONE_FILE", 1000)
    model, inputs = nn.Sequential(nn.Linear(40, 50), nn.ReLU(), nn.Linear(50, 3)), torch.randn(5, 40)
    path = tmp_path / "large.onnx"
    write_onnx(path, traced(model, inputs), names=["inputs"], outputs=["values"], metadata={"names": ["ü"]})
    assert sorted(one.name for one in tmp_path.iterdir()) == ["large.onnx", "large.onnx.data"]
    assert (tmp_path / "large.onnx.data").stat().st_size > 8000 > path.stat().st_size
    found = open_onnx(path)({"inputs": inputs[:2].numpy()})["values"]
    np.testing.assert_allclose(found, model(inputs[:2]).detach().numpy(), atol=1e-6)
    session = onnxruntime.InferenceSession(str(path))
    assert json.loads(session.get_modelmeta().custom_metadata_map["names"]) == ["ü"]
    assert (session.get_inputs()[0].shape, session.get_outputs()[0].shape) == (["batch", 40], ["batch", 3])


def test_an_operation_that_onnx_lacks(tmp_path: Path) -> None:
    class Lacking(nn.Module):
        def forward(self, inputs: torch.Tensor) -> Any:
            return torch.linalg.eigvals(inputs[:, None] * inputs[:, :, None]).real

    with pytest.raises(AssayError, match="cannot be written as ONNX") as caught:
        write_onnx(
            tmp_path / "x.onnx",
            traced(Lacking(), torch.randn(3, 4)),
            names=["inputs"],
            outputs=["values"],
            metadata={},
        )
    assert "\n" not in caught.value.message
    assert not list(tmp_path.iterdir())


def exportable(forward: Any) -> Exportable:
    class Own(nn.Module):
        def forward(self, inputs: Tensor) -> Any:
            return forward(inputs)

    return Exportable(Predictor(Own()), normalize=Normalize(), transforms=Transforms()).eval()


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda inputs: (inputs, inputs), r"returns tuple for 3 samples; expected a tensor \[N, …\]"),
        (lambda inputs: inputs.sum(0), r"returns torch.Size\(\[4\]\) for 3 samples"),
        (lambda inputs: inputs if inputs.sum() > 0 else -inputs, "cannot be traced"),
        (lambda inputs: inputs.reshape(3, 4) * 2, "cannot be traced"),
        (lambda inputs: inputs @ torch.ones(7, 7), "cannot be traced: RuntimeError"),
    ],
)
def test_what_cannot_be_exported(forward: Any, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssayError, match=message) as caught:
        trace(exportable(forward), (torch.ones(3, 4),))
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert capfd.readouterr() == ("", "")


def test_scores_of_other_weights_are_not_this_file_s(digits_run: Trained, tmp_path: Path) -> None:
    exported = export(digits_run.run_dir, "safetensors", out=tmp_path, checkpoint="last")
    card = exported.card.read_text(encoding="utf-8")
    assert "The run's test scores are of its best checkpoint, not of this file." in card
    assert "| test/accuracy" not in card


def test_the_last_checkpoint_is_that_of_the_scores_where_none_is_the_best(train: Train) -> None:
    run = train("data=iris", "model=linear", "callbacks=[last_checkpoint]")
    exported = export(run.run_dir, "safetensors")
    assert exported.description["run"]["checkpoint"] == "last"
    assert "| test/accuracy" in exported.card.read_text(encoding="utf-8")


def test_a_card_of_somebody_s_is_left_alone(digits_run: Trained, tmp_path: Path) -> None:
    (tmp_path / "MODEL_CARD.md").write_text("# Mine", encoding="utf-8")
    with pytest.raises(AssayError, match="was not written by assay export"):
        export(digits_run.run_dir, "safetensors", out=tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["MODEL_CARD.md"]
    (tmp_path / "b").mkdir()
    for out in (tmp_path / "b", tmp_path / "b" / "model.safetensors"):
        (tmp_path / "b" / "model.safetensors").write_text("mine")
        with pytest.raises(AssayError, match="exists and was not written by assay export"):
            export(digits_run.run_dir, "safetensors", out=out)
        assert (tmp_path / "b" / "model.safetensors").read_text() == "mine"
    export(digits_run.run_dir, "safetensors", out=tmp_path / "a")
    export(digits_run.run_dir, "safetensors", out=tmp_path / "a")  # its own is replaced


def test_nothing_of_a_record_is_more_than_its_letters(digits_run: Trained, tmp_path: Path) -> None:
    """The record of a run that somebody has sent: each text of it that the card shows."""
    run_dir = shutil.copytree(digits_run.run_dir, tmp_path / "run")
    record = RunRecord.load(run_dir)
    hostile = "x|<script>alert(1)</script>`[a](javascript:b)\n# c"
    for key in ("started", "fingerprint", "data_sha256"):
        setattr(record, key, f"{key} {hostile}")
    record.git = {"commit": f"commit {hostile}"}
    record.packages = {"torch": f"torch {hostile}"}
    record.overrides = [f"overrides {hostile}"]
    record.best["monitor"] = f"monitor {hostile}"
    record.metrics[f"test/{hostile}"] = 0.5
    record.save(run_dir)
    card = export(run_dir, "safetensors", out=tmp_path / "out").card.read_text(encoding="utf-8")
    shown = r"x\|&lt;script&gt;alert(1)&lt;/script&gt;\`\[a\](javascript:b) \# c"
    for word in ("started", "fingerprint", "data_sha256", "commit", "torch", "monitor"):
        assert f"{escape_markdown(word)} {shown}" in card
    assert f"test/{shown}" in card
    assert "<script" not in card
    assert "\n# c" not in card
    rows = [line for line in card.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {3}
