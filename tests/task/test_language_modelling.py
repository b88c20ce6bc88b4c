"""A language model from its texts to its page, its predictions and its file."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import torch
from tests.command import documented, typed
from torch import Tensor
from torch.nn import functional as F

import assay
from assay.data.text.tokenizer import Bytes
from assay.errors import AssayError
from assay.task.language_modelling import Sampling, generate
from assay_analysis import predictions_file
from assay_serve.export.export import export, open_onnx

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained


MODEL = ("model.num_layers=1", "model.num_heads=2", "model.embedding_size=16", "optimizer.lr=0.01")
JOB = (
    *("data=text_files", "data.source.context_length=16", "data.batch_size=8", "trainer.max_epochs=2"),
    *("trainer.limit_train_batches=6", *MODEL),
)


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for at in range(12):
        lines = [f"def function_{at}_{line}(x):\n    return x + {line}  # <ä>\n" for line in range(12)]
        (folder / f"{at}.py").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def run(train: Train, texts: Path) -> Trained:
    return train(*JOB, f"data.source.root={texts}", "callbacks=[checkpoint,last_checkpoint]")


def test_scores_are_those_of_the_tokens_that_are_kept(run: Trained) -> None:
    kept = predictions_file.read(run.run_dir / "predictions.parquet")

    assert kept.kind == "surprisals"
    assert kept.targets is not None
    assert kept.outputs.shape == kept.targets.shape
    bits, metrics = kept.outputs.astype(float), run.record["metrics"]
    assert metrics["test/loss"] == pytest.approx(bits.mean() * math.log(2), rel=1e-5)
    assert metrics["test/perplexity"] == pytest.approx(2 ** bits.mean(), rel=1e-4)
    assert metrics["test/bits_per_byte"] == pytest.approx(
        bits.sum() / np.count_nonzero(kept.targets), rel=1e-5
    )


def test_what_is_shown_of_a_window_is_its_text(run: Trained, texts: Path) -> None:
    kept = predictions_file.read_samples(run.run_dir / "samples.parquet")
    windows = [one for one in kept if one.reason != "generated"]
    for one in windows:
        name, _, at = one.key.rpartition(":")
        whole = ((texts / name).read_bytes() + b"\0")[int(at) + 1 : int(at) + 17]
        shown = [f"\\x{byte:02x}" if byte > 127 else chr(byte) if byte else "" for byte in whole]
        tokens = (one.row or {})["tokens"]
        assert isinstance(tokens, list)
        assert tokens[: len(shown)] == shown
    [written] = [one for one in kept if one.reason == "generated"]
    assert written.row == {"text": assay.load(run.run_dir)("").text}


def test_the_likeliest_token_and_its_surprisal_are_the_model_s(run: Trained) -> None:
    predictor = assay.load(run.run_dir)
    prompt = "def function_1"  # longer than the context with what is written
    found = predictor(prompt, temperature=0, max_tokens=12)
    ids = [0, *prompt.encode()]
    for bits in found.surprisals:
        logits = predictor.model(torch.tensor([ids[-16:]])).detach()[0, -1]
        token = int(logits.argmax())
        assert bits == pytest.approx(-float(F.log_softmax(logits, 0)[token]) / math.log(2), rel=1e-4)
        ids.append(token)
    assert predictor(prompt, top_k=1, max_tokens=12).text == found.text


def test_prompts_from_files_and_from_the_command_line(run: Trained, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("\ufeffdef \n\nreturn ä\n", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes(b"\xff\n")
    out, said = tmp_path / "out.csv", str(run.run_dir)
    words = ("--prompt", "x", "--max-tokens", "5", "--temperature", "0.5", "--top-k", "4", "--seed", "1")
    files = (str(tmp_path / "prompts.txt"), str(tmp_path / "latin.txt"))
    typed("predict", said, *files, *words, "--out", out)
    frame = pd.read_csv(out, keep_default_na=False)
    assert list(frame["prompt"]) == ["x", "def ", "", "return ä", ""]
    assert list(frame["error"][:4]) == [""] * 4
    assert "utf-8" in frame["error"][4]
    expected = assay.load(run.run_dir)("def ", max_tokens=5, temperature=0.5, top_k=4, seed=1)
    assert frame["prediction"][1] == expected.text
    _, document = documented("predict", said, *words)
    assert document["rows"][0]["prompt"] == "x"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--prompt", "x", "--temperature", "-1"), "--temperature: expected a number >= 0, got -1.0"),
        (("--prompt", "x", "--max-tokens", "0"), "--max-tokens: expected a number >= 1, got 0"),
        ((), "there is nothing to predict"),
        (("nowhere.txt",), "No such file or directory"),
    ],
    ids=str,
)
def test_what_cannot_be_written(run: Trained, words: tuple[str, ...], message: str) -> None:
    told = typed("predict", run.run_dir, *words, code=2 if "--prompt" in words else 1)
    assert message in " ".join(told.output.split())


@pytest.mark.parametrize("option", ["--prompt=x", "--seed=1"])
def test_other_models_write_nothing(digits_run: Trained, option: str) -> None:
    output = typed("predict", digits_run.run_dir, "digits.npy", option, code=2).output
    assert f"{option.partition('=')[0]}: the run's model does not write texts" in output


def test_the_page_escapes_text(run: Trained) -> None:
    typed("report", run.run_dir)
    page = (run.run_dir / "report.html").read_text(encoding="utf-8")
    assert "What the model writes" in page
    assert "surprisal_by_position" in page
    assert "bits</" not in page
    assert "&lt;" in page
    assert "# <\\xc3" not in page


def test_an_exported_file_takes_texts_of_any_length(run: Trained, tmp_path: Path) -> None:
    exported = export(run.run_dir, out=tmp_path)
    assert exported.description["inputs"][0]["shape"] == ["batch", "length"]
    assert json.loads((tmp_path / "model.tokenizer.json").read_text())["kind"] == "bytes"
    (tmp_path / "model.tokenizer.json").rename(tmp_path / "mine.tokenizer.json")
    (tmp_path / "MODEL_CARD.md").unlink()
    with pytest.raises(AssayError, match=r"mine\.tokenizer\.json exists and was not written by assay"):
        export(run.run_dir, out=tmp_path / "mine.onnx")
    call, predictor = open_onnx(exported.path), assay.load(run.run_dir)
    for rows, length in ((1, 16), (3, 5), (2, 1)):
        ids = torch.randint(256, (rows, length))
        np.testing.assert_allclose(
            call({"inputs": ids.numpy()})["scores"], predictor.model(ids).detach().numpy(), atol=1e-4
        )


def test_the_run_is_evaluated_on_its_own_and_on_other_texts(run: Trained, tmp_path: Path) -> None:
    _, found = documented("eval", str(run.run_dir))
    assert found["metrics"]["test/loss"] == pytest.approx(run.record["metrics"]["test/loss"])
    (tmp_path / "other.txt").write_text("an other text\n" * 40)
    _, found = documented("eval", str(run.run_dir), f"data.source.root={tmp_path}")
    assert (found["subset"], found["num_samples"]) == ("all", 35)


CODEC = Bytes()
A = ord("a")
SHARES = torch.zeros(256)
SHARES[A : A + 3] = torch.tensor([0.6, 0.3, 0.1])


class Model:
    """Says the same of each token, and keeps what it was given."""

    def __init__(self, shares: Tensor = SHARES) -> None:
        self.seen: list[list[int]] = []
        self._logits = shares.log()

    def __call__(self, inputs: Tensor) -> Tensor:
        self.seen.append(inputs[0].tolist())
        return self._logits.expand(1, inputs.shape[1], -1)


def test_it_sees_the_end_of_the_text_and_what_stands_before_each() -> None:
    model = Model()
    found = generate(model, CODEC, "abca", 4, Sampling(temperature=0, max_tokens=3))
    assert model.seen == [[A, A + 1, A + 2, A], [A + 1, A + 2, A, A], [A + 2, A, A, A]]
    assert found.text == "aaa"
    assert found.surprisals == pytest.approx([-math.log2(0.6)] * 3, rel=1e-5)
    empty = Model()
    generate(empty, CODEC, "", 4, Sampling(max_tokens=1))
    assert empty.seen == [[0]]


def test_tokens_come_as_often_as_the_model_says() -> None:
    text = generate(Model(), CODEC, "", 8, Sampling(max_tokens=4000)).text
    shares = [text.count(one) / len(text) for one in "abc"]
    assert shares == pytest.approx([0.6, 0.3, 0.1], abs=0.03)


def test_a_text_ends_where_the_model_ends_it() -> None:
    found = generate(Model(torch.eye(256)[0]), CODEC, "a", 8, Sampling())
    assert (found.text, found.num_tokens) == ("", 1)
