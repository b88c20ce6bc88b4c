"""A process that has imported what a run imports and has computed nothing; see `tests.forks.Forks`.

It is forked from the one that runs the tests when that has imported all of them and has run none, so that
its imports cost nothing again, and a fork of it finds no thread and no lock.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_to_it: list[socket.socket] = []
_set_by_imports: dict[str, str] = {}
_MODULE: Final = ["-P", "-m"]
"""How assay starts processes of its own."""


def start() -> None:
    """Fork the warm process, which ends with this one."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child:
        theirs.close()
        _to_it.append(ours)
        os.waitpid(child, 0)
        return
    if not os.fork():  # nobody's child: a test may look at those of its own process
        ours.close()
        _end_with(lambda: _serve(theirs))
    os._exit(0)


def stop() -> None:
    """Let it end."""
    while _to_it:
        _to_it.pop().close()


def connect(connection: socket.socket) -> None:
    """Have a fork of the warm process answer requests: the environment, then lines of JSON.

    Args:
        connection: Its end.
    """
    socket.send_fds(_to_it[0], [b" "], [connection.fileno()])


# -- the warm process --------------------------------------------------------------------------------------


def _as_new() -> None:
    """Undo what pytest has set for the whole process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for its life
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for its life
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115 - for its life
    warnings.resetwarnings()
    for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", category)


def _serve(requests: socket.socket) -> None:
    _as_new()
    warm = False
    while descriptors := socket.recv_fds(requests, 1, 1)[1]:
        if not warm:
            _import_like_a_run()
            warm = True
        if not os.fork():
            requests.close()
            _answer(socket.socket(fileno=descriptors[0]))
        os.close(descriptors[0])
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _import_like_a_run() -> None:
    """Import what a run imports and the tests do not, as a first fork found out."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:

        def look() -> None:
            os.chdir("/")
            _quiet(Path(os.devnull))
            with suppress(SystemExit):
                _call("assay.cli.app", ["check", "data=digits", "model=mlp", "device=cpu"])
            os.write(writer, json.dumps(sorted(sys.modules)).encode())

        _end_with(look)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        names = json.loads(pipe.read())
    os.waitpid(process, 0)
    before = dict(os.environ)
    for name in names:
        if name not in sys.modules:
            with suppress(Exception):
                importlib.import_module(name)
    _set_by_imports.update((name, value) for name, value in os.environ.items() if name not in before)


def _answer(connection: socket.socket) -> None:
    lines = connection.makefile("rw", encoding="utf-8")
    _take(json.loads(lines.readline()))
    lines.write(json.dumps({"pid": os.getpid()}) + "\n")
    lines.flush()
    for line in lines:
        lines.write(json.dumps(_fork(json.loads(line))) + "\n")
        lines.flush()
    os._exit(0)


def _take(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update({**_set_by_imports, **environment})
    sys.path[:0] = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]
    importlib.invalidate_caches()
    tempfile.tempdir = None  # what was asked for under another TMPDIR


def _call(module: str, words: Sequence[str]) -> None:
    sys.argv = [module, *words]
    importlib.import_module(module).main()


def _quiet(output: Path) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(descriptor, number)


def _fork(request: dict[str, Any]) -> dict[str, float]:
    start = time.monotonic()
    process = os.fork()
    if not process:
        _end_with(lambda: _run(request))
    if request["kill_after"] is not None:
        watched = os.pidfd_open(process)
        if not select.select([watched], [], [], request["kill_after"])[0]:
            os.kill(process, signal.SIGKILL)
        os.close(watched)
    _, status = os.waitpid(process, 0)
    return {"code": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - start}


def _end_with(work: Any) -> None:
    """Do some work and end this process with its exit code."""
    import torch

    code: Any = 1
    try:
        # Torch renews its pool at the first use in a fork; two threads of a backward pass may do so at once.
        torch.set_num_threads(1)
        work()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(code if isinstance(code, int) else 1)


def _run(request: dict[str, Any]) -> None:
    from assay.checkpoint import checkpoint_file
    from assay_cluster import children

    os.setsid()  # of its own, as a shell's command is
    os.chdir(request["cwd"])
    _quiet(Path(request["output"]))
    if request["tmpdir"]:
        os.environ["TMPDIR"] = request["tmpdir"]
    if request["each_checkpoint"]:
        checkpoint_file._SMALL = 0  # as large ones, none is left out
    if request["largest_file"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"],) * 2)
    if request["forked_children"]:
        waiting = [_WaitingChild() for _ in range(request["forked_children"])]

        def begin(command: Sequence[str], env: Mapping[str, str], **_: Any) -> _WaitingChild:
            assert list(command[1:3]) == _MODULE
            return waiting.pop(0).begin(command, env)

        children.subprocess = SimpleNamespace(Popen=begin)  # type: ignore[assignment, attr-defined]  # only here it starts others
    _call(request["module"], request["words"])


@final
class _WaitingChild:
    """A process that waits to be told what to do, forked before its parent computed anything.

    To `assay_cluster.children` it is what it needs of a `subprocess.Popen`.
    """

    def __init__(self) -> None:
        reader, self._writer = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            os.close(self._writer)
            _end_with(lambda: self._wait_and_run(reader))
        os.close(reader)

    @staticmethod
    def _wait_and_run(reader: int) -> None:
        os.setsid()
        with os.fdopen(reader, encoding="utf-8") as pipe:
            line = pipe.readline()
        if line:
            (module, *words), environment = json.loads(line)
            _take(environment)
            if "RANK" in environment:
                Path(f"rank{environment['RANK']}.pid").write_text(str(os.getpid()))
            _call(module, words)

    def begin(self, command: Sequence[str], env: Mapping[str, str]) -> _WaitingChild:
        os.write(self._writer, json.dumps([command[3:], dict(env)]).encode() + b"\n")
        os.close(self._writer)
        return self

    def poll(self) -> int | None:
        if self.returncode is None:
            self._ended(os.WNOHANG)
        return self.returncode

    def wait(self) -> None:
        if self.returncode is None:
            self._ended(0)

    def _ended(self, how: int) -> None:
        process, status = os.waitpid(self.pid, how)
        if process:
            self.returncode = os.waitstatus_to_exitcode(status)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)
