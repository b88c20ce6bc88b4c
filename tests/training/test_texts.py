"""A run on texts: trained, gone on with, evaluated, used for predictions, shown and exported."""

from __future__ import annotations

import json
import random
import re
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import assay
from assay.check.checker import Checker
from assay.errors import AssayError, DataError
from assay_serve.export.export import export
from assay_serve.predict import predict

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained

    from assay.check.report import Report

WORDS = {
    "fruit": ["apple", "pear", "plum"],
    "tool": ["hammer", "saw", "drill"],
    "bird": ["owl", "wren", "crow"],
}
HOSTILE = "<script>alert(1)</script> \x1b[31mapple pear plum apple pear"
SETTINGS = (
    *("data=text_table", "data.source.text=words", "data.source.target=kind", "data.source.tokenizer=word"),
    *("data.source.max_length=24", "data.batch_size=16", "optimizer.lr=0.05", "trainer.max_epochs=3"),
    "callbacks=[checkpoint,last_checkpoint]",
)


def table() -> pd.DataFrame:
    draw = random.Random(0)
    rows = []
    for number in range(160):
        kind = draw.choice(list(WORDS))
        words = draw.choices([*WORDS[kind], "the", "of"], k=draw.randint(3, 40))
        rows.append(
            {
                "words": " ".join([f"n{number}", *words, WORDS[kind][0]]),
                "kind": kind,
                "length": len(words) / 2,
            }
        )
    rows[7]["words"] = HOSTILE
    rows[7]["kind"] = "bird"  # so that it is predicted wrongly, and shown
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.csv"
    table().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def text_run(train: Train, path: Path) -> Trained:
    return train(*SETTINGS, f"data.source.path={path}")


def predicted(run_dir: Path, *paths: Path, **options: Any) -> pd.DataFrame:
    return pd.DataFrame(predict(assay.load(run_dir), run_dir, paths, **options).rows)


def checked(*words: str) -> Report:
    checker = Checker()
    return checker.check(checker.job([*words, "device=cpu"])).report


def test_it_learns_and_says_what_became_of_the_texts(text_run: Trained) -> None:
    assert text_run.record["metrics"]["test/accuracy"] > 0.9
    log = (text_run.run_dir / "log.txt").read_text(encoding="utf-8")
    assert re.search(r"max_length=24: \d+ texts \(\d+\.\d %\) are longer", log)
    kept = json.loads((text_run.run_dir / "encoder.json").read_text(encoding="utf-8"))
    assert kept["text"]["column"] == "words"
    assert (text_run.run_dir / "tokenizer.json").is_file()


@pytest.mark.filterwarnings("ignore:.*are unlike the training rows")
def test_all_that_a_text_may_come_in_is_predicted_alike(text_run: Trained, tmp_path: Path) -> None:
    predictor, texts = assay.load(text_run.run_dir), table()["words"].head(9).tolist()
    expected = predictor(texts).probabilities
    frame = pd.DataFrame({"other": range(9), "words": texts})
    files = {name: tmp_path / f"texts.{name}" for name in ("csv", "jsonl", "parquet", "txt")}
    frame.to_csv(files["csv"], index=False)
    frame.to_json(files["jsonl"], orient="records", lines=True)
    frame.to_parquet(files["parquet"])
    files["txt"].write_text("\n".join(texts), encoding="utf-8")
    for raw in (frame, frame["words"], np.array(texts), frame.to_dict("records")):
        np.testing.assert_allclose(predictor(raw).probabilities, expected, atol=1e-6)
    alone = np.stack([predictor(text).probabilities for text in texts])  # padded less
    np.testing.assert_allclose(alone, expected, atol=1e-6)
    for file in files.values():
        done = predicted(text_run.run_dir, file, batch_size=2)
        assert done["prediction"].tolist() == predictor(texts).labels
        assert done["row"].tolist() == list(range(9))


@pytest.mark.filterwarnings("ignore:.*are unlike the training rows")
def test_texts_that_cannot_be_predicted_are_rows_with_an_error(text_run: Trained, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_bytes("apple pear\n\n  \nz\xfcge apple\nunbekannt\n".encode("latin-1") + b"saw " * 10_000)
    frame = predicted(text_run.run_dir, path)
    assert frame["error"].fillna("").tolist() == ["", *["'words' has no text"] * 2, "", "", ""]
    assert frame["prediction"].iloc[[0, 5]].tolist() == ["fruit", "tool"]
    warned = frame["warning"].tolist()
    assert "not all text in UTF-8" in warned[3]
    assert "most words of 'words' are unknown" in warned[4]
    assert "more than 24 tokens" in warned[5]
    predictor = assay.load(text_run.run_dir)
    with pytest.raises(DataError, match="'words' has no text"):
        predictor("  ")
    with pytest.raises(DataError, match="no column 'words'"):
        predictor({"text": "apple"})


def test_exported_it_takes_token_ids_of_any_length(text_run: Trained, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from tokenizers import Tokenizer

    exported = export(text_run.run_dir, "onnx", out=tmp_path / "out")
    assert exported.agreement is not None
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    session = onnxruntime.InferenceSession(str(exported.path))
    predictor = assay.load(text_run.run_dir)
    for text in ("apple", "saw drill hammer the of saw", "wren owl " * 8):
        ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
        found, *_ = session.run(None, {"inputs": ids})
        np.testing.assert_allclose(found[0], predictor(text).probabilities, atol=1e-5)
    card = exported.card.read_text(encoding="utf-8")
    assert "tokenizer.json" in card
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1].replace("'model.onnx'", repr(str(exported.path))), names)  # noqa: S102 - the card's own lines
    assert names["outputs"].shape == (1, found.shape[1])


@pytest.mark.parametrize(
    "lose",
    [lambda path: path.unlink(), lambda path: path.write_text("{}"), lambda path: path.write_bytes(b"\xff")],
)
@pytest.mark.parametrize("name", ["encoder.json", "tokenizer.json"])
def test_a_run_whose_tokenizer_is_lost_or_damaged_says_so(
    text_run: Trained, tmp_path: Path, name: str, lose: Any
) -> None:
    shutil.copytree(text_run.run_dir, run_dir := tmp_path / "run")
    lose(run_dir / name)
    with pytest.raises(AssayError, match=re.escape(name)):
        assay.load(run_dir)


REFUSED = {
    "model=mlp": "takes pictures or numbers, but this data has token ids of texts",
    "model=linear": "takes pictures or numbers, but this data has token ids of texts",
    "model=small_cnn": "model=bag_of_embeddings",
    "model=resnet18": "model=bag_of_embeddings",
    "augment=mixup": "augment: MixUp changes numbers",
    "augment=flip_crop": "augment: FlipCrop changes numbers",
    "data.transform.normalize=imagenet": "data.transform.normalize: the inputs are torch.int64",
    "data/transform=crop_flip": "cannot take an input of shape",
    "data/transform=resize": "cannot take an input of shape",
    "data.source.max_length=0": "data.source.max_length: max_length=0",
    "data.source.vocab_size=2": "vocab_size=2: expected 3 to 1,000,000 for tokenizer=word",
    "data.source.tokenizer=chars": "data.source.tokenizer: tokenizer='chars'",
    "data.source.text=word": "did you mean 'words'",
    "data.source.text=length": "data.source.text=length: the column holds numbers",
    "data.source.text=kind": "data.source.text: text='kind': expected a column other than the target",
    "data.source.target=kin": "did you mean 'kind'",
}


@pytest.mark.always(
    "model=mlp",
    "augment=mixup",
    "data/transform=resize",
    "data.source.tokenizer=chars",
    "data.source.text=length",
)
@pytest.mark.parametrize("override", REFUSED)
def test_what_does_not_go_with_texts_is_refused(path: Path, override: str) -> None:
    with pytest.raises(AssayError) as error:
        checked(*SETTINGS, f"data.source.path={path}", override)
    assert REFUSED[override] in str(error.value)
