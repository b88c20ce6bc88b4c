"""A checkpoint and its sum never disagree, whatever call a process dies at; nothing in one is ever run."""

import hashlib
import logging
import os
import pathlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel

from assay.errors import AssayError
from assay.record.checkpoint_file import CheckpointFile, sha256

OLD: dict[str, Any] = {"epoch": 1, "state_dict": {"w": torch.zeros(50)}}
NEW: dict[str, Any] = {"epoch": 2, "state_dict": {"w": torch.ones(50)}}


class PowerCut(BaseException):
    """From here on nothing reaches the disk, not even what would clean up."""


@contextmanager
def power_cut(at: int) -> Iterator[list[str]]:
    """Let the first `at` system calls through that change the disk, and no other."""
    calls: list[str] = []

    def guarded(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if len(calls) >= at:
                raise PowerCut
            calls.append(name)
            return call(*args, **kwargs)

        return wrapped

    opened = pathlib.Path.open

    def open_guarded(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        return (
            guarded("open", opened)(self, mode, *args, **kwargs)
            if mode != "r" and "r" not in mode
            else opened(self, mode, *args, **kwargs)
        )

    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "replace", "unlink"):
            patch.setattr(os, name, guarded(name, getattr(os, name)))
        patch.setattr(pathlib.Path, "open", open_guarded)
        yield calls


def save(checkpoint: dict[str, Any], path: Path) -> None:
    CheckpointFile().save_checkpoint(checkpoint, path)


def load(path: Path) -> dict[str, Any]:
    return CheckpointFile().load_checkpoint(path)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(
        one["epoch"] == other["epoch"] and torch.equal(one["state_dict"]["w"], other["state_dict"]["w"])
    )


def calls_of_a_save(folder: Path) -> list[str]:
    folder.mkdir()
    save(OLD, folder / "last.ckpt")
    with power_cut(at=1000) as calls:
        save(NEW, folder / "last.ckpt")
    return calls


def test_saves_loads_and_removes(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "epoch=1 [a].ckpt"
    save(OLD, path)
    assert same(load(path), OLD)
    assert names(path.parent) == {path.name, f"{path.name}.sha256"}
    assert sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    CheckpointFile().remove_checkpoint(path)
    CheckpointFile().remove_checkpoint(path)
    assert names(path.parent) == set()
    assert sha256(path) == ""


def test_the_sum_is_written_as_sha256sum_writes_it(tmp_path: Path) -> None:
    save(OLD, tmp_path / "last.ckpt")
    save(NEW, tmp_path / "last.ckpt")
    digest = hashlib.sha256((tmp_path / "last.ckpt").read_bytes()).hexdigest()
    assert (tmp_path / "last.ckpt.sha256").read_text() == f"{digest}  last.ckpt\n"


def test_a_power_cut_at_any_call_leaves_the_old_or_the_new_one(tmp_path: Path) -> None:
    calls = calls_of_a_save(tmp_path / "count")
    assert calls == [
        "open",
        "open",
        "fsync",
        "replace",
        "fsync",
        "fsync",
        "replace",
        "fsync",
        "open",
        "fsync",
        "replace",
        "fsync",
    ]
    seen = []
    for at in range(len(calls)):
        path = tmp_path / str(at) / "last.ckpt"
        path.parent.mkdir()
        save(OLD, path)
        with pytest.raises(PowerCut), power_cut(at):
            save(NEW, path)
        loaded = load(path)
        seen.append(loaded["epoch"])
        assert same(loaded, NEW if loaded["epoch"] == 2 else OLD)
        third = {**NEW, "epoch": 3}
        save(third, path)
        assert same(load(path), third)
        assert {name for name in names(path.parent) if not name.startswith(".last.ckpt.sha256.")} == {
            "last.ckpt",
            "last.ckpt.sha256",
        }
    assert seen == [1] * 7 + [2] * 5


def test_two_power_cuts_in_a_row(tmp_path: Path) -> None:
    number = len(calls_of_a_save(tmp_path / "count"))
    for first in range(number):
        for second in range(number):
            path = tmp_path / f"{first}-{second}" / "last.ckpt"
            path.parent.mkdir()
            save(OLD, path)
            for at, epoch in ((first, 2), (second, 3)):
                with pytest.raises(PowerCut), power_cut(at):
                    save({**NEW, "epoch": epoch}, path)
                assert load(path)["epoch"] in (1, 2, epoch)


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_an_error_at_any_call_leaves_a_checkpoint_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    call = getattr(os, name)
    for at in range(1, calls_of_a_save(tmp_path / "count").count(name) + 1):
        path = tmp_path / f"{name}{at}" / "last.ckpt"
        path.parent.mkdir()
        save(OLD, path)
        left = iter(range(1, 100))

        def failing(*args: Any, at: int = at, left: Iterator[int] = left) -> Any:
            if next(left) == at:
                raise OSError(28, "No space left on device")
            return call(*args)

        monkeypatch.setattr(os, name, failing)
        with pytest.raises(OSError, match="No space"):
            save(NEW, path)
        monkeypatch.setattr(os, name, call)
        assert load(path)["epoch"] in (1, 2)
        assert names(path.parent) == {"last.ckpt", "last.ckpt.sha256"}


def test_an_error_while_the_content_is_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.ckpt"
    save(OLD, path)

    def full(content: Any, file: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        save(NEW, path)
    assert same(load(path), OLD)
    assert names(tmp_path) == {"last.ckpt", "last.ckpt.sha256"}


def test_what_came_without_a_sum_is_not_lost_either(tmp_path: Path) -> None:
    number = len(calls_of_a_save(tmp_path / "count"))
    for at in range(number):
        path = tmp_path / str(at) / "last.ckpt"
        path.parent.mkdir()
        torch.save(OLD, path)
        with pytest.raises(PowerCut), power_cut(at):
            save(NEW, path)
        assert load(path)["epoch"] in (1, 2)


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-1], lambda b: b[: len(b) // 2], lambda _: b"", lambda b: b[:100] + b"\xff" + b[101:]],
)
def test_damage_is_noticed_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "last.ckpt"
    save(OLD, path)
    path.write_bytes(damage(path.read_bytes()))

    def read(*args: Any, **kwargs: Any) -> None:
        pytest.fail("a damaged checkpoint was read")

    monkeypatch.setattr(torch, "load", read)
    with pytest.raises(AssayError, match=r"last\.ckpt is damaged"):
        load(path)


@pytest.mark.parametrize("sums", ["", "\n", "rubbish", "\xff"])
def test_a_sum_that_is_none_is_damage_too(tmp_path: Path, sums: str) -> None:
    path = tmp_path / "last.ckpt"
    save(OLD, path)
    (tmp_path / "last.ckpt.sha256").write_text(sums, encoding="latin-1")
    with pytest.raises(AssayError, match="damaged"):
        load(path)


def test_a_reader_between_a_writers_steps_sees_one_or_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.ckpt"
    save(OLD, path)
    opened = pathlib.Path.open

    def save_first(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if self == path:
            monkeypatch.setattr(pathlib.Path, "open", opened)
            save(NEW, path)  # after the reader has looked at the sums
        return opened(self, mode, *args, **kwargs)

    monkeypatch.setattr(pathlib.Path, "open", save_first)
    assert same(load(path), NEW)


def test_without_a_sum_it_loads_and_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch.save(OLD, tmp_path / "foreign.ckpt")
    with caplog.at_level(logging.WARNING):
        assert same(load(tmp_path / "foreign.ckpt"), OLD)
    assert "foreign.ckpt has no SHA-256 beside it" in caplog.text


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("evil",)


def test_nothing_in_a_checkpoint_is_run_whatever_the_caller_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Evil()}, tmp_path / "evil.ckpt")
    for weights_only in (None, True, False):
        with pytest.raises(AssayError, match="cannot be read as tensors and plain containers"):
            CheckpointFile().load_checkpoint(tmp_path / "evil.ckpt", weights_only=weights_only)
    assert names(tmp_path) == {"evil.ckpt"}


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04", b"\x80\x02."])
def test_what_is_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.ckpt").write_bytes(content)
    with pytest.raises(AssayError, match="cannot be read"):
        load(tmp_path / "a.ckpt")
    torch.save([1], tmp_path / "list.ckpt")
    with pytest.raises(AssayError, match="holds a list"):
        load(tmp_path / "list.ckpt")
    with pytest.raises(AssayError, match="there is no checkpoint"):
        load(tmp_path / "none.ckpt")


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    save(OLD, tmp_path / "last.ckpt")
    with pytest.raises(TypeError, match=r"callbacks\.mine is a"):
        save({"callbacks": {"mine": Evil()}}, tmp_path / "last.ckpt")
    assert same(load(tmp_path / "last.ckpt"), OLD)


def test_map_location_is_honoured(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    save(OLD, path)
    loaded = CheckpointFile().load_checkpoint(path, map_location="meta")
    assert loaded["state_dict"]["w"].device.type == "meta"
    assert load(path)["state_dict"]["w"].device.type == "cpu"


def test_a_link_to_the_best_one_is_as_good_as_the_best_one(tmp_path: Path) -> None:
    best, last = tmp_path / "best.ckpt", tmp_path / "last.ckpt"
    save(OLD, last)
    save(NEW, best)
    last.unlink()
    last.symlink_to("best.ckpt")
    assert same(load(last), NEW), "the sum beside the link is of what was there before"
    assert sha256(last) == sha256(best)
    save(OLD, last)
    assert same(load(last), OLD)
    assert same(load(best), NEW)


def test_only_local_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not at s3://"):
        CheckpointFile().save_checkpoint(OLD, "s3://bucket/last.ckpt")
    with pytest.raises(ValueError, match="not at s3://"):
        CheckpointFile().load_checkpoint("s3://bucket/last.ckpt")
    with pytest.raises(TypeError, match="storage_options"):
        CheckpointFile().save_checkpoint(OLD, tmp_path / "a", storage_options={})


# A run that goes on in its own directory finds its own checkpoints there.
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty:UserWarning")
def test_lightning_resumes_from_it_to_the_same_weights(tmp_path: Path) -> None:
    def fit(folder: str, epochs: int, ckpt_path: Path | None = None) -> L.Trainer:
        callback = ModelCheckpoint(
            tmp_path / folder, filename="best", save_last="link", save_top_k=1, monitor="epoch", mode="max"
        )
        L.seed_everything(1, verbose=False)
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            limit_train_batches=3,
            limit_val_batches=0,
            callbacks=[callback],
            plugins=[CheckpointFile()],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        trainer.fit(BoringModel(), ckpt_path=str(ckpt_path) if ckpt_path else None)
        return trainer

    whole, _ = fit("whole", 3), fit("part", 2)
    resumed = fit("part", 3, tmp_path / "part" / "last.ckpt")
    assert resumed.global_step == whole.global_step == 9
    for one, other in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):  # type: ignore[union-attr]  # set by fit
        assert torch.equal(one, other)
    assert (tmp_path / "part" / "last.ckpt").is_symlink()
    assert load(tmp_path / "part" / "last.ckpt")["epoch"] == 2
