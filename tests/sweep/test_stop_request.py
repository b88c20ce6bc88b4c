"""Signals that stop a sweep: what they leave noted, and which are left alone."""

from __future__ import annotations

import signal
import socket
import threading

import pytest

from assay.sweep.stop_request import StopRequest
from assay.sweep.worker.check_process import CheckProcess


@pytest.mark.parametrize(
    ("sent", "name", "at_once", "code"),
    [
        ((), "", False, 0),
        (("SIGINT",), "SIGINT", False, 130),
        (("SIGTERM", "SIGTERM"), "SIGTERM", False, 143),
        (("SIGHUP", "SIGTERM"), "SIGHUP", False, 129),  # as a system that shuts down sends them
        (("SIGINT", "SIGINT"), "SIGINT", True, 130),
        (("SIGTERM", "SIGINT"), "SIGTERM", True, 143),
    ],
)
def test_signals_are_noted_and_nothing_else_happens(
    sent: tuple[str, ...], name: str, at_once: bool, code: int
) -> None:
    stop = StopRequest()
    with stop.watching():
        for one in sent:
            signal.raise_signal(signal.Signals[one])
    assert (stop.name, stop.at_once, stop.exit_code) == (name, at_once, code)


def test_handlers_are_given_back() -> None:
    with StopRequest().watching():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = StopRequest()
        with stop.watching():
            signal.raise_signal(signal.SIGHUP)
        assert stop.name == ""
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_off_the_main_thread_signals_are_left_alone() -> None:
    stop = StopRequest()
    entered = []

    def watch() -> None:
        with stop.watching():
            entered.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert entered == [signal.default_int_handler]


class _Raised:
    """Is told to stop where Python ignores what is raised: while an object is taken down."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_a_stop_before_the_jobs_is_not_lost_where_exceptions_are() -> None:
    stop = StopRequest()
    with stop.preparing():
        stop.look()
        one = _Raised()
        del one
        with pytest.raises(KeyboardInterrupt):
            stop.look()
        with pytest.raises(KeyboardInterrupt):  # pressed again: at once
            signal.raise_signal(signal.SIGINT)
        with stop.watching():
            assert stop.name == "SIGINT"
        signal.raise_signal(signal.SIGINT)  # all is over: nothing to interrupt


def test_a_stop_ends_the_wait_for_an_answer_of_the_checker() -> None:
    ours, theirs = socket.socketpair()
    stop = StopRequest()

    def interrupt() -> None:
        theirs.recv(1)
        signal.raise_signal(signal.SIGINT)

    process = CheckProcess(lambda: ours, stop.look)
    with theirs, stop.preparing():
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            process.gpus()
    assert ours.fileno() == -1, "what it answers later is not taken for the answer to another question"
