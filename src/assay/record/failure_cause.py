"""What went wrong with a job, from its exception or the way its process died."""

from __future__ import annotations

import errno
import re
import signal
from typing import TYPE_CHECKING

from assay.error_location import one_line_of
from assay.errors import AssayError, NonFiniteError, cannot_write, causes, exit_place

if TYPE_CHECKING:
    from assay.record.outcome import Cause

_MEMORY = re.compile(
    r"\bout of memory\b|can(?:no|')t allocate memory|bad_alloc|CUBLAS_STATUS_ALLOC_FAILED"
    r"|Unable to allocate \S+ \S+ for",
    re.IGNORECASE,
)
_WORKER = re.compile(r"DataLoader worker \(pid.*(?:is killed by signal|exited unexpectedly)", re.DOTALL)
_DEVICE = re.compile(
    r"\bCUDA(?: driver)? error\b|\bHIP error\b|\bNCCL\b|\bcuDNN\b|\bCUDNN_STATUS|\bCUBLAS_STATUS|\bgloo\b"
    r"|Connection (?:reset|refused|closed)",
    re.IGNORECASE,
)
_OF_THE_CODE = re.compile(
    r"device-side assert|no kernel image|invalid device ordinal|NOT_SUPPORTED|NotSupported", re.IGNORECASE
)
"""What a device says of code that is wrong, and says again."""
_DISTRIBUTED = frozenset(("DistError", "DistBackendError", "DistNetworkError", "DistStoreError"))
_OF_THE_PATH = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)
_FATAL = frozenset(("SIGABRT", "SIGSEGV", "SIGBUS"))


def of_exception(error: BaseException) -> Cause:
    """What an exception stands for.

    An error of assay's own defers to what it was raised from: a checkpoint that could not be written because
    the disk was full can be written another time.

    >>> of_exception(ValueError("no")), of_exception(ConnectionResetError())
    ('exception', 'machine')
    """
    chain = [_of_one(link) for link in causes(error)]
    for cause in chain:
        if cause not in ("exception", "machine"):
            return cause
    return "machine" if "machine" in (chain if type(error) is AssayError else chain[:1]) else "exception"


def reason_of(error: BaseException) -> str:
    """What is kept of an exception: its type, the first line of its message, and the line of the user's code.

    Args:
        error: That a job raised; of an error of assay's own the whole message.
    """
    if isinstance(error, SystemExit):
        return exit_place(error)
    return str(error) if isinstance(error, AssayError) else one_line_of(error)


def of_signal(name: str, output: str, *, memory_ran_out: bool) -> Cause:
    """What the death of a process by a signal stands for.

    Args:
        name: Of the signal.
        output: The last that the process printed.
        memory_ran_out: Whether the kernel has killed a process to get memory in the meantime.

    >>> of_signal("SIGSEGV", "", memory_ran_out=False)
    'killed'
    >>> of_signal("SIGABRT", "what():  std::bad_alloc", memory_ran_out=False)
    'out_of_memory'
    """
    if (name == "SIGKILL" and memory_ran_out) or (name in _FATAL and _MEMORY.search(output)):
        return "out_of_memory"
    return "killed"


def signal_name(number: int) -> str:
    """Name of a signal.

    >>> signal_name(11), signal_name(250)
    ('SIGSEGV', 'signal 250')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _of_one(error: BaseException) -> Cause:
    if isinstance(error, NonFiniteError):
        return "non_finite"
    if cannot_write(error):
        return "cannot_write"
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return "out_of_memory"
    if isinstance(error, RuntimeError):
        return _of_runtime_error(error)
    passes = isinstance(error, OSError | EOFError) and not isinstance(error, _OF_THE_PATH)
    return "machine" if passes else "exception"


def _of_runtime_error(error: RuntimeError) -> Cause:
    text = str(error)
    if type(error).__name__ == "OutOfMemoryError" or _MEMORY.search(text):
        return "out_of_memory"
    if _WORKER.search(text):
        return "killed"
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return "machine" if kinds & _DISTRIBUTED or _is_of_the_device(text) else "exception"


def _is_of_the_device(text: str) -> bool:
    return bool(_DEVICE.search(text)) and not _OF_THE_CODE.search(text)
