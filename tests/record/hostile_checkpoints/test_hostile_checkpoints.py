"""A checkpoint is untrusted: whatever it holds, nothing is run, and one line says why it is not taken."""

import hashlib
import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from tests.record.hostile_checkpoints.corpus import (
    CODE,
    GADGETS,
    HYPER,
    MARKER,
    Call,
    Case,
    corpus,
    with_hyper_parameters,
)

import assay
from assay.checkpoint.checkpoint_file import find_newest_checkpoint
from assay.errors import AssayError
from assay.files.checksum import write_sums
from assay.record.run_record import RunRecord
from assay.run.resume import resume

if TYPE_CHECKING:
    from tests.conftest import Train

CASES = corpus()


@pytest.fixture(scope="module")
def run_dir(train: "Train") -> Path:
    return train("data=iris", "model=linear", "callbacks=[default]").run_dir


@pytest.fixture
def run(run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a good run, in a folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text(CODE, encoding="utf-8")
    return Path(shutil.copytree(run_dir, tmp_path / "run"))


def put(run: Path, content: bytes, role: str = "best") -> Path:
    """Whoever writes a checkpoint can write its sum, too."""
    path = run / "checkpoints" / f"{role}.ckpt"
    path.write_bytes(content)
    write_sums(path, [hashlib.sha256(content).hexdigest()])
    return path


def nothing_ran(run: Path) -> bool:
    return not list(run.parent.rglob(f"*{MARKER}*")) and not Path(f"/{MARKER}").exists()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_is_run(run: Path, case: Case) -> None:
    path = put(run, case.make())
    with pytest.raises(AssayError) as caught:
        assay.load(run)
    found = find_newest_checkpoint(run)
    assert nothing_ran(run)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 700
    assert found.refused in ([], [(path, caught.value.message.removeprefix(f"{path} "))])


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if i % 5 == 0 else pytest.mark.long) for i, case in enumerate(CASES)],
    ids=lambda case: case.name,
)
def test_no_run_goes_on_from_it(run: Path, case: Case) -> None:
    content = case.make()
    for role in ("best", "last"):
        put(run, content, role)
    record = RunRecord.load(run)
    record.status = "interrupted"
    record.save(run)
    with pytest.raises(AssayError) as caught:
        resume(run)
    assert nothing_ran(run)
    assert ".ckpt" in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("key", HYPER)
def test_what_else_a_checkpoint_holds_is_not_acted_upon(run: Path, key: str) -> None:
    good = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    put(run, with_hyper_parameters(good["state_dict"], **HYPER[key]))
    loaded = assay.load(run, map_location="cpu").state_dict()
    assert all(torch.equal(good["state_dict"][name], value) for name, value in loaded.items())
    assert nothing_ran(run)


@pytest.mark.parametrize("key", GADGETS)
def test_the_gadgets_do_run_where_pickle_is_trusted(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text(CODE, encoding="utf-8")
    made = pickle.loads(pickle.dumps(Call(*GADGETS[key])))  # noqa: S301 - the point
    for close in ("wait", "close"):
        getattr(made, close, int)()
    assert Path(MARKER).exists()
