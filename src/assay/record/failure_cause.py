"""What went wrong with a job, from its exception, its message, or the way its process died."""

from __future__ import annotations

import errno
import re
import signal
from typing import TYPE_CHECKING, NamedTuple, final

from assay.errors import NO_ROOM, AssayError, NonFiniteError, cannot_write, causes

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


@final
class Failure(NamedTuple):
    """What went wrong.

    Attributes:
        cause: Of the failure.
        transient: Whether another attempt could end differently.
    """

    cause: Cause
    transient: bool


_EXCEPTION = Failure("exception", transient=False)
_PASSING = Failure("exception", transient=True)
_OUT_OF_MEMORY = Failure("out_of_memory", transient=False)
_KILLED = Failure("killed", transient=True)
_CANNOT_WRITE = Failure("cannot_write", transient=True)
_NON_FINITE = Failure("non_finite", transient=False)


def of_exception(error: BaseException) -> Failure:
    """What an exception stands for.

    An error of assay's own defers to what it was raised from: a checkpoint that could not be written because
    the disk was full can be written another time.

    Args:
        error: That a job raised.

    >>> of_exception(ValueError("no"))
    Failure(cause='exception', transient=False)
    >>> of_exception(ConnectionResetError())
    Failure(cause='exception', transient=True)
    """
    found = [_of_one(one) for one in causes(error)]
    for failure in found:
        if failure.cause != "exception":
            return failure
    if type(error) is AssayError:
        return next((failure for failure in found if failure.transient), _EXCEPTION)
    return found[0]


def of_message(text: str) -> Failure:
    """As `of_exception`, where only the line `Type: message` is known, as a record keeps it.

    Args:
        text: Reason of a run that failed.

    >>> of_message("OutOfMemoryError: CUDA out of memory. Tried to allocate 20 GiB").cause
    'out_of_memory'
    """
    kind, _, message = text.partition(": ")
    if kind == "MemoryError" or (kind.endswith(("Error", "Exception")) and _MEMORY.search(text)):
        return _OUT_OF_MEMORY
    if _WORKER.search(message):
        return _KILLED
    if any(said in text for said in NO_ROOM.values()):
        return _CANNOT_WRITE
    if kind in _DISTRIBUTED or kind in ("ConnectionError", "TimeoutError", "OSError"):
        return _PASSING
    return _PASSING if kind == "RuntimeError" and _is_of_the_device(message) else _EXCEPTION


def of_signal(name: str, output: str, *, memory_ran_out: bool) -> Failure:
    """What the death of a process by a signal stands for.

    Args:
        name: Of the signal.
        output: The last that the process printed.
        memory_ran_out: Whether the kernel has killed a process to get memory in the meantime.

    >>> of_signal("SIGSEGV", "", memory_ran_out=False)
    Failure(cause='killed', transient=True)
    >>> of_signal("SIGABRT", "what():  std::bad_alloc", memory_ran_out=False).cause
    'out_of_memory'
    """
    if (name == "SIGKILL" and memory_ran_out) or (name in _FATAL and _MEMORY.search(output)):
        return _OUT_OF_MEMORY
    return _KILLED


def signal_name(number: int) -> str:
    """Name of a signal.

    Args:
        number: Of it.

    >>> signal_name(11), signal_name(250)
    ('SIGSEGV', 'signal 250')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _of_one(error: BaseException) -> Failure:
    if isinstance(error, NonFiniteError):
        return _NON_FINITE
    if cannot_write(error):
        return _CANNOT_WRITE
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return _OUT_OF_MEMORY
    if isinstance(error, RuntimeError):
        return _of_runtime_error(error)
    passes = isinstance(error, OSError | EOFError) and not isinstance(error, _OF_THE_PATH)
    return _PASSING if passes else _EXCEPTION


def _of_runtime_error(error: RuntimeError) -> Failure:
    text = str(error)
    if type(error).__name__ == "OutOfMemoryError" or _MEMORY.search(text):
        return _OUT_OF_MEMORY
    if _WORKER.search(text):
        return _KILLED
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return _PASSING if kinds & _DISTRIBUTED or _is_of_the_device(text) else _EXCEPTION


def _is_of_the_device(text: str) -> bool:
    return bool(_DEVICE.search(text)) and not _OF_THE_CODE.search(text)
