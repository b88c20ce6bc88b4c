"""Windows of text files, against slices that are cut by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from assay.data import text_files
from assay.data.alphabet import Alphabet
from assay.data.data_module import DataModule
from assay.data.text_files import TextFiles
from assay.errors import ConfigError, DataError

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.parametrize("tokens", ["bytes", "characters", "bpe"])
@pytest.mark.parametrize("stride", [None, 5])
def test_targets_are_the_next_tokens_and_no_corpus_is_copied(
    folder: Path, tokens: str, stride: int | None
) -> None:
    source = TextFiles(folder, context_length=16, tokens=tokens, stride=stride, split_by="files")
    subsets = source.read()
    codec = source.fitted
    assert codec is not None
    decoded = {}
    for subset, samples in subsets.items():
        step = 16 if subset != "train" or stride is None else stride
        base = samples.inputs.as_strided((samples.inputs.untyped_storage().nbytes() // 2,), (1,), 0)
        assert base.dtype == torch.int16
        assert samples.inputs.data_ptr() == base.data_ptr() == samples.targets.data_ptr() - 2
        ids = base.tolist()
        expected = [ids[at : at + 17] for at in range(0, len(ids) - 16, step)]
        assert samples.inputs.tolist() == [window[:-1] for window in expected]
        assert samples.targets.tolist() == [window[1:] for window in expected]
        decoded[subset] = codec.decode(ids)
        assert samples.vocab_size == codec.vocab_size > max(ids)
    names = {subset: {one.partition(":")[0] for one in samples.names} for subset, samples in subsets.items()}
    assert not names["train"] & (names["val"] | names["test"])
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.txt")]
    assert sum(map(len, decoded.values())) == sum(map(len, texts))
    assert all(any(text in one for one in decoded.values()) for text in texts)


def test_a_window_s_name_says_where_it_begins(folder: Path) -> None:
    subsets = TextFiles(folder, context_length=16, split_by="files").read()
    samples = subsets["train"]
    for at in (0, 7, len(samples) - 1):
        name, _, token = samples.names[at].rpartition(":")
        text = (folder / name).read_bytes() + b"\0"
        start = text[int(token) : int(token) + 16]
        assert bytes(samples.inputs[at].tolist()).startswith(start)


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


def test_the_data_hash_covers_contents_and_options(folder: Path) -> None:
    def digest(**options: Any) -> str:
        return module_of(TextFiles(folder, **{"context_length": 16, **options})).digest()

    before = digest()
    assert before == digest()
    assert len({before, digest(tokens="characters"), digest(stride=3), digest(context_length=8)}) == 4
    path = folder / "00.txt"
    path.write_text(path.read_text(encoding="utf-8").replace("0", "1"), encoding="utf-8")
    assert digest() != before


def test_byte_pairs_are_learned_from_the_training_part_alone(folder: Path) -> None:
    def tokenizer() -> str:
        source = TextFiles(folder, context_length=16, tokens="bpe", vocab_size=300, split_by="files")
        subsets = source.read()
        assert source.fitted is not None
        assert {samples.vocab_size for samples in subsets.values()} == {300}
        tested.update(one.partition(":")[0] for one in subsets["test"].names)
        return source.fitted.to_json()

    tested: set[str] = set()
    before = tokenizer()
    for name in tested:
        length = len((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(("zzzz zzz " * length)[:length], encoding="utf-8")
    assert tokenizer() == before


def test_characters_that_training_lacks_are_counted_and_said(folder: Path) -> None:
    tested = {one.partition(":")[0] for one in TextFiles(folder, context_length=16).read()["test"].names}
    path = folder / min(tested)
    path.write_text(path.read_text(encoding="utf-8") + "ж" * 7, encoding="utf-8")
    source = TextFiles(folder, context_length=16, tokens="characters")
    source.read()
    [note] = [note for note in source.notes if "training subset" in note]
    assert note.startswith("data.source.tokens=characters: 7 of ")


def test_files_in_two_parts_are_said(folder: Path) -> None:
    subsets = TextFiles(folder, context_length=16).read()
    one, other = (subsets[subset].names[-1].partition(":")[0] for subset in ("train", "test"))
    (folder / other).write_bytes((folder / one).read_bytes())
    source = TextFiles(folder, context_length=16)
    source.read()
    assert f"1 file of the test subset, such as {other}, have the text of a training file" in source.notes


def test_folders_are_subsets(tmp_path: Path) -> None:
    for subset in ("train", "test"):
        (tmp_path / subset).mkdir()
        (tmp_path / subset / "a.txt").write_text(subset * 50)
    data = module_of(TextFiles(tmp_path, context_length=8))
    assert (data.spec.num_val, data.spec.num_test) == (3, 25)  # a tenth of the training text, and a folder


def test_other_texts_are_evaluated_as_a_whole(folder: Path) -> None:
    source = TextFiles(folder, context_length=16)
    source.divides, source.fitted = False, Alphabet()
    assert list(source.read()) == ["all"]


def test_the_standard_library_is_the_default() -> None:
    files = text_files.standard_library("*.py")
    assert {"ast.py", "typing.py"} <= {name for name, _ in files}
    subsets = TextFiles(pattern="[st]*.py", context_length=64, seed=3).read()
    assert {subset: len(samples) > 100 for subset, samples in subsets.items()} == dict.fromkeys(subsets, True)
    nested = {name.split("/")[0] for name, _ in text_files.standard_library("**/*.py")}
    assert not nested & {"test", "site-packages", "idlelib"}


def test_what_is_left_out_is_said(folder: Path) -> None:
    (folder / "empty.txt").touch()
    (folder / "latin.txt").write_bytes("für".encode("latin-1"))
    (folder / ".hidden.txt").write_text("x")
    with pytest.raises(
        DataError, match=r"1 of 32 files cannot be used: latin.txt is not UTF-8 at byte 1"
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
        ({"context_length": 0}, "data.source.context_length=0: expected 1 or more"),
        ({"stride": 0}, "stride=0"),
        ({"stride": 129}, "stride=129"),
        ({"tokens": "words"}, "tokens='words': expected one of bytes, characters, bpe"),
        ({"split_by": "rows"}, "split_by='rows'"),
        ({"on_bad": "ignore"}, "on_bad='ignore'"),
        ({"vocab_size": 500}, "vocab_size=500 is of byte pairs, and the tokens are bytes"),
        ({"tokens": "bpe", "vocab_size": 10}, "vocab_size=10"),
    ],
    ids=str,
)
def test_options_that_mean_nothing(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextFiles(**options)


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({}, {}, "there is no such file"),
        ({"a.txt": ""}, {}, "all of 1 file are empty"),
        ({"a.txt": "short"}, {}, "context_length=128: the train subset has"),
        ({"a.txt": "short " * 40}, {"context_length": 100}, "context_length=100: the val subset has"),
        ({"a.txt": "text " * 999}, {"split_by": "files"}, "1 file are too few"),
        ({"a.txt": "text " * 999}, {"split_by": "folders"}, "files in folders train, val and test"),
    ],
    ids=["empty folder", "empty file", "short", "short tail", "one file", "no folders"],
)
def test_texts_that_cannot_be_used(
    tmp_path: Path, files: dict[str, str], options: dict[str, Any], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        TextFiles(tmp_path, **options).read()
    assert "data.source." in str(caught.value)
    assert caught.value.hint


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        TextFiles(tmp_path / "nowhere").read()
    assert caught.value.key == "data.source.root"


def test_a_long_text_is_encoded_in_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = TextFiles(folder, context_length=16).read()["train"].inputs
    monkeypatch.setattr(text_files, "_BLOCK", 10)
    found = TextFiles(folder, context_length=16).read()["train"].inputs
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("split", [{"folds": 3, "fold": 0}, {"group": "(.*)"}])
def test_windows_of_a_text_are_not_divided(folder: Path, split: dict[str, Any]) -> None:
    """A fold would be tested on windows next to those that were trained on."""
    source = TextFiles(folder, context_length=16)
    data = DataModule(source, 4, 4, {"val": 0.1, "test": 0.1, **split}, TRANSFORM)
    with pytest.raises(DataError, match=r"data\.split\.\w+=.*: this source divides its texts itself"):
        data.setup()
