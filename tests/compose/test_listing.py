from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from assay.compose import listing
from assay.compose.listing import list_options
from assay.errors import ConfigError
from assay.terminal import Console

if TYPE_CHECKING:
    from pathlib import Path


def test_in_a_pipe_each_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    listing.show(listing.listed("", None))
    lines = capsys.readouterr().out.splitlines()
    options = list_options()
    assert len([line for line in lines if line.startswith("  ")]) == len(options)
    assert all(line == line.rstrip() for line in lines)
    for option in options:
        assert any(line.split() == [option.name, *option.description.split()] for line in lines), option


def test_square_brackets_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    listing.show(listing.listed("logger", None))
    assert "assay[wandb]" in capsys.readouterr().out


def test_in_a_terminal_long_descriptions_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=60, highlight=False, no_color=True)
    monkeypatch.setattr(listing, "Console", lambda **_: terminal)
    listing.show(listing.listed("metrics", None))
    lines = [
        line.rstrip() for line in screen.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    ]
    assert lines[0] == "metrics"
    assert max(map(len, lines)) <= 60
    starts = [len(line) - len(line.lstrip()) for line in lines[1:]]
    width = max(len(option.name) for option in list_options("metrics"))
    assert set(starts) == {2, 2 + width + 2}, "names, and what is said of them"


def test_own_folder_is_listed_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gan").mkdir()
    (tmp_path / "gan" / "big.yaml").write_text("# A big one.\nx: 1\n", encoding="utf-8")
    listing.show(listing.listed("gan", tmp_path))
    assert capsys.readouterr().out.split("\n")[:2] == ["gan", "  big  A big one."]


def test_unknown_group() -> None:
    with pytest.raises(ConfigError, match=r"optim: there is no such group; did you mean 'optimizer'\?"):
        listing.show(listing.listed("optim", None))
