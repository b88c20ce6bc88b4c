"""Handlers for the signals that stop a run: whose they are, and that they are given back."""

from __future__ import annotations

import signal
import threading

from assay.process.stop_signals import STOP_SIGNALS, Stopped, handled_by, handlers_kept


def test_signals_are_handled_in_the_block_alone() -> None:
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    received: list[int] = []
    with handled_by(lambda number, _: received.append(number)) as handled:
        for number in STOP_SIGNALS:
            signal.raise_signal(number)
    assert received == handled == list(STOP_SIGNALS)
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_handlers_are_given_back_whoever_has_set_others() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with handlers_kept((signal.SIGTERM,)):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    received: list[int] = []
    try:
        with handled_by(lambda number, _: received.append(number)) as handled:
            signal.raise_signal(signal.SIGHUP)
        assert signal.SIGHUP not in handled
        assert not received
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_off_the_main_thread_signals_are_left_alone() -> None:
    seen: list[object] = []

    def watch() -> None:
        with handled_by(signal.SIG_IGN) as handled:
            seen.extend((handled, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert seen == [[], signal.default_int_handler]


def test_a_signal_treated_as_ctrl_c() -> None:
    error = Stopped("SIGTERM")
    assert isinstance(error, KeyboardInterrupt)
    assert (error.name, str(error)) == ("SIGTERM", "SIGTERM")
