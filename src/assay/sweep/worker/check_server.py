"""The process that checks the jobs of a sweep, and answers its driver; see `assay.sweep.checker`."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.error_location import one_line_of
from assay.errors import AssayError, ConfigError

if TYPE_CHECKING:
    from assay.check.prove import Prover


def serve(descriptor: int) -> None:
    """Answer questions until the driver closes its end.

    Args:
        descriptor: Of a socket.
    """
    from assay.check.prove import Prover

    prover = Prover()
    with socket.socket(fileno=descriptor) as driver:
        while line := read_line(driver):
            try:
                found = answer(json.loads(line), prover)
            except AssayError as error:
                found = {"error": _plain(error)}
            except Exception as error:
                found = {"error": _plain(AssayError(one_line_of(error)))}
            driver.sendall(json.dumps(found).encode() + b"\n")


def answer(question: dict[str, Any], prover: Prover) -> dict[str, Any]:
    """What a question of `assay.sweep.checker` comes to, as plain data.

    Args:
        question: As the driver asks it.
        prover: Keeps what jobs have in common.

    Raises:
        AssayError: The job cannot run.
    """
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


def read_line(connection: socket.socket) -> bytes:
    """One line; empty when the other end is gone.

    Args:
        connection: To the other end.
    """
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
