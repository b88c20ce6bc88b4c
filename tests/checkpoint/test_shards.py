"""A checkpoint in shards is whole, or one line names the shard that is not; nothing in it is run."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.record.hostile_checkpoints.corpus import CODE, MARKER, Call
from torch import distributed as dist
from torch._C._distributed_c10d import HashStore  # public, but not so for type checkers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from assay.checkpoint import checkpoint_file
from assay.checkpoint.checkpoint_file import CheckpointFile, find_newest_checkpoint, read_checkpoint, write
from assay.errors import AssayError
from assay.files.checksum import seal_json
from assay.run.predictor import read_weights
from assay_cluster import shard_writer
from assay_cluster.shard_writer import ShardWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WEIGHT = torch.arange(24.0).reshape(6, 4)
BIAS = torch.tensor([0.5, -1.0])


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def checkpoint(step: int, factor: float = 1.0) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (1,))

    def sharded(tensor: torch.Tensor) -> DTensor:
        return distribute_tensor(factor * tensor, mesh, [Shard(0)])

    progress = {"epoch_loop.batch_progress": {"total": {"completed": step}}}
    return {
        "global_step": step,
        "state_dict": {
            "model.weight": sharded(WEIGHT),
            "model.bias": sharded(BIAS),
            "model.count": torch.tensor(7),
        },
        "optimizer_states": [{"state": {0: {"exp_avg": sharded(WEIGHT + 1), "step": torch.tensor(3.0)}}}],
        "loops": {"fit_loop": progress},
    }


@pytest.fixture(scope="module")
def two_saves(group: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a best and a last checkpoint, of different steps, each in several files."""
    run = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_writer, "_FILE_BYTES", 64)
        writer = ShardWriter(group)
        (run / "checkpoints" / "shards-3-mine.copy").mkdir(parents=True)
        writer.save(checkpoint(3), run / "checkpoints" / "best.ckpt")
        writer.save(checkpoint(4), run / "checkpoints" / "last.ckpt")
        writer.save(checkpoint(5, factor=2), run / "checkpoints" / "last.ckpt")
        writer.wait()
    return run


@pytest.fixture
def run(two_saves: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(two_saves, tmp_path / "run"))


def folder_of(run: Path, role: str) -> Path:
    path = run / "checkpoints" / f"{role}.ckpt"
    return path.with_name(read_checkpoint(path)["shards"]["folder"])


def test_comes_back_whole_without_any_process_group(run: Path) -> None:
    loaded = CheckpointFile().load_checkpoint(run / "checkpoints" / "last.ckpt")
    assert loaded["state_dict"].keys() == {"model.weight", "model.bias", "model.count"}
    assert torch.equal(loaded["state_dict"]["model.weight"], 2 * WEIGHT)
    assert torch.equal(loaded["state_dict"]["model.bias"], 2 * BIAS)
    assert torch.equal(loaded["optimizer_states"][0]["state"][0]["exp_avg"], 2 * (WEIGHT + 1))
    assert torch.equal(read_weights(run / "checkpoints" / "best.ckpt")["model.weight"], WEIGHT)
    assert find_newest_checkpoint(run).path == run / "checkpoints" / "last.ckpt"


def test_shards_that_no_checkpoint_names_are_gone(run: Path) -> None:
    names = {path.name for path in (run / "checkpoints").iterdir() if path.is_dir()}
    assert names == {folder_of(run, "best").name, folder_of(run, "last").name, "shards-3-mine.copy"}


def first(folder: Path) -> Path:
    return min(folder.glob("*.safetensors"))


def cut(folder: Path, _: Path) -> None:
    first(folder).write_bytes(first(folder).read_bytes()[:-5])


def flip(folder: Path, _: Path) -> None:
    data = bytearray(first(folder).read_bytes())
    data[-1] ^= 1
    first(folder).write_bytes(data)


def link(folder: Path, other: Path) -> None:
    first(folder).unlink()
    first_of_other = min(other.glob("*.safetensors"))
    (folder / first_of_other.name).symlink_to(first_of_other)


DAMAGE: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "missing": (lambda folder, _: first(folder).unlink(), "a shard that is missing"),
    "cut": (cut, "a shard that is damaged, or of another save"),
    "flipped": (flip, "a shard that is damaged, or of another save"),
    "of another save": (
        lambda a, b: shutil.copy(first(b), first(a)),
        "a shard that is damaged, or of another save",
    ),
    "a link": (link, "a shard that is a link"),
    "one too many": (
        lambda a, _: shutil.copy(first(a), a / "more.safetensors"),
        "a shard that is not of its save",
    ),
    "no manifest": (lambda folder, _: (folder / "manifest.json").unlink(), "a manifest that is missing"),
    "another manifest": (
        lambda a, b: shutil.copy(b / "manifest.json", a / "manifest.json"),
        "a manifest that is damaged, or of another save",
    ),
    "no folder": (lambda folder, _: shutil.rmtree(folder), "a manifest that is missing"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_one_line_names_what_is_damaged(run: Path, how: str) -> None:
    (damage, says), path = DAMAGE[how], run / "checkpoints" / "last.ckpt"
    folder = folder_of(run, "last")
    damage(folder, folder_of(run, "best"))
    with pytest.raises(AssayError) as caught:
        read_weights(path)
    message = caught.value.message
    assert message.startswith(f"{path} has {says}"), message
    assert folder.name in message
    assert "\n" not in message
    newest = find_newest_checkpoint(run)  # the other one is still good
    assert newest.path == run / "checkpoints" / "best.ckpt"
    assert newest.refused == [(path, message.removeprefix(f"{path} "))]


def rewrite(run: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Whoever can write a checkpoint can write its sum, too."""
    path = run / "checkpoints" / "last.ckpt"
    content = read_checkpoint(path)
    change(content)
    write(content, path)
    return path


def seal(run: Path, files: Any) -> Path:
    """Whoever can write shards can write a manifest that fits them."""
    text = seal_json(json.dumps({"files": files}, indent=2))
    (folder_of(run, "last") / "manifest.json").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return rewrite(run, lambda content: content["shards"].update(manifest_sha256=digest))


def pickled() -> bytes:
    return pickle.dumps(Call(exec, CODE))


def hostile_shard(run: Path) -> Path:
    path, data = first(folder_of(run, "last")), pickled()
    path.write_bytes(data)
    return seal(run, {path.name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}})


def hostile_metadata(run: Path) -> Path:
    """As torch reads it by default: a pickle beside the shards; here in the place of the manifest, too."""
    folder = folder_of(run, "last")
    for name in (".metadata", "manifest.json"):
        (folder / name).write_bytes(pickled())
    digest = hashlib.sha256(pickled()).hexdigest()
    return rewrite(run, lambda content: content["shards"].update(manifest_sha256=digest))


def place(name: str) -> Callable[[Path], Path]:
    return lambda run: rewrite(run, lambda content: content["shards"].update(folder=name))


def part(**changes: Any) -> Callable[[Path], Path]:
    return lambda run: rewrite(
        run, lambda content: content["state_dict"]["model.weight"]["sharded_tensor"].update(changes)
    )


HOSTILE: dict[str, Callable[[Path], Path]] = {
    "a pickle as a shard": hostile_shard,
    "a pickle as metadata": hostile_metadata,
    "a folder outside": place("../../shards-5-0123456789ab"),
    "an absolute folder": place("/etc"),
    "a file outside": lambda run: seal(run, {"../best.ckpt": {"bytes": 1, "sha256": ""}}),
    "a manifest of a list": lambda run: seal(run, ["shard"]),
    "shards of a list": lambda run: rewrite(run, lambda content: content.update(shards=["folder"])),
    "a dtype of text": part(dtype="os.system"),
    "a shape of text": part(shape="os.system"),
    "another name": part(name="model.nothing"),
    "another shape": part(shape=[3, 4]),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_nothing_is_run(run: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.chdir(run.parent)
    path = HOSTILE[how](run)
    with pytest.raises(AssayError) as caught:
        read_weights(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message
    find_newest_checkpoint(run)
    assert not list(run.parent.rglob(f"*{MARKER}*"))


def test_the_pickle_does_run_where_it_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickled())  # noqa: S301 - which is the point
    assert (tmp_path / MARKER).exists()


@pytest.mark.parametrize("what", ["save", "open_atomic"])
def test_a_full_disk_leaves_what_was_there(
    group: Any, run: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shard_writer if what == "save" else checkpoint_file, what, full)
    writer = ShardWriter(group)
    writer.save(checkpoint(6), run / "checkpoints" / "last.ckpt")
    with pytest.raises(
        AssayError, match=r"last\.ckpt could not be written: No space left on device on .+ \(rank 0\)"
    ):
        writer.wait()
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
