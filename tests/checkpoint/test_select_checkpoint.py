"""Which checkpoint a run goes on from; damage is noticed before anything is unpickled."""

import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from assay.checkpoint.checkpoint_file import CheckpointFile, find_newest_checkpoint
from assay.errors import AssayError
from assay.record.run_record import RunRecord
from assay.run.saved_config import read_config

if TYPE_CHECKING:
    from tests.conftest import Train

SEED = 20


def save(run_dir: Path, name: str, step: int, batches: int | None = None) -> Path:
    path = run_dir / "checkpoints" / name
    progress = {"epoch_loop.batch_progress": {"total": {"completed": batches or step}}}
    CheckpointFile().save_checkpoint(
        {"global_step": step, "loops": {"fit_loop": progress}, "state_dict": {"w": torch.zeros(3)}}, path
    )
    return path


def test_the_one_with_most_done_is_taken(tmp_path: Path) -> None:
    save(tmp_path, "last.ckpt", 2)
    best = save(tmp_path, "best.ckpt", 3)
    save(tmp_path, "last.ckpt", 1)  # newer by its time
    save(tmp_path, "more.ckpt", 4).unlink()  # its sum stays, as a removal that is killed leaves it
    found = find_newest_checkpoint(tmp_path)
    assert (found.path, found.step, found.refused) == (best, 3, [])


def test_a_link_is_as_good_as_what_it_names(tmp_path: Path) -> None:
    best = save(tmp_path, "best.ckpt", 3)
    best.with_name("last.ckpt").symlink_to("best.ckpt")
    assert find_newest_checkpoint(tmp_path).path == best.with_name("last.ckpt")
    best.unlink()
    with pytest.raises(AssayError, match=r"used: last\.ckpt does not exist"):
        find_newest_checkpoint(tmp_path)


def test_what_the_record_promises_and_is_gone_is_no_reason_to_begin_anew(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=r"no checkpoint that can be used: last\.ckpt does not exist"):
        find_newest_checkpoint(tmp_path, ["last.ckpt"])
    best = save(tmp_path, "best.ckpt", 1)
    found = find_newest_checkpoint(tmp_path, ["last.ckpt", "best.ckpt", "../../elsewhere.ckpt"])
    assert (found.path, [path.name for path, _ in found.refused]) == (best, ["last.ckpt"])


def test_without_its_sum_none_is_trusted_to_go_on_from(tmp_path: Path) -> None:
    best, last = save(tmp_path, "best.ckpt", 1), save(tmp_path, "last.ckpt", 2)
    last.with_name("last.ckpt.sha256").unlink()
    found = find_newest_checkpoint(tmp_path)
    assert found.path == best
    assert found.refused == [(last, "has no .sha256 file beside it, so it cannot be verified")]


@pytest.mark.parametrize(
    "said",
    [
        {"loops": [1]},
        {"loops": {"fit_loop": None}},
        {"loops": {"fit_loop": {"epoch_loop.batch_progress": {"total": "x"}}}},
        {"loops": {"fit_loop": {"state_dict": 3}}},
        {"global_step": "many"},
        {"global_step": [2]},
    ],
)
def test_one_that_does_not_say_how_far_it_is_is_refused(tmp_path: Path, said: dict[str, Any]) -> None:
    best = save(tmp_path, "best.ckpt", 1)
    CheckpointFile().save_checkpoint({"global_step": 2, **said}, best.with_name("last.ckpt"))
    found = find_newest_checkpoint(tmp_path)
    reason = "has no position of the training: the file was changed"
    assert (found.path, found.refused) == (best, [(best.with_name("last.ckpt"), reason)])


@pytest.fixture(scope="module")
def run_dir(train: "Train") -> Path:
    return train("data=iris", "model=linear", "callbacks=[default]", "trainer.max_epochs=2").run_dir


FILES = ("last.ckpt", "best.ckpt", "last.ckpt.sha256", "best.ckpt.sha256", "record.json", "config.yaml")


def damaged(content: bytes, chance: random.Random) -> bytes:
    """A bit or a byte flipped, the end cut off, or zeros where a block was."""
    at = chance.randrange(len(content))
    changed = bytearray(content)
    kind = chance.randrange(5)
    if kind == 0:
        changed[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        changed[at] ^= chance.randrange(1, 256)
    elif kind == 2:
        del changed[at:]
    elif kind == 3:
        del changed[at]
    else:
        changed[at : at + 512] = bytes(len(changed[at : at + 512]))
    return bytes(changed)


@pytest.mark.parametrize("part", [0, *[pytest.param(part, marks=pytest.mark.long) for part in range(1, 10)]])
def test_every_flip_and_truncation_is_noticed(
    run_dir: Path, tmp_path: Path, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run_dir, copy)
    unpickled: list[str] = []
    load = torch.load

    def watched(file: Any, *args: Any, **kwargs: Any) -> Any:
        unpickled.append(Path(getattr(file, "name", file)).name)
        return load(file, *args, **kwargs)

    monkeypatch.setattr(torch, "load", watched)
    chance = random.Random(SEED + part)
    for _ in range(50):
        [path] = copy.rglob(chance.choice(FILES))
        whole = path.read_bytes()
        changed = damaged(whole, chance)
        if changed == whole:  # zeros where zeros were
            changed = whole[:-1]
        path.write_bytes(changed)
        unpickled.clear()
        assert_noticed(copy, path, unpickled)
        path.write_bytes(whole)
    assert find_newest_checkpoint(copy).refused == []


def assert_noticed(run: Path, path: Path, unpickled: list[str]) -> None:
    if path.name == "record.json":
        with pytest.raises(AssayError, match=r"record\.json") as caught:
            RunRecord.load(run)
        assert "\n" not in caught.value.message
    elif path.name == "config.yaml":
        with pytest.raises(AssayError, match=r"config\.yaml") as caught:
            read_config(run, must_be_whole=True)
        assert "\n" not in caught.value.message
    else:
        name = path.name.removesuffix(".sha256")
        found = find_newest_checkpoint(run)
        assert [(one.name, "\n" in reason) for one, reason in found.refused] == [(name, False)]
        assert found.path is not None
        assert found.path.name == {"last.ckpt": "best.ckpt", "best.ckpt": "last.ckpt"}[name]
        assert unpickled == [found.path.name]
        with pytest.raises(AssayError, match="damaged"):
            CheckpointFile().load_checkpoint(path.with_name(name))
        assert unpickled == [found.path.name]


@pytest.mark.parametrize("names", [("last.ckpt", "best.ckpt"), ("last.ckpt.sha256", "best.ckpt")])
def test_when_all_are_damaged_nothing_begins_anew(
    run_dir: Path, tmp_path: Path, names: tuple[str, str]
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run_dir, copy)
    for name in names:
        path = copy / "checkpoints" / name
        path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(
        AssayError, match=r"no checkpoint that can be used: best\.ckpt .*; last\.ckpt "
    ) as caught:
        find_newest_checkpoint(copy)
    assert "train with the same overrides in another directory" in caught.value.hint
