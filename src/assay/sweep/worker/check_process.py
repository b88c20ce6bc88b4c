"""The process in which the jobs of a sweep are proved, as that may compute and break; both ends of it."""

from __future__ import annotations

import json
import os
import select
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from assay.check.report import Proof, Report
from assay.config.serialize import from_text, to_text
from assay.errors import AssayError, ConfigError, one_line_of

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from io import BufferedRWPair

    from assay.check.prove import Prover
    from assay.compose.job_composer import Job

_TICK: Final = 0.25
"""Seconds between two looks while an answer is waited for."""
_OF_USE: Final = ("spec", "data_read", "scores", "directions", "devices", "warnings")
"""What of a report a sweep needs."""


@final
class CheckProcess:
    """The driver's end: asks one process about every job, so that it does once what they have in common."""

    def __init__(self, connect: Callable[[], socket.socket], look: Callable[[], None] = lambda: None) -> None:
        self._connect, self._look = connect, look
        self._socket: socket.socket | None = None

    def prove(self, job: Job) -> Proof:
        """Refuse a job that cannot run; what was made to find that out stays in the process."""
        asked = {"prove": to_text(job.config), "overrides": list(job.overrides), "cwd": str(Path.cwd())}
        return Proof(Report(job.overrides, str(job.config["name"]), **self._ask(asked)))

    def gpus(self) -> int:
        """How many GPUs there are."""
        return int(self._ask({"gpus": True})["gpus"])

    def close(self) -> None:
        """End the process."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        if self._socket is None:
            self._socket = self._connect()
        line = b""
        try:
            self._socket.sendall(json.dumps(question).encode() + b"\n")
            while not select.select([self._socket], [], [], _TICK)[0]:
                self._look()
            with self._socket.makefile("rb") as stream:
                line = stream.readline()
        except ConnectionError:
            pass
        except BaseException:
            self.close()  # its answer would be taken for that of the next question
            raise
        answer: dict[str, Any] = json.loads(line) if line.strip() else {}
        if not answer:  # or the fork server has told how it ended, after an empty line
            self.close()
            raise AssayError(
                "the process that checked this job died", hint="assay check with the same overrides shows how"
            )
        if "error" in answer:
            raise _as_error(**answer["error"])
        return answer


def serve(driver: BufferedRWPair) -> None:
    """The other end: answer questions until the driver closes its own."""
    from assay.check.prove import Prover

    prover = Prover()
    for line in driver:
        try:
            answer = _answer(json.loads(line), prover)
        except AssayError as error:
            answer = {"error": _as_data(error)}
        except Exception as error:
            answer = {"error": _as_data(AssayError(one_line_of(error)))}
        driver.write(json.dumps(answer).encode() + b"\n")
        driver.flush()


def _answer(question: dict[str, Any], prover: Prover) -> dict[str, Any]:
    if "gpus" in question:
        import torch

        return {"gpus": torch.cuda.device_count()}
    os.chdir(question["cwd"])
    report = prover.prove(from_text(question["prove"]), question["overrides"]).report
    return {name: getattr(report, name) for name in _OF_USE}


def _as_data(error: AssayError) -> dict[str, Any]:
    where = (error.key, error.file) if isinstance(error, ConfigError) else None
    return {"message": error.message, "hint": error.hint, "exit_code": error.exit_code, "where": where}


def _as_error(message: str, hint: str, exit_code: int, where: tuple[str, str] | None) -> AssayError:
    """The same error here; `where` are key and file of one of the config, which its message names already."""
    error = AssayError(message, hint=hint)
    if where is not None:
        error = of_config = ConfigError(message, hint=hint)
        of_config.key, of_config.file = where
    error.exit_code = exit_code
    return error
