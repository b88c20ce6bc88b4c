"""Texts: tokens there and back, what a vocabulary is learned from, and windows of files."""

from __future__ import annotations

import json
import sysconfig
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.data.core.data_module import DataModule
from assay.data.text.stdlib_docs import TOPICS, StdlibDocs
from assay.data.text.text_files import (
    Text,
    TextFiles,
    find_files,
    read_texts,
    split_by_tail,
    standard_library,
)
from assay.data.text.tokenizer import KINDS, PAD, UNKNOWN, Bytes, TextEncoder, Tokenizer, normalize_tokenizer
from assay.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(ANY)
def test_there_and_back(text: str) -> None:
    codec = Bytes()
    ids = codec.encode([text])[0].tolist()
    assert codec.decode(ids) == text
    assert all(0 < one < codec.vocab_size for one in ids)
    assert sum(codec.token_bytes[one] for one in ids) == len(text.encode())


LINES = [
    "The quick brown fox, it's [PAD] jumps",
    "over the lazy dog's <b>[UNK]</b> ﬁne",
    "Zürich 中文 fox",
] * 3

TRAINED = {
    (kind, lowercase): Tokenizer.train(LINES, kind=kind, vocab_size=300, lowercase=lowercase)
    for kind in KINDS
    for lowercase in (False, True)
}


@pytest.mark.parametrize("tokenizer", TRAINED.values(), ids=map(str, TRAINED))
@settings(max_examples=50, deadline=None)
@given(texts=st.lists(st.text() | st.sampled_from(["[PAD]", "[UNK] [PAD]", "x\ud800y"]), max_size=4))
def test_no_text_has_the_id_of_padding_or_one_out_of_the_vocabulary(
    tokenizer: Tokenizer, texts: list[str]
) -> None:
    for ids in tokenizer.encode([*LINES, *texts]):
        assert all(PAD < one < tokenizer.vocab_size for one in ids)


@pytest.mark.parametrize("texts", ["今天足球比赛", "サッカーの試合", "ฟุตบอล", "ບານເຕະ", "𠀋𠀋a足b"])
def test_words_of_scripts_without_spaces_are_their_characters(texts: str) -> None:
    tokenizer = Tokenizer.train([f"{texts}, goals 2024"], kind="word")
    (ids,) = tokenizer.encode([texts[::-1]])
    assert UNKNOWN not in ids
    assert len(ids) == len(texts)
    spaced = [tokenizer.tokens[one] for one in tokenizer.encode([f"goals 2024, {texts[0]}"])[0]]
    assert spaced == ["goals", "2024", ",", texts[0]]


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_byte_pairs_give_back_each_text_and_know_every_sign(text: str) -> None:
    tokenizer = TRAINED["bpe", False]
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode(ids) == text
    assert UNKNOWN not in ids


@pytest.mark.parametrize("key", TRAINED, ids=str)
def test_what_is_kept_is_the_library_s_own_file_and_gives_the_same_ids(key: Any) -> None:
    from tokenizers import Tokenizer as Library

    tokenizer, kept = TRAINED[key], TRAINED[key].to_json()
    assert Tokenizer.from_json(kept).encode(LINES) == tokenizer.encode(LINES)
    library = Library.from_str(kept)
    assert [found.ids for found in library.encode_batch(LINES)] == tokenizer.encode(LINES)
    assert Tokenizer.from_json(kept).to_json() == kept


def test_words_that_training_lacks_are_unknown_and_capitals_may_be_folded() -> None:
    words = TRAINED["word", True]
    assert words.encode(["QUICK cat"])[0] == [words.encode(["quick"])[0][0], UNKNOWN]
    assert TRAINED["word", False].encode(["QUICK"]) == [[UNKNOWN]]


@pytest.mark.parametrize("part", ["vocab", "merges"])
def test_a_stranger_s_tokenizer_reads_no_file(part: str) -> None:
    plain = json.loads(TRAINED["bpe", True].to_json())
    plain["model"][part] = "/etc/passwd"
    with pytest.raises(ValueError, match="it is not a tokenizer"):
        Tokenizer.from_json(json.dumps(plain))


def plain(**changes: Any) -> str:
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "a": 3}
    post = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "dropout": 0.5}
    added = [{"id": 1, "content": "<pad>"}]
    return json.dumps(
        {"model": model, "post_processor": post, "added_tokens": added, "padding": {}} | changes
    )


def test_padding_and_0_change_places_and_nothing_is_drawn() -> None:
    made = normalize_tokenizer(plain(), 1)
    assert made["model"]["vocab"] == {"<s>": 1, "<pad>": 0, "</s>": 2, "a": 3}
    assert (made["post_processor"]["cls"], made["post_processor"]["sep"]) == (["<s>", 1], ["</s>", 2])
    assert (made["added_tokens"][0]["id"], made["model"]["dropout"], made["padding"]) == (0, None, None)


FRAME = pd.DataFrame(
    {"text": ["one two three", "two two four five", "six seven eight nine", "only in the test"]}
)

TRAIN = np.array([0, 1, 2])


def fitted(**options: Any) -> TextEncoder:
    encoder = TextEncoder("text", tokenizer="word", **{"max_length": 8, **options})
    encoder.fit(FRAME, TRAIN)
    return encoder


def test_the_vocabulary_is_that_of_the_training_rows_alone() -> None:
    encoder = fitted()
    assert encoder.vocab_size == 2 + 9
    ids = encoder.transform(FRAME)
    assert ids.dtype == torch.int64
    assert ids.shape == (4, 8)
    assert ids[3].tolist() == [UNKNOWN] * 4 + [0] * 4
    assert (ids[:3] != UNKNOWN).all()
    assert not ids[0, 3:].any()


def test_what_is_cut_off_is_counted_and_said() -> None:
    encoder = fitted(max_length=3)
    ids = encoder.transform(FRAME)
    assert ids.shape == (4, 3)
    assert torch.equal(ids, fitted().transform(FRAME)[:, :3])
    assert any("max_length=3: 3 texts (75.0 %) are longer" in note for note in encoder.notes)
    learned = TextEncoder.from_plain(encoder.as_plain(), encoder.tokenizer)
    [told] = learned.unknown(FRAME)
    assert told.startswith("3 of 4 rows are unlike the training rows, first row 1 (rows count from 0): ")
    assert told.endswith("'text' has more than 3 tokens, and is cut off there")


def test_what_is_kept_gives_the_same_ids_and_remembers_no_lengths() -> None:
    encoder = fitted()
    again = TextEncoder.from_plain(encoder.as_plain(), encoder.tokenizer)
    assert torch.equal(again.transform(FRAME), encoder.transform(FRAME))
    assert (again.column, again.notes) == ("text", ())


SHARES = {"val": 0.1, "test": 0.2}


@given(st.lists(st.text("ab\n", min_size=1, max_size=30), min_size=1, max_size=6))
def test_a_tail_is_the_end_of_all_text(texts: list[str]) -> None:
    named = [Text(str(at), text) for at, text in enumerate(texts)]
    subsets = split_by_tail(named, SHARES)
    joined = "".join(one.text for subset in ("train", "val", "test") for one in subsets.get(subset, ()))
    assert joined == "".join(texts)
    assert all(one.text for some in subsets.values() for one in some)


def test_files_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b/x.txt", "a.txt", "b.txt", ".hidden", ".git/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("é\r\n", encoding="utf-8-sig", newline="")
    assert [name for name, _ in find_files(tmp_path, "**/*")] == ["a.txt", "b.txt", "b/x.txt"]
    texts, before, _ = read_texts(find_files(tmp_path, "**/*"), "", on_bad="error")
    assert {one.text for one in texts} == {"é\r\n"}, "a mark of the byte order is no text"
    (tmp_path / "a.txt").rename(tmp_path / "c.txt")
    assert read_texts(find_files(tmp_path, "**/*"), "", on_bad="error")[1] != before


def test_the_standard_library_is_python_alone() -> None:
    files = {name for name, _ in standard_library("**/*.py")}
    assert {"ast.py", "json/decoder.py"} <= files
    assert not {name.split("/")[0] for name in files} & {"test", "site-packages", "idlelib"}
    assert all(len(samples) > 100 for samples in TextFiles(pattern="[st]*.py", seed=3).read().values())


SPLIT = {"val": 0.1, "test": 0.1, "seed": 0}
TRANSFORM: dict[str, Any] = {"train": [], "eval": [], "normalize": None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for at in range(30):
        path = tmp_path / "texts" / ("deep" if at % 2 else ".") / f"{at:02}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{at} has a line {line}: äö€\n" for line in range(at + 1)), encoding="utf-8")
    return tmp_path / "texts"


def module_of(source: TextFiles, **options: Any) -> DataModule:
    data = DataModule(source, 4, 4, SPLIT, TRANSFORM, **options)
    data.setup()
    return data


@pytest.mark.parametrize("tokens", ["bytes", "bpe"])
def test_targets_are_the_next_tokens_and_no_corpus_is_copied(folder: Path, tokens: Any) -> None:
    source = TextFiles(folder, context_length=16, tokens=tokens, split_by="files")
    subsets = source.read()
    codec = source.fitted
    assert codec is not None
    decoded = {}
    for subset, samples in subsets.items():
        base = samples.inputs.as_strided((samples.inputs.untyped_storage().nbytes() // 2,), (1,), 0)
        assert base.dtype == torch.int16
        assert samples.inputs.data_ptr() == base.data_ptr() == samples.targets.data_ptr() - 2
        ids = base.tolist()
        expected = [ids[at : at + 17] for at in range(0, len(ids) - 16, 16)]
        assert samples.inputs.tolist() == [window[:-1] for window in expected]
        assert samples.targets.tolist() == [window[1:] for window in expected]
        decoded[subset] = codec.decode(ids)
        assert samples.vocab_size == codec.vocab_size > max(ids)
    names = {subset: {one.partition(":")[0] for one in samples.names} for subset, samples in subsets.items()}
    assert not names["train"] & (names["val"] | names["test"])
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.txt")]
    assert sum(map(len, decoded.values())) == sum(map(len, texts))
    assert all(any(text in one for one in decoded.values()) for text in texts)


def test_a_batch_is_int64_and_nothing_is_normalised(folder: Path) -> None:
    data = module_of(TextFiles(folder, context_length=16))
    assert (data.spec.task, data.spec.input_shape, data.spec.input_dtype) == (
        "language_modelling",
        (16,),
        "int64",
    )
    assert (data.spec.vocab_size, data.spec.token_bytes, data.spec.mean) == (256, "0 1*255", ())
    for _ in range(3):  # whatever is prepared at once later
        batch = next(iter(data.train_dataloader()))
        inputs, targets = data.on_after_batch_transfer(batch, 0)
        assert inputs.dtype == targets.dtype == torch.int64
        assert inputs.shape == targets.shape == (4, 16)
        assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_byte_pairs_are_learned_from_the_training_part_alone(folder: Path) -> None:
    def tokenizer() -> str:
        source = TextFiles(folder, context_length=16, tokens="bpe", vocab_size=300, split_by="files")
        subsets = source.read()
        assert source.fitted is not None
        assert {samples.vocab_size for samples in subsets.values()} == {300}
        tested.update(one.partition(":")[0] for one in subsets["test"].names)
        return str(source.fitted.to_json())

    tested: set[str] = set()
    before = tokenizer()
    for name in tested:
        length = len((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(("zzzz zzz " * length)[:length], encoding="utf-8")
    assert tokenizer() == before


@pytest.mark.parametrize("names", [("train", "test"), ("Training", "TEST")])
def test_folders_are_subsets(tmp_path: Path, names: tuple[str, str]) -> None:
    for subset in names:
        (tmp_path / subset).mkdir()
        (tmp_path / subset / "a.txt").write_text(subset.casefold()[:5] * 50)
    data = module_of(TextFiles(tmp_path, context_length=8))
    assert (data.spec.num_val, data.spec.num_test) == (3, 25)  # a tenth of the training text, and a folder
    source = TextFiles(tmp_path, context_length=8)
    source.divides, source.fitted = False, Bytes()
    assert list(source.read()) == ["all"]


@pytest.mark.parametrize("subsets", [(".",), ("train", "test")])
def test_folders_that_look_like_classes_are_named(tmp_path: Path, subsets: tuple[str, ...]) -> None:
    for subset in subsets:
        for name in ("neg", "pos"):
            path = tmp_path / subset / name
            path.mkdir(parents=True)
            for number in range(20):
                (path / f"{number}.txt").write_text(f"{name} {number} of {subset}\n" * 9, encoding="utf-8")
    source = TextFiles(tmp_path, context_length=16)
    source.read()
    (note,) = (note for note in source.notes if "neg, pos" in note)
    assert "data=text_table" in note


def test_what_is_left_out_is_said(folder: Path) -> None:
    (folder / "empty.txt").touch()
    (folder / "latin.txt").write_bytes("für".encode("latin-1"))
    (folder / ".hidden.txt").write_text("x")
    with pytest.raises(
        DataError, match=r"1 of 32 files cannot be used: latin.txt \(not UTF-8 at byte 1\)"
    ) as caught:
        TextFiles(folder).read()
    assert "data.source.on_bad=skip" in str(caught.value)
    source = TextFiles(folder, context_length=16, on_bad="skip")
    source.read()
    assert [note for note in source.notes if "1 empty file left out" in note]
    assert [note for note in source.notes if "latin.txt" in note and "left out" in note]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context_length": 0}, "context_length=0: expected a number >= 1"),
        ({"val": -0.1}, r"val=-0.1: expected a number in \[0, 1\)"),
        ({"vocab_size": 500}, "vocab_size=500 is for byte pairs, but the tokens are bytes"),
        ({"tokens": "bpe", "vocab_size": 10}, "vocab_size=10: expected 258"),
    ],
    ids=str,
)
def test_options_that_mean_nothing(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextFiles(**options)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "all of 1 file are empty"),
        ("short", {}, "context_length=128: the train subset has"),
        ("short " * 40, {"context_length": 100}, "context_length=100: the val subset has"),
        ("text " * 999, {"split_by": "files"}, "1 file are too few"),
        ("text " * 999, {"split_by": "folders"}, "expected files in the folders train, val and test"),
        ("text", {"pattern": "*.md"}, "no such file in"),
        ("text", {"pattern": "/texts/*.md"}, "Non-relative patterns are unsupported"),
    ],
)
def test_texts_that_cannot_be_used(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        TextFiles(tmp_path, **options).read()
    assert "data.source." in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("split", [{"folds": 3, "fold": 0}, {"group": "(.*)"}])
def test_windows_of_a_text_are_not_divided(folder: Path, split: dict[str, Any]) -> None:
    """A fold would be tested on windows next to those that were trained on."""
    source = TextFiles(folder, context_length=16)
    data = DataModule(source, 4, 4, {"val": 0.1, "test": 0.1, **split}, TRANSFORM)
    with pytest.raises(DataError, match=r"data\.split\.\w+=.*: this source divides its texts itself"):
        data.setup()


@pytest.fixture(scope="module")
def docs() -> Any:
    return StdlibDocs().read()["all"]


def test_thousands_of_texts_of_each_topic_no_text_twice(docs: Any) -> None:
    assert len(docs) > 4000
    assert docs.targets.bincount().min() > 200
    assert len(docs.targets.bincount()) == len(TOPICS) == 8
    assert docs.raw["text"].map(lambda text: " ".join(text.split()).casefold()).is_unique
    assert docs.raw["text"].str.split().str.len().min() >= 5


def test_a_python_without_its_sources_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(DataError, match="this Python has no sources"):
        StdlibDocs().read()
