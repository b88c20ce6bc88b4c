"""Jobs are checked in another process, and its errors are ours."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from assay.errors import AssayError, ConfigError
from assay.sweep.checker import Checker, CheckerHere

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeJobSpec

    from assay.sweep.worker.fork_server import ForkServer

PLAIN = "callbacks=[last_checkpoint]"


@pytest.fixture
def checker(fork_server: ForkServer) -> Iterator[Checker]:
    made = Checker(fork_server)
    yield made
    made.close()


def test_both_say_the_same_of_a_job(checker: Checker, make_job_spec: MakeJobSpec) -> None:
    config = make_job_spec(PLAIN).config
    said = checker.check(config)
    assert said == CheckerHere().check(config)
    assert "val/loss" in said.scores
    assert (said.data_read, said.devices) == (False, 1)
    assert said.spec["num_classes"] == 10


def test_an_error_crosses_over_with_its_key_and_its_file(
    checker: Checker, make_job_spec: MakeJobSpec
) -> None:
    config = make_job_spec(PLAIN, "loss.label_smoothing=2.0").config
    found = []
    for one in (checker, CheckerHere()):
        with pytest.raises(ConfigError) as caught:
            one.check(config, ["loss.label_smoothing=2.0"])
        found.append(caught.value)
    far, near = found
    assert str(far) == str(near)
    assert (far.key, far.file, far.exit_code) == (near.key, near.file, near.exit_code)
    assert checker.check(make_job_spec(PLAIN).config).devices == 1, "it goes on"


@pytest.mark.skipif(sys.platform != "linux", reason="counts the fork server's children")
def test_a_checker_that_dies_says_so_and_there_is_another_one(
    checker: Checker, fork_server: ForkServer, make_job_spec: MakeJobSpec
) -> None:
    before = {child.pid for child in psutil.Process(fork_server.pid).children()}
    checker.check(make_job_spec(PLAIN).config)
    for child in psutil.Process(fork_server.pid).children():
        if child.pid not in before:
            os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(AssayError, match="the process that checked this job died"):
        checker.check(make_job_spec(PLAIN).config)
    assert checker.check(make_job_spec(PLAIN).config).devices == 1


def test_closing_twice_does_nothing(checker: Checker, make_job_spec: MakeJobSpec) -> None:
    checker.check(make_job_spec(PLAIN).config)
    checker.close()
    checker.close()
