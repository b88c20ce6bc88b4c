"""Signals that stop a sweep: what they leave noted."""

from __future__ import annotations

import signal
import socket
import threading

import pytest

from assay.sweep.scheduler import StopRequest
from assay.sweep.worker.check_process import CheckProcess


@pytest.mark.parametrize(
    ("sent", "name", "at_once", "code"),
    [
        ((), "", False, 0),
        (("SIGINT",), "SIGINT", False, 130),
        (("SIGTERM", "SIGTERM"), "SIGTERM", False, 143),
        (("SIGUSR1",), "SIGUSR1", False, 143),  # as a cluster warns
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
