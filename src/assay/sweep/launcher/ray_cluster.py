"""Joining a Ray cluster, or starting one for a sweep alone, without what Ray would do to this process."""

from __future__ import annotations

import logging
import os
import signal
import socket
import tempfile
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from assay.errors import ConfigError, ProcessError, first_line
from assay.process import orphans
from assay.process.stop_signals import handlers_kept
from assay.record.provenance import usable_cores
from assay.targets.optional_packages import install

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_AT_IMPORT: Final = {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # else `uv run assay` uploads the current directory
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # else Ray writes about each dead worker among what the sweep says
}
"""Ray reads them when it is imported."""
SETTINGS: Final = {
    **_AT_IMPORT,
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
    "RAY_memory_monitor_refresh_ms": "0",  # the kernel ends a job of its own; Ray would end its worker
    "SPT_NOENV": "1",  # Ray's processes rename themselves: keep the variables that the guard knows them by
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Else its ports are open to the network, and run what they are sent: this has it listen on loopback
    # alone, as on systems on which it never joins machines.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""For a cluster of this sweep alone."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
"""Ray sets handlers of its own for them."""
STORE: Final = 80 << 20
"""Bytes of the object store, which holds nothing but outcomes; Ray's least."""

_PATIENCE: Final = 5.0
"""Seconds for a cluster to answer."""
_SETTINGS: Final = b"\4"
_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + _SETTINGS + bytes(5)
"""What both ends of gRPC begin with: a frame of settings, of the client after its preface."""


def join(ray: Any, address: str | None, cores: int) -> IO[bytes] | None:
    """Join a cluster, or start one on this machine.

    Args:
        ray: The package.
        address: Of a cluster; None starts one.
        cores: That one started here has at least; more than there are share them.

    Returns:
        A pipe to the guard of one started here: it ends with this process, or when the pipe is closed.

    Raises:
        ProcessError: It does not answer, or cannot be started.
    """
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    if address is not None:
        with handlers_kept(SIGNALS), variables(_AT_IMPORT):
            try:
                ray.init(address=address, **quiet)
            except (OSError, RuntimeError, ValueError, ImportError, SystemExit) as error:
                raise _no_answer(address, error) from error
        return None
    # Ray's sockets lie in it, whose paths may be no longer than 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="assay-", dir="/tmp"))
    mark = uuid.uuid4().hex
    guarded = orphans.guard(mark, str(folder))  # Ray's own guard leaves some of its processes
    with handlers_kept(SIGNALS), variables({**SETTINGS, orphans.MARK: mark}):
        constants = ray._private.ray_constants  # which has read the variable when it was imported
        joins_machines, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
        try:
            ray.init(
                address="local",
                num_cpus=max(cores, usable_cores()),
                object_store_memory=STORE,
                include_dashboard=False,
                _temp_dir=str(folder),
                **quiet,
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            guarded.close()
            raise ProcessError(f"Ray cannot be started: {first_line(error)}") from error
        finally:
            constants.ENABLE_RAY_CLUSTER = joins_machines
    return guarded


def knock(ray: Any, address: str) -> None:
    """Ask whoever listens at an address for a word: Ray itself would wait for minutes.

    Raises:
        ProcessError: There is no answer, or it is not an address.
    """
    try:
        _greet(ray, address)
    except (OSError, ValueError) as error:
        raise _no_answer(address, error) from error


def _no_answer(address: str, error: BaseException) -> ProcessError:
    return ProcessError(
        f"no Ray cluster answers at {address}: {getattr(error, 'strerror', None) or first_line(error)}",
        hint="hydra.launcher.address=HOST:PORT of one that runs, or null to start one here",
    )


def _greet(ray: Any, address: str) -> None:
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    scheme, _, place = address.rpartition("://")
    if scheme not in ("", "ray"):
        return  # of a service that has its own client
    if not scheme:
        place = ray._private.services.canonicalize_bootstrap_address_or_die(place)
    host, _, port = place.partition("?")[0].rpartition(":")
    if not port.isdecimal():
        raise ValueError("expected ray://HOST:PORT")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE) as connection:
        if os.environ.get("RAY_USE_TLS") != "1":
            connection.sendall(_HELLO)
            if connection.recv(9)[3:4] != _SETTINGS:
                raise ConnectionError("what listens there is not Ray")


def package() -> Any:
    """The package ray.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        with variables(_AT_IMPORT):
            import ray
    except ImportError as error:
        raise ConfigError(
            "Ray is not installed", key="hydra/launcher", hint=install("hydra.launcher.ray", "ray")
        ) from error
    return ray


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Have environment variables, where the user has not set them, in this block.

    Args:
        values: By name.
    """
    missing = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)
