"""Running a finished run again from its directory, and comparing bit for bit. Imports no torch itself."""

from __future__ import annotations

import hashlib
import math
import os
import re
import shlex
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from assay.errors import AssayError
from assay.files.atomic import temporary_folder
from assay.files.symlinks import RESULTS
from assay.process import Stopped
from assay.quoting import join_first
from assay.record.provenance import (
    ask_git,
    differences_between,
    git_environment,
    git_state,
    machine_changes,
    package_changes,
    packages,
    run_git,
    segments,
)
from assay.record.run_directory import digest_of_file
from assay.record.run_record import RunRecord, exit_code_of
from assay.run.saved_config import load_checked_config
from assay.targets.objects import missing_object_error
from assay.targets.trust import typed_packages
from assay.terminal import Console
from assay_analysis.read_runs import METRICS_FILE, Curve, read_curves
from assay_lab.environment import build_environment
from assay_lab.run_again import CODE
from assay_lab.run_side import ask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_SWITCHES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "DNNL_MAX_CPU_ISA",
    "KMP_DETERMINISTIC_REDUCTION",
    "MKL_CBWR",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHASHSEED",
)
"""Switches that a run gets again: they change numbers and nothing else."""
_PLAIN = re.compile(r"[\w:,.=+-]+", re.ASCII)


@final
@dataclass(frozen=True)
class Reproduction:
    """What came of it.

    Attributes:
        identical: Every row of metrics.csv, every final score and every bit of the weights are the same.
        different: What is not, first of all the first step; empty when identical.
        likely: What differs between the two runs and so may be the cause, the most likely first.
        notes: What else the user should know, such as other versions of packages.
        rows: How many rows were compared.
        weights_sha256: Of the new run.
        kept: Directory of the new run, where it is different.
    """

    identical: bool
    different: Sequence[str] = ()
    likely: Sequence[str] = ()
    notes: Sequence[str] = ()
    rows: int = 0
    weights_sha256: str = ""
    kept: Path | None = None


@dataclass
class _Plan:
    root: Path | None = None
    """Of the repository, where its code has to be brought back from there."""
    commit: str = ""
    patch: Path | None = None
    folder: str = "."
    notes: list[str] = field(default_factory=list)


def reproduce(
    run: str | Path,
    overrides: Sequence[str] = (),
    *,
    trust_code: bool = False,
    in_environment: bool = False,
) -> Reproduction:
    """Run a finished run again, in a process and a directory of its own, and compare.

    Neither the run's directory nor the checkout is written to. The code is that of the checkout where this
    is what the run had; else its commit and patch are brought back beside it. The packages are those that
    are installed, or with `in_environment` those that the run had.
    """
    run_dir = Path(run).resolve()
    record = RunRecord.load(run_dir)
    for argument, kind in record.objects.items():
        raise missing_object_error(argument, kind)
    removed = _check_record(run_dir, record)
    plan = _plan(run_dir, record)
    if plan.root is not None and not trust_code:
        raise AssayError(
            _describe_code(plan), hint="--trust-code, if you trust the author of this code"
        )
    try:  # what the run's process would refuse, before its code is brought back and torch is imported
        load_checked_config(run_dir, typed_packages(overrides), must_be_whole=True)
    except AssayError as error:
        raise _cannot_reproduce(error) from error
    python = Path(sys.executable)
    notes = _notes(record)
    environment = _environment(record)
    if in_environment:
        python, notes = build_environment(record, trust_code=trust_code)
        environment["PYTHONPATH"] = os.pathsep.join(_own_folders())
    with temporary_folder(Path(tempfile.gettempdir(), "assay-reproduce"), 0o700) as scratch:
        again = scratch / run_dir.name
        if plan.root is not None:
            checkout_code(plan.root, plan.commit, plan.patch, scratch / CODE)
            others = environment.get("PYTHONPATH", "")
            environment["PYTHONPATH"] = module_path(
                plan.root, plan.folder, scratch / CODE, others
            )
        _run_again(python, run_dir, again, environment, typed_packages(overrides))
        reproduced = RunRecord.load(again)
        different = differences(run_dir, record, again, reproduced)
        if reproduced.micro_batch != record.micro_batch:
            plan.notes.append(
                "memory ran out elsewhere than in the run: see micro_batch in record.json"
            )
        result = Reproduction(
            identical=not different,
            different=different,
            notes=[*plan.notes, *removed, *notes],
            rows=_count_rows(again),
            weights_sha256=reproduced.weights_sha256,
        )
        if not different:
            return result
        kept = Path(tempfile.mkdtemp(prefix="assay-reproduce-"), run_dir.name)
        return replace(result, likely=causes(record, reproduced), kept=again.rename(kept))


def show(result: Reproduction) -> None:
    """Print what came of it."""
    console = Console(highlight=False, soft_wrap=True)
    for note in result.notes:
        console.print(f"note: {note}", markup=False)
    if result.identical:
        weights = ""
        if result.weights_sha256:
            weights = f" and the weights (SHA-256 {result.weights_sha256[:12]})"
        console.print(
            f"[bold green]identical[/bold green]: {result.rows} rows of metrics.csv, all scores{weights}"
        )
        return
    console.print("[bold red]different[/bold red]")
    for label, lines in (("", result.different), ("likely cause: ", result.likely)):
        for line in lines:
            console.print(f"  {label}{line}", markup=False)
    console.print(f"  the new run is kept in {result.kept}", markup=False)


# -- before anything runs ------------------------------------------------------------------------------------


def _check_record(run_dir: Path, record: RunRecord) -> list[str]:
    """What is to be said of a run whose files are those that it wrote; refuses others."""
    if record.status != "finished":
        hint = ""
        if record.status in ("interrupted", "running"):
            hint = f"assay resume {shlex.quote(str(run_dir))}"
        raise AssayError(
            f"{run_dir} is not a finished run: its status is {record.status}", hint=hint
        )
    removed = [
        n for n in record.files if n.startswith("checkpoints/") and not (run_dir / n).is_file()
    ]
    needed = {n: digest for n, digest in record.files.items() if n not in (*removed, *RESULTS)}
    if changed := find_changed_files(run_dir, needed):
        are = "have changed since the run wrote them"
        if len(changed) == 1:
            are = "has changed since the run wrote it"
        raise AssayError(
            f"{', '.join(changed)} in {run_dir} {are}: nothing can be compared with it"
        )
    if not removed:
        return []
    weights = "its weights are not known"
    if record.weights_sha256:
        weights = "the record holds the SHA-256 of the weights"
    return [f"removed: {', '.join(removed)}; {weights}"]


def find_changed_files(run_dir: Path, files: dict[str, str]) -> list[str]:
    """Files of a run that are no longer what the run wrote, or gone; checkpoints are read."""
    return [name for name, digest in files.items() if digest_of_file(run_dir / name) != digest]


def _plan(run_dir: Path, record: RunRecord) -> _Plan:
    here = Path.cwd()
    if record.git is None:
        return _Plan(
            notes=["the run was outside a git repository: the code in this folder was run"]
        )
    if not record.git.get("patch_complete"):
        raise AssayError(f"{_NOT_RESTORED}changes were too large for code.patch, or held secrets")
    state, patch = git_state(here)
    if state is None:
        remote = ""
        if record.git.get("remote"):
            remote = f" of {record.git['remote']}"
        raise AssayError(
            f"{_NOT_RESTORED}{here} is in no git repository",
            hint=f"reproduce it in a clone{remote}",
        )
    digest = ""
    if patch:
        digest = hashlib.sha256(patch.encode("utf-8", "surrogateescape")).hexdigest()
    commit = record.git.get("commit") or ""
    if (state["commit"] or "", digest) == (commit, record.patch_sha256):
        return _Plan()
    root = here.resolve()
    for _ in Path(state["folder"]).parts:
        root = root.parent
    own_patch = None
    if record.patch_sha256:
        own_patch = run_dir / "code.patch"
    folder = str(record.git.get("folder", "."))
    if Path(folder).is_absolute() or ".." in Path(folder).parts:
        raise AssayError(f"{run_dir / 'record.json'} is damaged: its code is in {folder!r:.80}")
    return _Plan(root, commit, own_patch, folder)


def _describe_code(plan: _Plan) -> str:
    files = []
    if plan.patch is not None:
        files = patched_files(plan.patch.read_text("utf-8", "surrogateescape"))
    base = "no commit"
    if plan.commit:
        base = f"commit {plan.commit[:12]}"
    if files:
        base += f" with the changes of its code.patch ({join_first(files)})"
    return f"the run's code differs from the code here: {base} would be run"


def _notes(record: RunRecord) -> list[str]:
    notes = []
    if changed := package_changes(record.packages, packages()):
        notes = [f"packages: {', '.join(changed)}"]
    for entry in record.resumed:
        if entry.get("changed"):
            keys = ", ".join(entry["changed"])
            notes.append(f"the run was changed at step {entry.get('from_step')}: {keys}")
    return notes + differences_within(record)


# -- the run, once more --------------------------------------------------------------------------------------


def module_path(root: Path, folder: str | Path, code: Path, others: str) -> str:
    """The code of the run before all else, wherever the checkout lies on the module path now."""
    inside = [Path(entry) for entry in sys.path if entry and Path(entry).is_relative_to(root)]
    places = [code / folder, *(code / entry.relative_to(root) for entry in inside)]
    folders = [str(place) for place in dict.fromkeys(places) if place.is_dir()]
    return os.pathsep.join([*folders, *filter(None, [others])])


def _own_folders() -> list[str]:
    """Places on the module path that hold no installed packages: the user's own code."""
    installed = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    return [
        place
        for place in sys.path
        if place
        and not any(map(Path(place).resolve().is_relative_to, installed))
        and not any(Path(place).glob("*.dist-info"))
    ]


def _run_again(
    python: Path,
    run_dir: Path,
    again: Path,
    environment: dict[str, str],
    trusted: Sequence[str],
) -> None:
    signal = ""
    question = {"run": str(run_dir), "again": str(again), "trusted": [*trusted]}
    try:
        ask(
            question,
            again.parent,
            python=str(python),
            folder=Path.cwd(),
            environment=environment,
        )
    except Stopped as stop:
        signal = stop.name
    except AssayError as error:
        raise _cannot_reproduce(error) from error
    if signal:  # not within the handler: an error that Ctrl-C has caused is not printed
        stopped = AssayError(f"stopped by {signal}")
        stopped.exit_code = exit_code_of(signal)
        raise stopped
    reproduced = RunRecord.load(again)
    if reproduced.status != "finished":
        raise _cannot_reproduce(AssayError(reproduced.reason or "its process died"))


def _cannot_reproduce(error: AssayError) -> AssayError:
    return AssayError(f"the run cannot be reproduced: {error.message}", hint=error.hint)


def _environment(record: RunRecord) -> dict[str, str]:
    """This process's, with the switches that change numbers as the run had them."""
    then: Mapping[str, Any] = record.machine.get("environment", {})
    environment = {name: value for name, value in os.environ.items() if name not in _SWITCHES}
    switches = {
        name: str(then[name]) for name in _SWITCHES if _PLAIN.fullmatch(str(then.get(name, "")))
    }
    switches.setdefault("OMP_NUM_THREADS", str(int(record.machine.get("threads") or 1)))
    return environment | switches


def _count_rows(run_dir: Path) -> int:
    path = run_dir / "metrics.csv"
    if path.is_file():
        return max(0, path.read_bytes().count(b"\n") - 1)
    return 0


_OF_THE_MACHINE = ("DeviceStatsMonitor",)
"""Columns that say how busy a machine was."""
_MOST_SCORES = 6


def differences(
    run_dir: Path, record: RunRecord, again: Path, reproduced: RunRecord
) -> list[str]:
    """What is not the same in two runs, the first step that differs before all else."""
    names = sorted(record.metrics.keys() | reproduced.metrics.keys())
    pairs = {name: (record.metrics.get(name), reproduced.metrics.get(name)) for name in names}
    scores = [
        f"{name} {then} then, {now} now"
        for name, (then, now) in pairs.items()
        if not name.startswith(_OF_THE_MACHINE) and not _is_equal(then, now)
    ]
    lines = []
    if value := first_value(run_dir, again):
        lines.append(value)
    if scores:
        lines.append(f"final scores: {'; '.join(scores[:_MOST_SCORES])}")
    then, now = record.weights_sha256, reproduced.weights_sha256
    if then and then != now:
        lines.append(f"weights: SHA-256 {then[:12]} then, {now[:12] or 'none'} now")
    return lines


def first_value(then: Path, now: Path) -> str:
    """The first logged value that is not the same in two runs; empty when all are."""
    before, after = (
        read_curves(run) if (run / METRICS_FILE).is_file() else {} for run in (then, now)
    )
    different: dict[int, str] = {}
    for name in dict.fromkeys((*before, *after)):
        curves = before.get(name, Curve()), after.get(name, Curve())
        old, new = (dict(zip(curve.steps, curve.values, strict=True)) for curve in curves)
        steps = [
            step
            for step in old.keys() | new.keys()
            if not _is_equal(old.get(step), new.get(step))
        ]
        if steps and not name.startswith(_OF_THE_MACHINE):
            step = min(steps)
            values = f"{old.get(step, 'not logged')} then, {new.get(step, 'not logged')} now"
            different.setdefault(step, f"step {step}: {name} {values}")
    return different[min(different)] if different else ""


def _is_equal(first: Any, second: Any) -> bool:
    both_nan = all(isinstance(value, float) and math.isnan(value) for value in (first, second))
    return both_nan or first == second


def causes(then: RunRecord, now: RunRecord) -> list[str]:
    """What differs between the circumstances of two runs, the most likely cause of a difference first."""
    likely = [
        f"config: changed at step {entry.get('from_step')} ({', '.join(entry['changed'])})"
        for entry in then.resumed
        if entry.get("changed")
    ]
    likely += differences_within(then)
    if then.git is None:
        likely.append("code: unknown, the run was outside a git repository")
    if then.data_sha256 != now.data_sha256:
        likely.append("data: its SHA-256 differs")
    likely += machine_changes(segments(then)[0], segments(now)[0])
    return likely or [
        "nothing in the records differs: an operation that is not deterministic (trainer.deterministic=true "
        "names it), or a record that was changed"
    ]


def patched_files(patch: str) -> list[str]:
    """Names of the files that a patch of ours touches."""
    return re.findall(r'^diff --git "?a/(.+?)"? "?b/', patch, re.MULTILINE)


def differences_within(record: RunRecord) -> list[str]:
    """What was not the same in all segments of a run, and from which step on."""
    every = segments(record)
    steps = [entry.get("from_step") for entry in record.resumed if "machine" in entry]
    return [
        f"the run was resumed at step {step} with different {change}"
        for step, before, now in zip(steps, every, every[1:], strict=False)
        for change in differences_between(before, now)
    ]


def checkout_code(repository: Path, commit: str, patch: Path | None, folder: Path) -> None:
    """Write the files of a commit into a folder, and apply a patch to them."""
    safe = git_environment(repository)
    # The hash comes from a file: nothing else may be asked of git with it.
    is_hash = re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", commit)
    if commit and not (is_hash and ask_git(repository, "cat-file", "-t", f"{commit}^{{commit}}")):
        raise AssayError(
            f"{_NOT_RESTORED}commit {commit[:12]} is not in {repository}",
            hint="git fetch, or reproduce the run in a clone that has it",
        )
    if not commit and patch is None:
        raise AssayError(f"{_NOT_RESTORED}it has neither a commit nor a patch")
    folder.mkdir(parents=True)
    if commit:
        index = {**safe, "GIT_INDEX_FILE": str(folder.parent / "index")}
        run_git(repository, "read-tree", commit, environment=index, problem=_NOT_RESTORED)
        target = f"--prefix={folder}{os.sep}"
        run_git(
            repository,
            "checkout-index",
            "--all",
            target,
            environment=index,
            problem=_NOT_RESTORED,
        )
    if patch is not None:
        # As if there were no repository around: the folder may lie in one.
        alone = {**safe, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
        problem = f"{_NOT_RESTORED}code.patch does not apply to commit {commit[:12]}: "
        options = ("--binary", "--whitespace=nowarn", str(patch.resolve()))
        run_git(folder, "apply", *options, environment=alone, problem=problem)


_NOT_RESTORED = "the run's code cannot be restored: "
