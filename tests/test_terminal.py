"""Nothing that others have written commands the terminal."""

import io
import logging
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from assay.cli.app import main
from assay.record.run_directory import log_file
from assay.terminal import Console, escape_markdown, make_printable, print_lines, printable

OSC = "\x1b]0;owned\x07"
CSI = "\x1b[2J\x1b[1A"
C1 = "\x9b2J\x9d0;x\x9c"
BIDI = "\u202egpj.exe\u2066"
HOSTILE = OSC + CSI + C1 + BIDI + "\x08\x7f\r"


def raw(text: str) -> bool:
    """Whether something in it may command a terminal."""
    return any(ord(letter) < 32 and letter not in "\t\n" for letter in text) or any(
        letter in text for letter in "\x7f\x9b\x9d\x9c\u202e\u2066"
    )


@given(st.text())
def test_printable_text_commands_nothing(text: str) -> None:
    assert not raw(printable(text))
    assert printable(printable(text)) == printable(text)


def test_ordinary_text_stays() -> None:
    text = "naïve café, 日本語, 👍\tα ≤ β\n"
    assert printable(text) == text


@pytest.mark.parametrize("width", [60, 200])
def test_whatever_is_printed(width: int) -> None:
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(Text(HOSTILE))
    file = io.StringIO()
    terminal = Console(file=file, width=width, color_system=None)
    terminal.print(table)
    terminal.print(escape(HOSTILE))
    terminal.print(HOSTILE, markup=False)
    terminal.print(Text(HOSTILE), soft_wrap=True)
    assert not raw(file.getvalue())
    assert "\\x1b]0;owned" in file.getvalue()


@given(st.lists(st.text("abcdefgh.=/-", min_size=1, max_size=20), min_size=1), st.integers(40, 120))
def test_in_a_terminal_lines_break_between_words_and_commands_do_not(words: list[str], width: int) -> None:
    def printed(text: str, *, terminal: bool) -> list[str]:
        file = io.StringIO()
        console = Console(file=file, width=width, force_terminal=terminal, color_system=None)
        print_lines(console, [("note", text)])
        return file.getvalue().splitlines()

    text = " ".join(words)
    lines = printed(text, terminal=True)
    assert [word for line in lines for word in line.split()] == ["note", *words]
    assert all(len(line) <= width for line in lines)
    assert all(line.startswith(" " * 7) for line in lines[1:])
    assert printed(text, terminal=False) == [f"note   {text}"]
    command = f"assay train {text}"
    assert printed(command, terminal=True) == [f"note   {command}"]


def test_what_rich_itself_says_to_a_terminal_stays() -> None:
    file = io.StringIO()
    terminal = Console(file=file, force_terminal=True, color_system="truecolor", width=80)
    terminal.print(f"[bold]run[/bold] {escape(OSC)}")
    with Live(Text(CSI), console=terminal, auto_refresh=False) as live:
        live.update(Text("next"), refresh=True)
    printed = file.getvalue()
    assert "\x1b[1mrun\x1b[0m" in printed
    assert "\x1b[?25l" in printed, "Live hides the cursor"
    assert "\x1b]0" not in printed
    assert "\x1b[2J" not in printed


def test_log_file_holds_text(tmp_path: Path) -> None:
    with log_file(tmp_path / "log.txt"):
        logging.getLogger("assay").warning("a class called %s", HOSTILE)
    text = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert "a class called \\x1b]0;owned" in text
    assert not raw(text)


def test_warnings_and_tracebacks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(logging.lastResort, "formatter", None)
    make_printable()
    error = ValueError(HOSTILE)
    sys.excepthook(ValueError, error, None)
    assert logging.lastResort is not None
    logging.lastResort.handle(logging.makeLogRecord({"msg": HOSTILE, "levelno": logging.ERROR}))
    printed = capsys.readouterr().err
    assert printed.count("\\x1b]0;owned") == 2
    assert not raw(printed)


@pytest.mark.parametrize(
    "command",
    [
        ["configs", "model"],
        ["train", "--cfg", "model=evil"],
        ["check", "model=raw"],
        ["check", f"+{HOSTILE}=1"],
    ],
)
def test_configs_of_others_command_nothing(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "conf" / "model"
    folder.mkdir(parents=True)
    (folder / "evil.yaml").write_text(
        '# A model\n_target_: torch.nn.Linear\nevil: "\\e]0;owned\\a\\e[2J\\u202e"\n"\\e[2Jkey": 1\n', "utf-8"
    )
    (folder / "raw.yaml").write_text(f"# A model {OSC}{C1}{BIDI}\n_target_: torch.nn.Linear\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["assay", *command])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(logging.lastResort, "formatter", None)
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr()
    assert printed.out + printed.err
    assert not raw(printed.out + printed.err)


PRINTS = """
import os, signal, sys
from pathlib import Path
from assay.terminal import Console
signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.write(1, b"ready")  # by one call, with nothing left to write
while not Path(sys.argv[1]).exists():
    pass
Console().print("one line")
with Console(stderr=True).status("working"):
    pass
sys.exit(7)
"""


def test_a_terminal_that_is_closed_is_no_error_of_what_is_printed(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    process, terminal = pty.fork()
    if not process:  # pragma: no cover - another process
        arguments = [sys.executable, "-c", PRINTS, str(tmp_path / "closed")]
        os.execve(sys.executable, arguments, {**os.environ, "TERM": "xterm"})  # noqa: S606 - this interpreter
    while b"ready" not in os.read(terminal, 4096):
        pass
    os.close(terminal)
    (tmp_path / "closed").touch()
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 7


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("<script>", "&lt;script&gt;"),
        ("[x](http://y)", r"\[x\](http://y)"),
        ("a\n# b", r"a \# b"),
        ("`code` *bold* $x$", r"\`code\` \*bold\* \$x\$"),
        ("- a-b +c", r"\- a-b +c"),
        ("\x1b[31m", r"\\x1b\[31m"),
    ],
)
def test_text_stays_text_in_markdown(text: str, shown: str) -> None:
    assert escape_markdown(text) == shown
