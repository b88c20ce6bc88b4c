"""Shards that are streamed: which samples make up a step, where a run goes on, and what is refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import tarfile
from contextlib import chdir
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import fsspec  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types
import pytest
from PIL import Image
from tests.conftest import unchanged_process
from tests.interrupting import Interrupt, outcome

import assay
from assay.compose.compose import compose
from assay.data.core.batch_order import BatchOrder
from assay.data.core.data_module import DataModule
from assay.data.core.loaders import StreamLoader
from assay.data.core.source_info import info_of
from assay.data.shards.image_shards import ImageShards
from assay.data.shards.shard_files import ShardReader
from assay.data.shards.table_shards import TableShards
from assay.errors import AssayError, DataError
from assay.run.resume import resume
from assay_report.data_page import survey_data
from assay_serve.evaluate import evaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Train

WINDOW = 300
SHARES = {"val": 0.1, "test": 0.1}
UNCHANGED: dict[str, Any] = {"train": [], "eval": [], "normalize": None}


def rows_of(number: int, seed: int) -> pd.DataFrame:
    draws = np.random.default_rng(seed)
    frame = pd.DataFrame(draws.normal(size=(number, 3)), columns=["a", "b", "c"])
    frame["kind"] = draws.choice(["red", "green", "blue"], number)
    frame["customer"] = draws.integers(0, 40, number)
    frame["price"] = 3 * frame["a"] + frame["b"] + draws.normal(size=number)
    frame["label"] = np.where(frame["a"] + (frame["kind"] == "red") > 0.5, "yes", "no")
    return frame


def write_shards(folder: Path, sizes: tuple[int, ...] = (400, 500, 600)) -> pd.DataFrame:
    """Parquet files, and all of their rows."""
    folder.mkdir(exist_ok=True)
    frames = [rows_of(size, seed) for seed, size in enumerate(sizes)]
    for number, frame in enumerate(frames):
        pq.write_table(pa.Table.from_pandas(frame), folder / f"part-{number}.parquet", row_group_size=110)
    return pd.concat(frames, ignore_index=True)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where indices are kept."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ASSAY_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "shards"
    write_shards(folder)
    return folder


@pytest.fixture(scope="module")
def all_rows(shards: Path) -> pd.DataFrame:
    return pd.concat([pd.read_parquet(file) for file in sorted(shards.glob("*.parquet"))], ignore_index=True)


def open_shards(
    path: Path | str, target: str = "label", split: dict[str, Any] | None = None, **options: Any
) -> Any:
    source = TableShards(str(path), target, window=WINDOW, exclude=["customer"], **options)
    shares = {**SHARES, **(split or {})}
    data = DataModule(source, "auto", 64, shares, UNCHANGED, drop_last=True, global_batch_size=40)
    data.setup()
    return data


def order_of(data: Any, rank: int = 0, ranks: int = 1) -> BatchOrder:
    number = data.splits.stream.num_samples
    return BatchOrder(number, 40 // ranks, 0, True, True, True, rank, ranks)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_step_has_the_same_samples_whatever_the_number_of_ranks(shards: Path, ranks: int) -> None:
    data = open_shards(shards)
    stream, alone = data.splits.stream, order_of(data)
    for epoch in (0, 3):
        seen: list[int] = []
        for step in range(len(alone)):
            together = [
                row for rank in range(ranks) for row in stream.rows(order_of(data, rank, ranks), epoch, step)
            ]
            assert sorted(together) == sorted(stream.rows(alone, epoch, step))
            seen += together
        assert len({*seen}) == len(seen) == len(alone) * 40, "no sample twice"
        held_out = {int(name) for subset in ("val", "test") for name in data.splits.data[subset].names}
        assert not held_out & {*seen}
        # A window's rows are neighbours in the order of blocks, so not all of them lie in one block.
        assert len({row // 110 for row in seen[:40]}) > 1
    assert not np.array_equal(stream.rows(alone, 0, 0), stream.rows(alone, 1, 0))


def test_batches_hold_the_rows_of_the_files(shards: Path, all_rows: pd.DataFrame) -> None:
    data = open_shards(shards)
    loader = data.train_dataloader()
    for step, (inputs, targets) in enumerate(loader):
        rows = all_rows.loc[loader.samples(0, step).tolist()]
        np.testing.assert_array_equal(inputs[:, :3].numpy(), rows[["a", "b", "c"]].to_numpy(np.float32))
        assert [data.spec.class_names[at] for at in targets] == [*rows["label"]]
    left = all_rows.drop([int(name) for part in ("val", "test") for name in data.splits.data[part].names])
    assert data.spec.class_counts == tuple(left["label"].value_counts().sort_index())
    assert (data.spec.num_train, data.spec.num_val, data.spec.num_test) == (len(left), 150, 150)


@pytest.mark.parametrize("blanks", [["", " "], ["", None]])
def test_a_blank_category_is_a_missing_one(tmp_path: Path, blanks: list[str | None]) -> None:
    frame = pd.concat([rows_of(400, 0), rows_of(400, 1)], ignore_index=True)
    frame["kind"] = frame["kind"].astype(object)
    frame.loc[::5, "kind"] = np.resize(np.array(blanks, object), 160)
    frame.to_parquet(tmp_path / "rows.parquet")
    data = open_shards(tmp_path)
    loader = data.train_dataloader()
    for step, (inputs, _) in enumerate(loader):
        kinds = frame["kind"].iloc[loader.samples(0, step).tolist()].fillna("").str.strip()
        assert inputs[:, -1].tolist() == kinds.map({"": 0, "blue": 1, "green": 2, "red": 3}).tolist()


@pytest.mark.parametrize("by", ["group", "column"])
def test_a_column_divides_the_rows(tmp_path: Path, by: str) -> None:
    everything = write_shards(tmp_path)
    everything["part"] = np.where(everything.index < 1200, "train", "test")
    pq.write_table(pa.Table.from_pandas(everything), tmp_path / "part-0.parquet", row_group_size=200)
    for other in ("part-1.parquet", "part-2.parquet"):
        (tmp_path / other).unlink()
    column = "customer" if by == "group" else "part"
    data = open_shards(tmp_path, split={by: column})
    rows = [
        row for step in range(len(order_of(data))) for row in data.splits.stream.rows(order_of(data), 0, step)
    ]
    subsets = {"train": {*everything.loc[rows, column]}}
    for name in ("val", "test"):
        subsets[name] = {*everything.loc[[*map(int, data.splits.data[name].names)], column]}
    if by == "group":
        assert not subsets["train"] & subsets["test"]
        assert not subsets["val"] & (subsets["train"] | subsets["test"])
        assert all(subsets.values())
    else:
        assert subsets == {"train": {"train"}, "val": {"train"}, "test": {"test"}}


def test_names_of_shards_divide_them(tmp_path: Path) -> None:
    write_shards(tmp_path)
    (tmp_path / "part-1.parquet").rename(tmp_path / "test-1.parquet")
    data = open_shards(tmp_path)
    stream, order = data.splits.stream, order_of(data)
    trained = {int(row) for step in range(len(order)) for row in stream.rows(order, 0, step)}
    in_test = {*range(1000, 1500)}  # the last by their names
    assert not trained & in_test
    assert in_test == {int(name) for name in data.splits.data["test"].names}
    assert data.spec.num_val == 100
    assert "data: the names of shards divide them: 2 train, 1 test" in data.notes
    with pytest.raises(DataError, match=r"data.split.group=customer: the names of shards say which subset"):
        open_shards(tmp_path, split={"group": "customer"})


@pytest.mark.parametrize(
    "names",
    [
        ("train.parquet", "val.parquet", "test.parquet"),
        ("train_0.parquet", "valid_0.parquet", "test_0.parquet"),
        ("my-train-00.parquet", "imagenet1k-validation-00.parquet", "my-test-00000-of-00001.parquet"),
        ("0.parquet", "Val/0.parquet", "Test/0.parquet"),
    ],
)
def test_any_word_of_a_name_says_the_subset(tmp_path: Path, names: tuple[str, ...]) -> None:
    write_shards(tmp_path, (600, 110, 120))
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"part-{number}.parquet").rename(tmp_path / name)
    spec = open_shards(tmp_path).spec
    assert (spec.num_train, spec.num_val, spec.num_test) == (600, 110, 120)


def test_the_name_of_a_single_file_does_not_divide_it(tmp_path: Path) -> None:
    write_shards(tmp_path, (600,))
    (tmp_path / "part-0.parquet").rename(tmp_path / "test.parquet")
    assert open_shards(tmp_path / "test.parquet").spec.num_train == 480


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """An address at which a folder is served, and what was asked of it."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            asked.append(self.requestline)

        def do_GET(self) -> None:
            content = (folder / self.path.strip("/")).read_bytes()
            start, end = 0, len(content) - 1
            if words := self.headers.get("Range"):
                start, end = (int(word or end) for word in words.removeprefix("bytes=").split("-"))
            self.send_response(206 if words else 200)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(content)}")
            piece = content[start : end + 1]
            self.send_header("Content-Length", str(len(piece)))
            self.end_headers()
            self.wfile.write(piece)

    folder = tmp_path / "served"
    write_shards(folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/part-0.parquet", asked
        finally:
            http.shutdown()
            thread.join()


def write_experiment(folder: Path, path: str) -> None:
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "foreign.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /data: table_shards\n"
        f"data:\n  source:\n    path: {path}\n    target: label\n"
    )


def test_an_address_is_not_contacted_before_it_is_refused(
    tmp_path: Path, server: tuple[str, list[str]]
) -> None:
    address, asked = server
    write_experiment(tmp_path / "conf", address)
    with pytest.raises(AssayError, match="not given on the command line, and it is an external address"):
        compose(["experiment=foreign"], tmp_path / "conf")
    assert not asked
    compose(["experiment=foreign", f"data.source.path={address}"], tmp_path / "conf")
    assert asked


def test_a_local_file_leads_to_no_address(tmp_path: Path, server: tuple[str, list[str]]) -> None:
    address, asked = server
    references = tmp_path / "references.json"
    references.write_text(json.dumps({"part-0.parquet": [address]}))
    with pytest.raises(DataError, match=r"data.source.path="):
        ShardReader(f"reference::{references}")
    assert not asked


def test_nothing_is_written_beside_the_data(tmp_path: Path, shards: Path) -> None:
    shutil.copytree(shards, tmp_path / "shards")
    before = sorted(tmp_path.rglob("shards/**"))
    write_experiment(tmp_path / "conf", str(tmp_path / "shards"))
    compose(["experiment=foreign"], tmp_path / "conf")
    open_shards(tmp_path / "shards")
    assert sorted(tmp_path.rglob("shards/**")) == before


def test_workers_read_from_an_address(server: tuple[str, list[str]]) -> None:
    address, _ = server
    data = open_shards(address)
    alone = [inputs for inputs, _ in data.train_dataloader()]
    forked = StreamLoader(data.splits.stream, order_of(data), lambda: (0, 0), num_workers=2)
    assert len([*forked]) == len(alone)


def picture(number: int, size: int = 12) -> bytes:
    """A PNG of the colour of its class."""
    pixels = np.full((size, size, 3), 20, np.uint8)
    pixels[..., number % 3] = 200 - number % 50
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_tars(folder: Path, *, as_json: bool = False) -> None:
    folder.mkdir(exist_ok=True)
    for shard in range(3):
        with tarfile.open(folder / f"part-{shard}.tar", "w") as tar:
            for number in range(60 * shard, 60 * shard + 60):
                label = json.dumps({"label": number % 3}) if as_json else str(number % 3)
                ending = "json" if as_json else "cls"
                for name, content in (
                    (f"{number:05}.png", picture(number)),
                    (f"{number:05}.{ending}", label.encode()),
                ):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


def write_hugging_face(folder: Path) -> None:
    """As `Dataset.to_parquet` writes it: with the names of classes in the schema."""
    folder.mkdir(exist_ok=True)
    features = {"label": {"names": ["red", "green", "blue"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema([("image", kind), ("label", pa.int64())], metadata=metadata)
    for shard in range(2):
        rows = [
            {"image": {"bytes": picture(number), "path": None}, "label": number % 3}
            for number in range(90 * shard, 90 * shard + 90)
        ]
        table = pa.Table.from_pylist(rows, schema=schema)
        pq.write_table(table, folder / f"data-0000{shard}-of-00002.parquet", row_group_size=30)


def write_parquet_pictures(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    rows = [{"image": picture(number), "label": "rgb"[number % 3]} for number in range(180)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "pictures.parquet", row_group_size=32)


WRITERS = {"tar": write_tars, "hugging_face": write_hugging_face, "parquet": write_parquet_pictures}
NAMES = {"tar": ("0", "1", "2"), "hugging_face": ("red", "green", "blue"), "parquet": ("b", "g", "r")}


@pytest.mark.parametrize("kind", WRITERS)
def test_pictures_are_those_of_the_shards(tmp_path: Path, kind: str) -> None:
    WRITERS[kind](tmp_path / "shards")
    source = ImageShards(str(tmp_path / "shards"), image_size="auto", window=50)
    transform: dict[str, Any] = {"train": [], "eval": [], "normalize": None}
    data = DataModule(
        source, "auto", 16, {"val": 0.1, "test": 0.1}, transform, drop_last=True, global_batch_size=9
    )
    data.setup()
    assert data.spec.class_names == NAMES[kind]
    assert (data.spec.num_train, data.spec.num_val, data.spec.num_test) == (144, 18, 18)
    assert data.spec.class_counts is not None
    assert sum(data.spec.class_counts) == 144
    loader = data.train_dataloader()
    for step, (inputs, targets) in enumerate(loader):
        for number, image, target in zip(loader.samples(0, step).tolist(), inputs, targets, strict=True):
            expected = np.array(Image.open(io.BytesIO(picture(number)))).transpose(2, 0, 1)
            np.testing.assert_array_equal(image.numpy(), expected)
            assert NAMES[kind][int(target)] in (
                str(number % 3),
                "rgb"[number % 3],
                ("red", "green", "blue")[number % 3],
            )
    inputs, _ = next(iter(data.val_dataloader()))
    assert inputs.shape == (16, 3, 12, 12)


def test_a_url_is_read_and_pinned(tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    write_shards(tmp_path)
    for file in tmp_path.glob("*.parquet"):
        files.pipe(f"/bucket/{file.name}", file.read_bytes())
    here, there = open_shards(tmp_path), open_shards("memory://bucket")
    pairs = zip(here.train_dataloader(), there.train_dataloader(), strict=True)
    assert all(bool((one[0] == other[0]).all()) for one, other in pairs)
    assert here.digest() == there.digest()
    stream = pickle.loads(pickle.dumps(there.splits.stream))  # noqa: S301 - as a worker gets it
    files.pipe("/bucket/part-2.parquet", b"PAR1")
    with pytest.raises(DataError, match=r"the shard part-2.parquet has changed"):
        list(StreamLoader(stream, order_of(there), lambda: (1, 0)))
    with pytest.raises(DataError, match=r"cannot be read: .*[sS]3.*"):
        open_shards("s3://bucket/shards")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_tar_that_ends_early_or_lacks_a_label_is_named(tmp_path: Path, cache: Path, as_json: bool) -> None:
    write_tars(tmp_path, as_json=as_json)
    whole = (tmp_path / "part-1.tar").read_bytes()
    (tmp_path / "part-1.tar").write_bytes(whole[:20_000])
    with pytest.raises(DataError, match=r"the shard part-1.tar cannot be read: the tar ends early"):
        ShardReader(str(tmp_path))
    assert not list(cache.rglob("shards/*.json"))
    with tarfile.open(tmp_path / "part-1.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("1.png"))
    with pytest.raises(DataError, match=r"expected images with a .cls or .json file beside each; 1 lacks"):
        ShardReader(str(tmp_path))


def job(shards: Path, *more: str) -> tuple[str, ...]:
    return (
        *("data=table_shards", f"data.source.path={shards}", "data.source.target=label"),
        *(f"data.source.window={WINDOW}", "data.global_batch_size=40", "callbacks=[default]"),
        *("trainer.max_epochs=2", "trainer.limit_train_batches=10", "model.dropout=0.5"),
        *("callbacks.last_checkpoint.every_n_train_steps=1", "data.source.exclude=[customer]", *more),
    )


_whole: dict[Path, dict[str, str]] = {}


@pytest.mark.always("2")
@pytest.mark.parametrize("workers", [0, 2])
def test_interrupted_in_mid_epoch_it_ends_the_same_to_the_bit(
    train: Train, shards: Path, workers: int
) -> None:
    if shards not in _whole:
        _whole[shards] = outcome(train(*job(shards)).run_dir)
    words = job(shards, f"data.num_workers={workers}")
    run_dir = train(*words, callbacks=[Interrupt("batch", 14)]).run_dir
    with chdir(run_dir.parent), unchanged_process():
        assert resume(run_dir).status == "finished"
    assert outcome(run_dir) == _whole[shards]


def test_a_run_does_what_every_run_does(
    train: Train, shards: Path, all_rows: pd.DataFrame, cache: Path, tmp_path: Path
) -> None:
    run = train(*job(shards), "data.source.target=price", "baseline=auto", "predictions.max_megabytes=1")
    record = run.record
    write_shards(tmp_path, (400,))
    (index,) = cache.rglob("shards/*.json")
    listed = json.loads(index.read_text())["shards"]
    digests = [shard["sha256"] for shard in listed]
    lines = "\n".join(f"{shard['sha256']} {shard['name']}" for shard in listed)
    assert record["data_sha256"] == hashlib.sha256(lines.encode()).hexdigest()
    assert digests[0] == hashlib.sha256((shards / "part-0.parquet").read_bytes()).hexdigest()
    assert "baseline/r2" in record["metrics"]
    predicted = assay.load(run.run_dir)(all_rows.head(5))
    assert len(predicted) == 5
    with chdir(run.run_dir.parent):
        again = evaluate(run.run_dir)
        other = evaluate(run.run_dir, [f"data.source.path={tmp_path}"])
    assert again.metrics["test/loss"] == pytest.approx(record["metrics"]["test/loss"])
    unknown = "it is not known whether the run was trained on some of these samples"
    assert (unknown in other.notes, unknown in again.notes) == (True, False)


def test_what_is_missing_truncated_or_changed_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path)
    data = open_shards(tmp_path)
    whole = (tmp_path / "part-1.parquet").read_bytes()
    (tmp_path / "part-1.parquet").write_bytes(whole[:-50])
    with pytest.raises(DataError, match=r"the shard part-1.parquet has changed since"):
        list(data.train_dataloader())
    with pytest.raises(DataError, match=r"the shard part-1.parquet cannot be read: "):
        open_shards(tmp_path)
    (tmp_path / "part-1.parquet").unlink()
    with pytest.raises(DataError, match=r"the shard part-1.parquet is missing, which the index"):
        open_shards(tmp_path)
    for number in (0, 2):
        shutil.move(tmp_path / f"part-{number}.parquet", tmp_path / f"data-0000{number}-of-00003.parquet")
    with pytest.raises(
        DataError, match=r"the shard data-00001-of-00003.parquet is missing, beside data-00000"
    ):
        open_shards(tmp_path)


def test_no_option_is_suggested_that_shards_lack(tmp_path: Path) -> None:
    frame = rows_of(400, 0)
    frame.loc[::20, "a"] = -999.0
    frame["on"] = np.resize(["01/02/2024", "03/02/2024", "05/01/2023"], 400)
    frame.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="whether the day or the month comes first") as refused:
        open_shards(tmp_path)
    assert "data.source.day_first=true" in refused.value.hint
    notes = open_shards(tmp_path, day_first=True).source.notes
    assert any("possible codes of missing values: a (-999, " in note for note in notes)
    assert not any("na_values" in note for note in notes)


def test_numbered_shards_may_have_a_hash_in_their_names(tmp_path: Path) -> None:
    write_shards(tmp_path)
    for number, file in enumerate(sorted(tmp_path.glob("*.parquet"))):
        file.rename(tmp_path / f"train-{number:05}-of-00003-{97 * number:016x}.parquet")
    assert len(ShardReader(str(tmp_path)).shards) == 3


def test_an_address_of_a_run_is_typed_again(train: Train, shards: Path) -> None:
    address = f"data.source.path=file://{shards}"
    run_dir = train(*job(shards, "trainer.limit_train_batches=2"), address).run_dir
    with chdir(run_dir.parent), unchanged_process():
        for again in (evaluate, resume):
            with pytest.raises(
                AssayError, match="not given on the command line, and it is an external address"
            ):
                again(run_dir, ["trainer.max_epochs=3"] if again is resume else [])
        assert evaluate(run_dir, [address]).same_data
        assert resume(run_dir, [address, "trainer.max_epochs=3"]).status == "finished"


def test_all_of_a_stream_is_read_when_that_is_asked_for(tmp_path: Path) -> None:
    write_shards(tmp_path)
    data = open_shards(tmp_path)
    surveys = survey_data(data, "shards", {}, full=True).subsets
    assert [one.num_samples for one in surveys] == [1200, 150, 150]
    assert not surveys[0].unreadable
    os.utime(tmp_path / "part-0.parquet", (0, 0))
    assert not survey_data(data, "shards", {}).subsets[0].unreadable
    (train, *_) = survey_data(data, "shards", {}, full=True).subsets
    assert "the shard part-0.parquet has changed" in train.unreadable[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"split": {"time": "a"}}, "shards are not in order of time"),
        ({"split": {"folds": 3, "fold": 0}}, "cannot be chosen one by one"),
        ({"target": "nothing"}, "has no column 'nothing'"),
        ({"split": {"group": "clients"}}, "has no column 'clients'"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(shards: Path, words: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        open_shards(shards, **words)


def test_shards_may_differ_in_the_type_of_a_number(tmp_path: Path) -> None:
    everything = write_shards(tmp_path).drop(columns="customer")
    for number, type_ in enumerate((pa.int64(), pa.float64(), pa.null())):
        table = pa.Table.from_pandas(everything[:400]).append_column("customer", pa.nulls(400, type_))
        pq.write_table(table, tmp_path / f"part-{number}.parquet")
    pq.write_table(pa.Table.from_pandas(everything[:0]), tmp_path / "part-3.parquet")  # without rows
    assert len(list(open_shards(tmp_path).train_dataloader())) == 24
    pq.write_table(pa.Table.from_pandas(everything.assign(a="text")), tmp_path / "part-1.parquet")
    with pytest.raises(DataError, match=r"part-1.parquet, part-0.parquet differ in a column: .* a has"):
        open_shards(tmp_path, split={"val": 0.2})
    pq.write_table(pa.Table.from_pandas(everything.drop(columns="a")), tmp_path / "part-1.parquet")
    with pytest.raises(DataError, match=r"the shard part-1.parquet has no column 'a'"):
        open_shards(tmp_path)


def without_seventh(column: pd.Series, value: float | None = None) -> pd.Series:
    return column.where(np.arange(len(column)) != 7, value)


@pytest.mark.parametrize(
    ("target", "change", "message"),
    [
        ("label", lambda part: part.drop(columns="b"), "the shard part-21.parquet has no column 'b'"),
        ("label", lambda part: part.assign(b="text"), "part-21.parquet, part-0.parquet differ in a column: "),
        (
            "label",
            lambda part: part.assign(label=without_seventh(part["label"])),
            "1 row of part-21.parquet w",
        ),
        ("price", lambda part: part.assign(price=without_seventh(part["price"])), "infinity, in row 427 "),
        (
            "price",
            lambda part: part.assign(price=without_seventh(part["price"], np.inf)),
            "infinity, in row 427 ",
        ),
    ],
)
def test_one_of_many_shards_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, change: Callable[..., Any], message: str
) -> None:
    monkeypatch.setattr("assay.data.shards.shard_stream._SAMPLE_ROWS", 30)  # of other shards
    write_shards(tmp_path, (30,) * 100)
    part = pd.read_parquet(tmp_path / "part-28.parquet")
    pq.write_table(pa.Table.from_pandas(change(part)), tmp_path / "part-21.parquet")
    with pytest.raises(DataError, match=message):
        open_shards(tmp_path, target, eval_rows=10)


def test_labels_and_rows_that_are_none(tmp_path: Path) -> None:
    everything = write_shards(tmp_path, (400,))
    labels = pd.Categorical(everything["label"], categories=["yes", "no", "never"])
    pq.write_table(pa.Table.from_pandas(everything.assign(label=labels)), tmp_path / "part-0.parquet")
    assert open_shards(tmp_path).spec.class_names == ("no", "yes")
    encoded = everything.assign(label=[text.encode() for text in everything["label"]])
    pq.write_table(pa.Table.from_pandas(encoded), tmp_path / "part-0.parquet")
    with pytest.raises(DataError, match=r"data.source.target=label: "):
        open_shards(tmp_path, task="multiclass")
    pq.write_table(pa.Table.from_pandas(everything[:0]), tmp_path / "part-0.parquet")
    with pytest.raises(DataError, match=r"no shard has a row"):
        open_shards(tmp_path)


FORMATS: dict[str, tuple[Callable[[float], str], str]] = {
    "dollars": (lambda value: f"${value:,.2f}", ".USD"),
    "euros": (lambda value: f"{value:,.2f} €".translate(str.maketrans(",.", ".,")), ",EUR"),
    "percent": (lambda value: f"{value:.1f} %", ".%"),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_amounts_are_numbers_as_in_a_table(tmp_path: Path, kind: str) -> None:
    write, form = FORMATS[kind]
    draw = np.random.default_rng(3)
    values = draw.lognormal(7, 1, 300).round(2 if kind != "percent" else 1)
    frame = pd.DataFrame({"x": np.log(values), "y": [write(value) for value in values]})
    for index in range(3):
        part = frame.iloc[100 * index : 100 * index + 100]
        part.to_parquet(tmp_path / f"train-{index:05}-of-00003.parquet", index=False)
    find_task = info_of("assay.data.shards.table_shards.TableShards").find_task
    assert find_task is not None
    assert find_task({"path": str(tmp_path), "target": "y"}) == "regression"
    source = TableShards(str(tmp_path), "y")
    data = DataModule(source, "auto", 64, SHARES, UNCHANGED, drop_last=True, global_batch_size=40)
    data.setup()
    assert data.spec.task == "regression"
    assert any(note.startswith("the target y (") for note in source.notes)
    loader = data.train_dataloader()
    expected = values.astype(np.float32)
    for step, (_, targets) in enumerate(loader):
        np.testing.assert_array_equal(targets[:, 0].numpy(), expected[loader.samples(0, step)])
    for subset in ("val", "test"):
        rows = [int(name) for name in data.splits.data[subset].names]
        np.testing.assert_array_equal(data.splits.data[subset].targets[:, 0].numpy(), expected[rows])
    encoder: Any = data.splits.encoder
    assert encoder.target_forms == {"y": form}


def test_shards_of_one_row_group_are_not_all_in_memory(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(4, 100_000))  # 3.2 MB, and pages of 1 MB
    columns = [f"x{number}" for number in range(4)]
    table = pa.table(dict(zip(columns, values, strict=True)))
    for shard in range(8):
        pq.write_table(table, tmp_path / f"{shard}.parquet", compression="none", use_dictionary=False)
    reader = ShardReader(str(tmp_path))
    before = pa.total_allocated_bytes()
    tables = [reader.read(block, np.arange(5), columns) for block in range(8)]
    held = pa.total_allocated_bytes() - before
    assert held < 4 * values.nbytes
    assert all(one.equals(table.slice(0, 5)) for one in tables)


def test_of_a_row_group_that_is_the_whole_file_a_few_pages_are_in_memory(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(4, 400_000))  # 12.8 MB, of which a batch is 0.3 MB
    columns = [f"x{number}" for number in range(4)]
    table = pa.table(dict(zip(columns, values, strict=True)))
    pages: Any = {"compression": "none", "use_dictionary": False, "data_page_size": 1 << 16}
    pq.write_table(table, tmp_path / "0.parquet", **pages)
    reader = ShardReader(str(tmp_path))
    before = pa.total_allocated_bytes()
    first = reader.read(0, np.arange(5), columns)
    held = pa.total_allocated_bytes() - before
    assert held < values.nbytes / 4
    assert first.equals(table.slice(0, 5))
    assert reader.read(0, np.arange(5, 400_000), columns).equals(table.slice(5))


def test_texts_that_are_views_are_texts(tmp_path: Path) -> None:
    table = pa.table(
        {"a": np.arange(400) / 7, "kind": ["red", "blue"] * 200, "label": ["yes", "no", "no", "yes"] * 100}
    )
    views = table.set_column(1, "kind", table["kind"].cast(pa.string_view()))
    plain, viewed = tmp_path / "plain", tmp_path / "viewed"
    for folder, one in ((plain, table), (viewed, views)):
        folder.mkdir()
        pq.write_table(one, folder / "0.parquet", row_group_size=150)
        pq.write_table(table, folder / "1.parquet")
    expected, found = ([*TableShards(str(folder), "label").read().values()] for folder in (plain, viewed))
    for one, other in zip(expected, found, strict=True):
        pd.testing.assert_frame_equal(one.raw, other.raw)
        assert one.targets.tolist() == other.targets.tolist()
