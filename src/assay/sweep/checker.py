"""Jobs of a sweep are proved in a process of their own, which may compute and break; the driver asks it."""

from __future__ import annotations

import json
import os
import select
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from assay.errors import AssayError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.check.prove import Prover
    from assay.sweep.worker.fork_server import ForkServer

_TICK: Final = 0.25
"""Seconds between two looks while an answer is waited for."""


@final
@dataclass(frozen=True)
class Checked:
    """What a check has found that its sweep needs.

    Attributes:
        spec: What the data is.
        data_read: Whether the data had to be read, because its YAML does not state a `spec`.
        scores: Names of the metrics that the job will log; empty where that is not known.
        directions: `min` or `max` for each score whose metric says which is better.
        devices: Processes of the job.
        warnings: What may be meant, but is not what most would want.
    """

    spec: dict[str, Any] = field(default_factory=dict)
    data_read: bool = False
    scores: list[str] = field(default_factory=list)
    directions: dict[str, str] = field(default_factory=dict)
    devices: int = 1
    warnings: list[str] = field(default_factory=list)


@final
class Checker:
    """Asks one process for every job of a sweep, so that what they have in common is checked once.

    Args:
        fork_server: Starts the process.
        look: Is called while an answer is waited for, and may raise.
    """

    def __init__(self, fork_server: ForkServer, look: Callable[[], None] = lambda: None) -> None:
        self._fork_server, self._look = fork_server, look
        self._socket: socket.socket | None = None

    def check(self, config: str, overrides: Sequence[str] = (), config_dir: Path | None = None) -> Checked:
        """Refuse a job that cannot run.

        Args:
            config: As `assay.config.serialize.to_text` writes it.
            overrides: What was typed for it.
            config_dir: The user's folder of config groups, to say where a wrong value stands.

        Raises:
            AssayError: It cannot run, or the process that checks it died.
        """
        folder = None if config_dir is None else str(config_dir)
        asked = {"config": config, "overrides": list(overrides), "config_dir": folder}
        return Checked(**self._ask({"check": asked, "cwd": str(Path.cwd())}))

    def gpus(self) -> int:
        """How many GPUs there are.

        Raises:
            AssayError: The process that was asked died.
        """
        return int(self._ask({"gpus": True})["gpus"])

    def close(self) -> None:
        """End the process."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        if self._socket is None:
            self._socket = self._fork_server.connect()
        try:
            self._socket.sendall(json.dumps(question).encode() + b"\n")
            while not select.select([self._socket], [], [], _TICK)[0]:
                self._look()
            line = _line(self._socket)
        except ConnectionError:
            line = b""
        except BaseException:
            self.close()  # its answer would be taken for that of the next question
            raise
        if not line:
            self.close()
            raise AssayError(
                "the process that checked this job died", hint="assay check with the same overrides shows how"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise _error(answer["error"])
        return answer


@final
class CheckerHere:
    """Checks in this process, which imports torch for it."""

    def __init__(self) -> None:
        from assay.check.prove import Prover

        self._prover: Prover = Prover()

    def check(self, config: str, overrides: Sequence[str] = (), config_dir: Path | None = None) -> Checked:
        """Refuse a job that cannot run.

        Args:
            config: As for `Checker.check`.
            overrides: As for `Checker.check`.
            config_dir: As for `Checker.check`.

        Raises:
            AssayError: It cannot run.
        """
        folder = None if config_dir is None else str(config_dir)
        asked = {"config": config, "overrides": list(overrides), "config_dir": folder}
        return Checked(**_answer({"check": asked, "cwd": str(Path.cwd())}, self._prover))

    def close(self) -> None:
        """Nothing is open."""


def serve(descriptor: int) -> None:
    """Answer questions until the driver closes its end.

    Args:
        descriptor: Of a socket.
    """
    from assay.check.prove import Prover

    prover = Prover()
    with socket.socket(fileno=descriptor) as driver:
        while line := _line(driver):
            try:
                answer = _answer(json.loads(line), prover)
            except AssayError as error:
                answer = {"error": _plain(error)}
            except Exception as error:
                text = str(error).strip().splitlines()
                summary = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
                answer = {"error": _plain(AssayError(summary))}
            driver.sendall(json.dumps(answer).encode() + b"\n")


def _answer(question: dict[str, Any], prover: Prover) -> dict[str, Any]:
    if "gpus" in question:
        import torch

        return {"gpus": torch.cuda.device_count()}
    from assay.check.job import check_job
    from assay.compose.origin import located
    from assay.config.serialize import from_text

    asked = question["check"]
    folder = asked["config_dir"]
    os.chdir(question["cwd"])
    config = from_text(asked["config"])
    with located(asked["overrides"], None if folder is None else Path(folder)):
        check_job(config)
        report = prover.prove(config, asked["overrides"])
    return {
        "spec": dict(report.spec),
        "data_read": report.data_read,
        "scores": list(report.scores),
        "directions": dict(report.directions),
        "devices": report.devices,
        "warnings": list(report.warnings),
    }


def _line(connection: socket.socket) -> bytes:
    """One line; empty when the other end is gone."""
    content = bytearray()
    with suppress(ConnectionError):
        while not content.endswith(b"\n"):
            part = connection.recv(1 << 20)
            if not part:
                return b""
            content += part
    return bytes(content)


def _plain(error: AssayError) -> dict[str, Any]:
    """An error as plain data; `key` marks one of the config."""
    told: dict[str, Any] = {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}
    if isinstance(error, ConfigError):
        told |= {"key": error.key, "file": error.file}
    return told


def _error(told: dict[str, Any]) -> AssayError:
    if "key" in told:
        error: AssayError = ConfigError(told["message"], hint=told["hint"])
        assert isinstance(error, ConfigError)  # noqa: S101 - made in the line above
        error.key, error.file = told["key"], told["file"]  # both are in the message already
    else:
        error = AssayError(told["message"], hint=told["hint"])
    error.exit_code = told["exit_code"]
    return error
