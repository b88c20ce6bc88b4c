"""Jobs of a sweep are proved in a process of their own, which may compute and break; the driver asks it."""

from __future__ import annotations

import json
import select
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from assay.errors import AssayError, ConfigError
from assay.sweep.worker.check_server import answer, read_line

if TYPE_CHECKING:
    import socket
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
            line = read_line(self._socket)
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
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            raise _error(told["error"])
        return told


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
        return Checked(**answer({"check": asked, "cwd": str(Path.cwd())}, self._prover))

    def close(self) -> None:
        """Nothing is open."""


def _error(told: dict[str, Any]) -> AssayError:
    if "key" in told:
        error: AssayError = ConfigError(told["message"], hint=told["hint"])
        assert isinstance(error, ConfigError)  # noqa: S101 - made in the line above
        error.key, error.file = told["key"], told["file"]  # both are in the message already
    else:
        error = AssayError(told["message"], hint=told["hint"])
    error.exit_code = told["exit_code"]
    return error
