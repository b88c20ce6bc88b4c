"""What `--json` prints: one document on standard output, and all else on standard error."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, final

import typer

from assay.errors import AssayError, ConfigError, exit_place, one_line_of
from assay.process.stop_signals import Stopped
from assay.record.outcome import exit_code_of, stopped_by
from assay.record.run_record import finite
from assay.record.secrets import redact, redact_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.check.report import Report
    from assay.compose.listing import Option
    from assay.sweep.summary import SweepResult


SCHEMA_VERSION: Final = 1
"""Of every document. It rises when a field goes or comes to mean something else, not when one is added."""


@final
@dataclass(frozen=True)
class Problem:
    """Why a command did not do what it was asked to.

    Attributes:
        message: One or two sentences, as on standard error.
        key: Full config key of the value at fault, such as `optimizer.lr`; empty where it is none.
        file: Where that value was written: a YAML file, or `command line`; empty where unknown.
        line: In that file; null where unknown.
        hint: What to type or do next; may be empty.
        code: The exit code of the command.
    """

    message: str
    key: str = ""
    file: str = ""
    line: int | None = None
    hint: str = ""
    code: int = 1

    @classmethod
    def of(cls, error: BaseException) -> Problem | None:
        """What an exception that ends a command says; None of one that ends it well."""
        if isinstance(error, typer.Exit):
            if not error.exit_code:
                return None
            told = Problem.of(error.__cause__) if error.__cause__ is not None else None
            return cls(
                **{**vars(told or cls(f"the exit code is {error.exit_code}")), "code": error.exit_code}
            )
        if isinstance(error, AssayError):
            key, file = (error.key, error.file) if isinstance(error, ConfigError) else ("", "")
            name, _, line = file.rpartition(":")
            if not line.isdecimal():
                name, line = file, ""
            hint = redact(error.hint)
            return cls(redact(error.message), key, name, int(line) if line else None, hint, error.exit_code)
        if isinstance(error, KeyboardInterrupt | typer.Abort):
            name = error.name if isinstance(error, Stopped) else "SIGINT"
            return cls(stopped_by(name), code=exit_code_of(name))
        return cls(redact(exit_place(error) if isinstance(error, SystemExit) else one_line_of(error)))


@final
@dataclass
class Document:
    """What a verb prints under `--json`, gathered until its end."""

    body: dict[str, Any] = field(default_factory=dict)
    error: Problem | None = None
    next: Sequence[str] = ()

    def say(self, kind: str, value: Any) -> None:
        """Have this printed at the end; without `--json` it goes nowhere."""
        self.body = {"kind": kind, "schema_version": SCHEMA_VERSION, **plain(value)}

    def fail(self, message: str, *, hint: str = "", code: int = 1) -> None:
        """Say why the exit code is not 0 although there is something to print."""
        self.error = Problem(redact(message), hint=redact(hint), code=code)

    def to_json(self) -> str:
        """One line of ASCII: no control character of anybody's reaches a terminal through it."""
        whole = self.body or {"kind": "error", "schema_version": SCHEMA_VERSION}
        if self.next:
            whole = {**whole, "next": plain(self.next)}
        if self.error is not None:
            whole = {**whole, "error": plain(self.error)}
        text = json.dumps(finite(redact_tree(whole)), allow_nan=False)
        return text.replace("\x7f", "\\u007f")


@contextmanager
def printed_document(as_json: bool) -> Iterator[Document]:
    """Point standard output at standard error in this block, and print one document where it ends."""
    document = Document()
    if not as_json:
        yield document
        return
    stream = sys.stdout
    try:
        with _stdout_on_stderr(stream):
            try:
                yield document
            except BaseException as error:
                document.error = document.error or Problem.of(error)
                raise
    finally:
        _print(stream, document.to_json())


def print_problem(words: list[str], problem: Problem | None) -> None:
    """Print what keeps a verb from beginning, such as a command line that it does not take."""
    if "--json" in words[: words.index("--") if "--" in words else None]:
        _print(sys.stdout, Document(error=problem).to_json())


def plain(value: Any) -> Any:
    """Something as JSON's own types."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value) if one.repr}
    if hasattr(value, "items"):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # arrays and scalars of numpy
        return plain(value.tolist())
    raise TypeError(f"a document cannot hold {type(value).__name__}")


@contextmanager
def _stdout_on_stderr(stream: TextIO | None) -> Iterator[None]:
    if stream is None:
        raise AssayError("standard output is closed, and --json prints there")
    stream.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
        stream.flush()
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _print(stream: TextIO | None, text: str) -> None:
    if stream is None:
        return
    try:
        try:
            descriptor = stream.fileno()
        except (OSError, ValueError):  # not a file: the output of a test
            stream.write(f"{text}\n")
            return
        # Not through the stream, which would try once more at the end of the process.
        with open(descriptor, "w", encoding="ascii", closefd=False) as file:
            file.write(f"{text}\n")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise AssayError(f"standard output cannot be written: {error.strerror}") from error


KINDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("train, resume RUN", "assay.run.result.RunResult"),
    "sweep": ("train -m, resume SWEEP", "assay.cli.documents.Sweep"),
    "config": ("train --cfg", "assay.cli.documents.Composed"),
    "check": ("check", "assay.check.report.Report"),
    "check_sweep": ("check -m", "assay.cli.documents.Checked"),
    "data": ("data", "assay.report.survey.Survey"),
    "configs": ("configs", "assay.cli.documents.Configs"),
    "explain": ("explain", "assay.compose.origin.Explanation"),
    "diff": ("diff", "assay.report.difference.Difference"),
    "info": ("info", "assay.cli.documents.Machine"),
    "ls": ("ls", "assay.report.comparison_formats.Compared"),
    "compare": ("compare", "assay.report.comparison_formats.Compared"),
    "best": ("best", "assay.report.comparison_formats.Best"),
    "rm": ("rm", "assay.cli.documents.Removed"),
    "eval": ("eval", "assay.run.evaluate.Evaluation"),
    "report": ("report", "assay.report.report.Report"),
    "export": ("export", "assay.run.export.model_card.Exported"),
    "predict": ("predict", "assay.run.predict.predict.Predicted"),
    "reproduce": ("reproduce", "assay.run.reproduce.Reproduction"),
}
"""What prints each kind of document, and the class whose attributes are its fields; see docs/json.md."""


@final
@dataclass(frozen=True)
class Composed:
    """What would run, from `train --cfg`.

    Attributes:
        configs: One of a run, or those of the jobs that a sweep begins with; what only the data knows is
            still an interpolation.
    """

    configs: Sequence[Mapping[str, Any]]


@final
@dataclass(frozen=True)
class Checked:
    """A sweep that can run.

    Attributes:
        jobs: Those that it begins with, or that stand for all.
    """

    jobs: Sequence[Report]


@final
@dataclass(frozen=True)
class Configs:
    """What there is to choose from.

    Attributes:
        options: Sorted by group and name.
    """

    options: Sequence[Option]


@final
@dataclass(frozen=True)
class Machine:
    """What this machine has.

    Attributes:
        versions: Of Python and packages.
        cpu: Of the processor, in words.
        gpu: In words; `none` says why there is none.
        auto: What `device=auto` chooses, and why.
    """

    versions: Mapping[str, str]
    cpu: Mapping[str, str]
    gpu: Mapping[str, str]
    auto: Mapping[str, str]


@final
@dataclass(frozen=True)
class Removed:
    """What is gone.

    Attributes:
        runs: Directories of runs.
    """

    runs: Sequence[Path]


@final
@dataclass(frozen=True)
class SweepJob:
    """A job of a sweep.

    Attributes:
        number: Of the job.
        run_dir: Where it writes.
        status: `waiting`, `running`, `finished`, `failed`, `interrupted` or `pruned`.
        overrides: What stands for it in the sweep.
        seed: Of the run.
        attempts: Begun so far.
        metrics: Last value of each scalar.
        best: Monitored metric, its value and the epoch of the best checkpoint.
        seconds: It took.
        cause: Kind of the failure, such as `out_of_memory`; empty where it did not fail.
        reason: How it ended, when not well.
        warnings: What says that its model is of no use, although it has finished.
    """

    number: int
    run_dir: Path
    status: str
    overrides: Sequence[str]
    seed: int
    attempts: int
    metrics: Mapping[str, float]
    best: Mapping[str, Any]
    seconds: float
    cause: str
    reason: str
    warnings: Sequence[str]


@final
@dataclass(frozen=True)
class Sweep:
    """What a sweep has come to.

    Attributes:
        directory: Where everything about it lies; `results.csv` has the same as a table.
        total: Jobs that it asks for.
        objectives: `minimize` or `maximize` for each score; the first one decides.
        best: Number of the best job; null where none has a score.
        jobs: In order.
    """

    directory: Path
    total: int
    objectives: Mapping[str, str]
    best: int | None
    jobs: Sequence[SweepJob]

    @classmethod
    def of(cls, result: SweepResult) -> Sweep:
        """The document of a sweep."""
        from assay.analysis.rows import best_job
        from assay.record.outcome import Outcome

        jobs = []
        for job in result.jobs:
            outcome = vars(job.outcome or Outcome("interrupted"))
            own = {
                name: outcome[name] for name in ("metrics", "best", "seconds", "cause", "reason", "warnings")
            }
            place = result.run_dir(job)
            jobs.append(SweepJob(job.number, place, job.status, job.overrides, job.seed, job.attempts, **own))
        best = best_job(result.jobs, result.objectives[0])
        objectives = {one.name: one.direction for one in result.objectives}
        return cls(result.directory, result.total, objectives, best.number if best else None, jobs)
