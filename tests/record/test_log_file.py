"""Everything said is in the file, once, without secrets; and afterwards logging is as it was."""

import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.record.run_directory import log_file


@pytest.fixture
def bare_root() -> Iterator[logging.Logger]:
    """A root logger as a fresh process has it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers, root.level = [], logging.WARNING
    root.manager._clear_cache()  # type: ignore[attr-defined]  # what setLevel does, without its check
    yield root
    root.handlers, root.level = handlers, level
    root.manager._clear_cache()  # type: ignore[attr-defined]  # as above


@pytest.fixture
def own_loggers() -> Iterator[None]:
    """Loggers made in a test are gone after it."""
    known = set(logging.Logger.manager.loggerDict)
    yield
    for name in set(logging.Logger.manager.loggerDict) - known:
        del logging.Logger.manager.loggerDict[name]


pytestmark = pytest.mark.usefixtures("own_loggers")


def test_time_level_name_and_message(tmp_path: Path, bare_root: logging.Logger) -> None:
    with log_file(tmp_path / "log.txt"):
        logging.getLogger("some.where").info("step %d: ü", 3)
        logging.getLogger("some.where").debug("not asked for")
    text = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    some\.where: step 3: ü\n", text)


def test_a_logger_that_does_not_propagate_is_heard_once_and_one_that_does_too(
    tmp_path: Path, bare_root: logging.Logger
) -> None:
    alone = logging.getLogger("alone")
    alone.propagate = False
    alone.setLevel(logging.INFO)
    with log_file(tmp_path / "log.txt"):
        logging.getLogger("alone.child").info("first")
        logging.getLogger("other").info("second")
        logging.getLogger("lightning.pytorch").warning("third")
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert [line.split()[-1] for line in lines] == ["first", "second", "third"]
    assert alone.handlers == []


def test_warnings_are_in_the_file_and_still_on_the_terminal(
    tmp_path: Path,
    bare_root: logging.Logger,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bare_root, "handlers", [])  # pytest adds its own after the fixtures
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        show = warnings.showwarning
        with log_file(tmp_path / "log.txt"):
            warnings.warn("mind the gap", stacklevel=1)
            logging.getLogger("assay.notes").warning("mind the step")
        assert warnings.showwarning is show
    text = (tmp_path / "log.txt").read_text()
    assert text.count("UserWarning: mind the gap") == 1
    shown = capsys.readouterr().err
    assert shown.count("UserWarning: mind the gap") == shown.count("mind the step") == 1
    assert text.count("mind the step") == 1


@pytest.mark.parametrize("capturing", [True, False])
def test_everything_is_put_back_even_after_an_exception(
    tmp_path: Path, bare_root: logging.Logger, capturing: bool
) -> None:
    show = warnings.showwarning
    logging.captureWarnings(capturing)
    captured = warnings.showwarning
    before = (bare_root.level, list(bare_root.handlers), list(logging.getLogger("py.warnings").handlers))

    def fail() -> None:
        with log_file(tmp_path / "log.txt"):
            raise KeyError("a")

    with pytest.raises(KeyError):
        fail()
    assert warnings.showwarning is captured
    assert (
        bare_root.level,
        list(bare_root.handlers),
        list(logging.getLogger("py.warnings").handlers),
    ) == before
    logging.captureWarnings(False)
    assert warnings.showwarning is show
    (tmp_path / "log.txt").unlink()  # on Windows an open file could not be removed


def test_secrets_are_struck_out_of_messages_arguments_and_tracebacks(
    tmp_path: Path, bare_root: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "tok-12345")
    with log_file(tmp_path / "log.txt"):
        logging.getLogger("a").info("with %s and https://me:pw@example.org", {"token": "tok-12345"})
        try:
            raise ValueError("tok-12345 was refused")
        except ValueError:
            logging.getLogger("a").exception("failed")
    text = (tmp_path / "log.txt").read_text()
    assert "tok-12345" not in text
    assert "pw@" not in text
    assert "ValueError: *** was refused" in text


def test_what_is_no_utf8_does_not_stop_the_log(
    tmp_path: Path, bare_root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    with log_file(tmp_path / "log.txt"):
        logging.getLogger("a").info("file \udce9.png")
    assert r"file \udce9.png" in (tmp_path / "log.txt").read_text()
    assert capsys.readouterr().err == ""
