"""`record.json`: what a run was and how it ended."""

from __future__ import annotations

import errno
import json
import math
import re
import shlex
import signal
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, final

import msgspec

from assay.errors import (
    AssayError,
    NonFiniteError,
    RankError,
    causes,
    describe_error,
    write_failure,
)
from assay.files.atomic import write_text
from assay.files.checksum import is_json_intact, seal_json
from assay.files.symlinks import read_whole
from assay.record.secrets import redact_tree

if TYPE_CHECKING:
    from pathlib import Path


TRIAL = "ASSAY_TRIAL"
"""Environment variable that tells a job's processes which trial of a study it is; see `JobSpec.trial`."""
Status = Literal["running", "finished", "failed", "pruned", "interrupted"]
"""Of a run; `pruned` by its search, `interrupted` from outside."""
JobStatus = Status | Literal["waiting", "broken"]
"""Of a job of a sweep, or of a run as it is found."""
Cause = Literal[
    "",
    "exception",
    "machine",
    "out_of_memory",
    "killed",
    "timed_out",
    "non_finite",
    "cannot_write",
]
"""Kind of a failure; empty for a run that did not fail. `machine` is a device, a network or a disk."""
_TRANSIENT = ("machine", "killed", "timed_out", "cannot_write")


@final
@dataclass(frozen=True)
class Outcome:
    """How a run, or an attempt at a job of a sweep, ended, as plain data.

    Attributes:
        status: Any but `running`.
        cause: Kind of the failure.
        reason: One line for people.
        signal: Name of the signal that interrupted it.
        metrics: Each scalar: those of validation at the best checkpoint, others at the end.
        best: Monitored metric, its value and the epoch of the best checkpoint.
        seconds: It took.
        warnings: What says that the model is of no use, although the run has finished.
        reused_from: Directory of the finished run that was taken in place of training.
    """

    status: Status
    cause: Cause = ""
    reason: str = ""
    signal: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    best: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    reused_from: str = ""

    @property
    def transient(self) -> bool:
        """Whether another attempt could end differently; an error in config, code or numbers comes again."""
        return self.cause in _TRANSIENT

    def to_json(self) -> str:
        """One line of JSON; numbers that are not finite as Python writes them."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """Read `to_json` back.

        Args:
            text: One line of JSON.

        Raises:
            ValueError: It is not an outcome.

        >>> outcome = Outcome("finished", metrics={"val/loss": float("inf")})
        >>> Outcome.from_json(outcome.to_json()) == outcome
        True
        """
        return cls.from_plain(json.loads(text))

    @classmethod
    def from_plain(cls, plain: Any) -> Outcome:
        """Read an outcome among other keys.

        Args:
            plain: From JSON, perhaps of somebody else's.

        Raises:
            ValueError: It is not an outcome.
        """
        outcome = msgspec.convert(plain, cls)
        if outcome.status == "running":
            raise ValueError("status is 'running'")
        return outcome


def exit_code(status: Status, signal_name: str = "") -> int:
    """What a process says that has run something to its end: 0 where that is finished or pruned, else 1."""
    if status == "interrupted":
        return exit_code_of(signal_name or "SIGINT")
    if status in ("finished", "pruned"):
        return 0
    return 1


def exit_code_of(signal_name: str) -> int:
    """What a shell says of a process that a signal has ended: 130 for Ctrl-C, 129 for a closed terminal."""
    name = {"SIGUSR1": "SIGTERM"}.get(signal_name, signal_name)
    return 128 + signal.Signals.__members__.get(name, signal.SIGINT)


def stop_reason(signal_name: str) -> str:
    """The reason of what a signal has interrupted."""
    if signal_name == "SIGINT":
        return "stopped by hand"
    return f"stopped by {signal_name}"


OUT_OF_MEMORY = re.compile(
    r"\bout of memory\b|can(?:no|')t allocate memory|bad_alloc|CUBLAS_STATUS_ALLOC_FAILED"
    r"|Unable to allocate \S+ \S+ for",
    re.IGNORECASE,
)
_WORKER = re.compile(
    r"DataLoader worker \(pid.*(?:is killed by signal|exited unexpectedly)", re.DOTALL
)
_DEVICE = re.compile(
    r"\bCUDA(?: driver)? error\b|\bHIP error\b|\bNCCL\b|\bcuDNN\b|\bCUDNN_STATUS|\bCUBLAS_STATUS|\bgloo\b"
    r"|Connection (?:reset|refused|closed)",
    re.IGNORECASE,
)
_OF_THE_CODE = re.compile(
    r"device-side assert|no kernel image|invalid device ordinal|NOT_SUPPORTED|NotSupported",
    re.IGNORECASE,
)
"""What a device says of code that is wrong, and says again."""
_DISTRIBUTED = frozenset(("DistError", "DistBackendError", "DistNetworkError", "DistStoreError"))
_OF_THE_PATH = (
    FileNotFoundError,
    PermissionError,
    NotADirectoryError,
    IsADirectoryError,
    FileExistsError,
)


def cause_of_exception(error: BaseException) -> Cause:
    """What an exception stands for.

    An error of assay's own defers to what it was raised from: a checkpoint that could not be written because
    the disk was full can be written another time.
    """
    if isinstance(error, RankError):
        said: Cause = msgspec.convert(error.cause, Cause)
        return said
    chain = [_cause_of(link) for link in causes(error)]
    for cause in chain:
        if cause not in ("exception", "machine"):
            return cause
    if "machine" in (chain if type(error) is AssayError else chain[:1]):
        return "machine"
    return "exception"


def reason_of(error: BaseException) -> str:
    """What is kept of an exception: its type, the first line of its message, the line of the user's code."""
    if isinstance(error, AssayError):
        return str(error)
    return describe_error(error)


def _cause_of(error: BaseException) -> Cause:
    if isinstance(error, NonFiniteError):
        return "non_finite"
    if write_failure(error):
        return "cannot_write"
    if isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    ):
        return "out_of_memory"
    passes = isinstance(error, OSError | EOFError) and not isinstance(error, _OF_THE_PATH)
    if isinstance(error, RuntimeError):
        text = str(error)
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if "OutOfMemoryError" in kinds or OUT_OF_MEMORY.search(text):
            return "out_of_memory"
        if _WORKER.search(text):
            return "killed"
        of_device = _DEVICE.search(text) and not _OF_THE_CODE.search(text)
        passes = bool(kinds & _DISTRIBUTED or of_device)
    return "machine" if passes else "exception"


SCHEMA_VERSION = 1
FILE = "record.json"
_NOT_FINITE = ("nan", "inf", "-inf")


@final
class RunRecord(msgspec.Struct, forbid_unknown_fields=True):
    """One run; `docs/record.md` describes each field."""

    run_id: str
    name: str
    status: Status
    started: str
    seed: int
    fingerprint: str
    config_fingerprint: str
    fold: int | None = None
    overrides: list[str] = []
    config_dir: str = ""
    choices: dict[str, Any] = {}
    tags: list[str] = []
    finished: str | None = None
    seconds: float = 0.0
    git: dict[str, Any] | None = None
    patch_sha256: str = ""
    packages: dict[str, str] = {}
    machine: dict[str, Any] = {}
    data_sha256: str = ""
    weights_sha256: str = ""
    files: dict[str, str] = {}
    metrics: dict[str, float] = {}
    matrices: dict[str, Any] = {}
    best: dict[str, Any] = {}
    directions: dict[str, str] = {}
    shares: dict[str, bool] = {}
    checkpoints: dict[str, str] = {}
    model: dict[str, int] = {}
    reason: str = ""
    cause: Cause = ""
    signal: str = ""
    resumed: list[dict[str, Any]] = []
    interpolations: dict[str, str] = {}
    loggers: dict[str, str] = {}
    micro_batch: dict[str, int] = {}
    objects: dict[str, str] = {}
    notes: list[str] = []
    warnings: list[str] = []
    baseline: dict[str, Any] = {}
    threshold: dict[str, Any] = {}
    evaluations: list[Any] = []
    test_looks: int = 0
    reused_from: str = ""
    schema_version: int = SCHEMA_VERSION

    @property
    def outcome(self) -> Outcome:
        """How the run ended; once no process of it lives, one that says `running` has been killed."""
        kept: Any = {"metrics": self.metrics, "best": self.best, "seconds": self.seconds}
        if self.status == "running":
            return Outcome("failed", "killed", "a process of the run died", **kept)
        return Outcome(
            self.status,
            self.cause,
            self.reason,
            self.signal,
            warnings=list(self.warnings),
            reused_from=self.reused_from,
            **kept,
        )

    def interrupted_by(self, signal: str) -> None:
        """Say that a signal has interrupted the run."""
        self.status = "interrupted"
        self.reason = stop_reason(signal)
        self.signal = signal
        self.finished = now()

    def failed_by(self, error: BaseException) -> None:
        """Say that an exception has ended the run."""
        self.status = "failed"
        self.reason = reason_of(error)
        self.cause = cause_of_exception(error)
        self.finished = now()

    def save(self, run_dir: Path) -> None:
        """Replace `record.json` whole, without secrets."""
        # Redacted as a tree: in the text, a secret that is a number would take the JSON along.
        plain = to_json_numbers(
            redact_tree(msgspec.to_builtins(self, str_keys=True, enc_hook=str))
        )
        write_text(run_dir / FILE, seal_json(json.dumps(plain, indent=2, allow_nan=False)))

    @classmethod
    def load(cls, run_dir: Path) -> RunRecord:
        """Read `record.json` back.

        Raises:
            AssayError: There is none, or it is not what `save` wrote.
        """
        path = run_dir / FILE
        try:
            content = read_whole(path, 256 << 20)
            plain = msgspec.json.decode(content)
        except FileNotFoundError as error:
            raise no_run_error(run_dir, FILE) from error
        except (ValueError, OSError, RecursionError) as error:
            raise AssayError(f"{path} cannot be read: {error}") from error
        if isinstance(plain, dict):
            version = plain.get("schema_version")
        else:
            version = None
        if version != SCHEMA_VERSION:
            raise AssayError(
                f"{path} has schema version {version!r}; this assay reads {SCHEMA_VERSION}"
            )
        # few; a matrix has many numbers
        if any(f'"{name}"'.encode() in content for name in _NOT_FINITE):
            for name in plain.keys() & {"metrics", "best", "matrices"}:
                plain[name] = from_json_numbers(plain[name])
        plain.pop("sha256", None)
        try:
            record = msgspec.convert(plain, cls)
        except msgspec.ValidationError as error:
            raise AssayError(f"{path} is damaged: {error}") from error
        if not is_json_intact(content):
            raise AssayError(f"{path} is damaged: its SHA-256 does not match")
        return record


def now() -> str:
    """The time, as a record says it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def to_json_numbers(value: Any) -> Any:
    """Numbers as JSON can hold them: it has no NaN and no infinity, which are written as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    if isinstance(value, dict):
        return {str(key): to_json_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_numbers(item) for item in value]
    return value


def from_json_numbers(value: Any) -> Any:
    """Numbers as `to_json_numbers` received them."""
    if isinstance(value, dict):
        return {key: from_json_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_json_numbers(item) for item in value]
    if value in _NOT_FINITE:
        return float(value)
    return value


def no_run_error(path: Path, lacking: str = "config.yaml") -> AssayError:
    """The error for a folder that is not a run directory, though runs may lie in it."""
    if not path.is_dir():
        return AssayError(f"there is no run directory {path}", hint="assay ls lists runs")
    hint = f"assay ls {shlex.quote(str(path))} lists the runs in it"
    return AssayError(f"{path} is not a run directory: it has no {lacking}", hint=hint)
