"""No link in a run or sweep directory leads what is written out of it."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest

from assay.errors import AssayError
from assay.files.symlinks import check_links, open_append, read_tail
from assay.logger.run_csv import RunCSV
from assay.record.run_directory import create_run_directory, log_file
from assay_analysis.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXT = "precious\n"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere" / "victim"
    path.parent.mkdir()
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def soft(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def dangling(path: Path, victim: Path) -> None:
    path.symlink_to(victim.with_name("new"))


def hard(path: Path, victim: Path) -> None:
    os.link(victim, path)


def pipe(path: Path, victim: Path) -> None:
    del victim
    os.mkfifo(path)


def logged(run_dir: Path) -> None:
    with log_file(run_dir / "log.txt"):
        logging.getLogger("assay.test").warning("evil text")


def journal(run_dir: Path) -> None:
    Journal(run_dir / "journal.jsonl").note_command(["evil text"])


def metrics(run_dir: Path) -> None:
    logger = RunCSV(run_dir / "metrics.csv")
    logger._columns = ["epoch", "step", "loss"]  # as after an earlier row
    logger.log_metrics({"loss": 1.0}, step=1)


WRITERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "log": ("log.txt", logged),
    "journal": ("journal.jsonl", journal),
    "metrics": ("metrics.csv", metrics),
    "output": ("logs.txt", lambda run_dir: os.close(open_append(run_dir / "logs.txt"))),
}


@pytest.mark.parametrize("make", [soft, dangling, hard, pipe])
@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_is_added_through_a_link(
    writer: str, make: Callable[[Path, Path], None], run_dir: Path, victim: Path
) -> None:
    name, write = WRITERS[writer]
    make(run_dir / name, victim)
    with pytest.raises(
        (AssayError, ValueError), match=r"could change files elsewhere|is not the log of a run"
    ):
        write(run_dir)
    assert victim.read_text(encoding="utf-8") == TEXT
    assert [path.name for path in victim.parent.iterdir()] == ["victim"]


@pytest.mark.parametrize(
    ("name", "make", "is_fine"),
    [
        ("log.txt", soft, False),
        ("checkpoints", soft, False),
        ("checkpoints/best.ckpt", dangling, False),
        ("deep/er/config.yaml", soft, False),
        ("metrics.csv", hard, False),
        ("record.json", pipe, False),
        ("config.yaml", hard, True),  # replaced whole, never written through
    ],
)
def test_a_directory_with_a_way_out_is_refused(
    name: str, make: Callable[[Path, Path], None], run_dir: Path, victim: Path, *, is_fine: bool
) -> None:
    (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
    make(run_dir / name, victim)
    if is_fine:
        check_links(run_dir)
        return
    with pytest.raises(AssayError) as caught:
        check_links(run_dir)
    assert str(run_dir / name) in caught.value.message
    assert f"rm {run_dir / name}" in caught.value.hint
    with pytest.raises(AssayError):
        create_run_directory(run_dir)
    with pytest.raises(AssayError):
        Journal.create(run_dir)
    assert victim.read_text(encoding="utf-8") == TEXT


def test_links_within_are_fine(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / "checkpoints").mkdir()
    (run_dir / "checkpoints/best.ckpt").touch()
    (run_dir / "checkpoints/last.ckpt").symlink_to("best.ckpt")
    (run_dir / "latest").symlink_to(run_dir / "checkpoints")
    check_links(run_dir)
    check_links(tmp_path / "nowhere")
    (tmp_path / "link").symlink_to(run_dir)
    check_links(tmp_path / "link")


def test_the_end_of_a_log_is_read_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(b"0123456789")
    assert read_tail(tmp_path / "log.txt", 4) == b"6789"
    assert read_tail(tmp_path / "log.txt", 40) == b"0123456789"
    (tmp_path / "link").symlink_to(tmp_path / "log.txt")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "none"):
        with pytest.raises(OSError):  # noqa: PT011 - each is refused in its own words
            read_tail(tmp_path / name, 4)
