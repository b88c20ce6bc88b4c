"""A job that equals a finished run is not trained again. What may differ in the last bit is not equal."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from msgspec.structs import replace

from assay.config.serialize import NOT_IDENTITY
from assay.config.tree import walk
from assay.config.unread_keys import OUR_DATA
from assay.config.yaml_file import load_mapping
from assay.errors import AssayError, is_users_own
from assay.files.atomic import fcntl, temporary_folder, write_bytes
from assay.files.symlinks import check_links, open_append, read_whole
from assay.paths import CODE_DIR
from assay.record.provenance import (
    NUMERIC_PACKAGES,
    describe_code,
    machine_changes,
    run_git,
    segments,
)
from assay.record.run_directory import digest_of_file, log
from assay.record.run_lock import FILE as LOCK
from assay.record.run_lock import is_written
from assay.record.run_record import FILE, RunRecord
from assay.terminal import Console, print_lines
from assay_analysis.read_runs import find_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.assemble.assembly import Assembly
    from assay.record.run_record import Outcome
    from assay_sweep.job_spec import JobSpec

_FINGERPRINT = re.compile(rb'"fingerprint": "([0-9a-f]{64})"')
_NOT_READ = ("data", "spec", *NOT_IDENTITY)
_CLAIMS = ".claims"
"""A file of the folder of runs, of which a sweep locks one byte for each job that it trains now."""
_PAUSE = 50.0
"""Times as long as a search for runs takes, until the next one."""


@final
class KnownRuns:
    """The runs that lie where a sweep writes, and the jobs that another sweep trains now.

    A claim is a lock of the sweep's process and ends with it, also on a network file system.
    """

    def __init__(self, directory: Path, *, reuse: bool) -> None:
        self._root = _root_of(directory)
        self._reuse = reuse
        self._runs: dict[str, list[Path]] = {}
        self._next_search = 0.0
        self._awaited: set[str] = set()
        self._claims = -1
        if reuse and fcntl is not None and self._root.is_dir():
            with suppress(OSError):  # nobody can write there
                self._claims = open_append(self._root / _CLAIMS, readable=True)

    def find(self, job_spec: JobSpec, fingerprint: str) -> list[str]:
        """Directories of runs that a job may be, also of those that have begun since the last call."""
        if not (self._reuse and _may_be_reused(job_spec)):
            return []
        start = time.monotonic()
        if start >= self._next_search:
            self._runs = find_finished(self._root)
            end = time.monotonic()
            self._next_search = end + _PAUSE * (end - start)
        return [str(path) for path in self._runs.get(fingerprint, ())]

    def claim(self, job_spec: JobSpec, fingerprint: str) -> bool:
        """Have other sweeps wait for a job of this one; return False where another one trains it."""
        if self._claims < 0 or not _may_be_reused(job_spec):
            return True
        try:
            fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(fingerprint))
        except (BlockingIOError, PermissionError):
            return False
        except OSError:  # a file system without locks
            pass
        return True

    def reclaim(self, job_spec: JobSpec, fingerprint: str) -> bool:
        """Claim a job that another sweep has trained, and see at the next call of `find` what it has left."""
        claimed = self.claim(job_spec, fingerprint)
        if claimed:
            self._next_search = 0.0
            self._awaited.add(fingerprint)
        return claimed

    def release(self, fingerprint: str, outcome: Outcome) -> None:
        """Let other sweeps have a job that has ended."""
        trained = outcome.status == "finished" and not outcome.reused_from
        if trained and fingerprint in self._awaited:
            self.close()  # what keeps this job from being the other's holds for all
        if self._claims >= 0:
            with suppress(OSError):  # a file system without locks
                fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, _place(fingerprint))

    def close(self) -> None:
        """Release all jobs, and claim none from here on."""
        if self._claims >= 0:
            os.close(self._claims)
        self._claims = -1


def _place(fingerprint: str) -> int:
    return int(fingerprint[:15], 16)


def _may_be_reused(job_spec: JobSpec) -> bool:
    """Whether a job may be a finished run; a trial has to report, and what a GPU or ranks compute differs."""
    processes = job_spec.nodes * job_spec.processes
    return job_spec.trial is None and not job_spec.gpus and processes == 1


def _root_of(run_dir: Path) -> Path:
    """The folder that holds the runs where a run is to be written."""
    if run_dir.is_absolute() or not run_dir.parts:
        return Path("outputs")
    return Path(run_dir.parts[0])


def find_finished(root: Path) -> dict[str, list[Path]]:
    """Runs below a folder by the fingerprint of their job.

    Their records are searched, not parsed: thousands take a fraction of a second.
    """
    found: dict[str, list[Path]] = {}
    if root.is_dir():
        for path in find_runs(root):
            with suppress(OSError):
                if match := _FINGERPRINT.search(read_whole(path / FILE, 256 << 20)):
                    found.setdefault(match[1].decode(), []).append(path)
    return found


def offer(record: RunRecord, assembly: Assembly, *, take: bool) -> Path | None:
    """Name the finished run that a job equals, and take it where that was asked for."""
    run_dir = Path(assembly.config.run_dir)
    same, doubts = find_same(
        record, assembly, find_finished(_root_of(run_dir)).get(record.fingerprint, ())
    )
    if same is None and take:
        _print_reuse("no finished run has this config: training")
    elif same is not None and doubts:
        _print_reuse(_describe_doubts(same, doubts))
    elif same is not None and take:
        _print_reuse(f"{same} is this run, finished: nothing is trained")
    elif same is not None:
        _print_reuse(f"{same} is this run, finished: add --reuse to take it")
    return same if take and not doubts else None


def _describe_doubts(path: Path, doubts: Sequence[str]) -> str:
    return f"{path} has this config, but is not taken for this run: {'; '.join(doubts[:3])}"


def _print_reuse(line: str) -> None:
    print_lines(Console(highlight=False), [("reuse", line)])


def find_same(
    record: RunRecord, assembly: Assembly, candidates: Iterable[Path]
) -> tuple[Path | None, list[str]]:
    """A finished run of this config, and what keeps it from being this run; nothing where it is."""
    closest = None
    doubts: list[str] = []
    for path in candidates:
        with suppress(AssayError, OSError):  # it is damaged, or gone
            other = RunRecord.load(path)
            if (other.fingerprint, other.status) != (record.fingerprint, "finished"):
                continue
            doubts = _doubts(record, assembly, path, other)
            closest = path
            if not doubts:
                break
    return closest, doubts


def _doubts(record: RunRecord, assembly: Assembly, path: Path, other: RunRecord) -> list[str]:
    """Why a finished run of the same config may not be this run, bit for bit."""
    config = assembly.config
    own_code = _user_files(assembly)
    now = _as_compared(segments(record)[0])
    doubts = [_doubt_code(record, own_code)]
    for then in map(_as_compared, segments(other)):
        if own_code and then["code"] != now["code"]:
            doubts.append(f"code: {describe_code(then)} then, {describe_code(now)} now")
        doubts += machine_changes(then, now)
        new = now["packages"].keys() - then["packages"].keys()
        doubts += [f"packages: {name} none then" for name in sorted(new)]
    device = assembly.trainer.strategy.root_device.type
    source = config.data.get("source") or {}
    kind = str(source.get("_target_"))
    read = (entry for entry in walk(config) if entry.key.partition(".")[0] not in _NOT_READ)
    files = [
        entry.key
        for entry in read
        if isinstance(entry.value, str) and os.path.exists(os.path.expanduser(entry.value))  # noqa: PTH110, PTH111 - neither raises
    ]
    kept = load_mapping(path / "config.yaml").get("predictions")
    sums = other.files.items()
    causes = {
        f"device: results of {device} may differ": device != "cpu",
        "trainer.max_time: it ends by the clock": config.trainer.get("max_time"),
        f"{', '.join(files)}: contents of files are not hashed": files,
        "data: not all of its contents are hashed": config.data.get("_target_") != OUR_DATA
        or not kind.startswith("assay.")
        or kind.startswith("assay.data.core.custom.")
        or "://" in str(source.get("path")),
        "data: its SHA-256 differs": other.data_sha256 != record.data_sha256,
        "config: changed on resuming": any(entry.get("changed") for entry in other.resumed),
        "it lost rows, or ran out of memory": other.reason or other.micro_batch,
        "it was changed after its end": other.test_looks or other.threshold.get("chosen"),
        "predictions: other ones are kept": kept != assembly.plain.get("predictions"),
        "files: not as the run wrote them": is_written(path)
        or any(digest_of_file(path / name) != digest for name, digest in sums),
    }
    doubts += [cause for cause, holds in causes.items() if holds]
    return [*dict.fromkeys(filter(None, doubts))]


def _as_compared(segment: dict[str, Any]) -> dict[str, Any]:
    """A segment with its code, and those of its packages that compute or that this process has loaded."""
    loaded = {*sys.modules, *(name.replace("-", "_") for name in NUMERIC_PACKAGES)}
    packages = {
        name: version
        for name, version in segment["packages"].items()
        if name.lower().replace("-", "_") in loaded
    }
    git = segment["git"] or {}
    code = [git.get(name) for name in ("commit", "folder", "patch_complete")]
    return {**segment, "packages": packages, "code": [*code, segment["patch_sha256"]]}


def _doubt_code(record: RunRecord, files: Sequence[Path]) -> str:
    """Why the code that runs cannot be told from other code; empty where commit and patch say it all."""
    commit = record.machine["assay"]
    if commit.endswith("-dirty") or not (commit or _is_packaged(CODE_DIR)):
        return "code: assay itself has uncommitted changes"
    if not files:
        return ""
    if record.git is None or not record.git["patch_complete"]:
        return f"code: {files[0]} is in no repository, or its changes are not all recorded"
    root = Path.cwd().resolve()
    for _ in Path(record.git["folder"]).parts:
        root = root.parent
    unknown = [path for path in files if not path.is_relative_to(root) or path.suffix != ".py"]
    if not unknown:
        names = [f":(top,literal){path.relative_to(root)}" for path in files]
        listing = ("ls-files", "--others", "--ignored", "--exclude-standard", "-z", "--")
        unknown = [Path(name) for name in run_git(root, *listing, *names).split("\0") if name]
    return "".join(f"code: {path} is not recorded" for path in unknown[:1])


def _user_files(assembly: Assembly) -> list[Path]:
    """Files of loaded modules that are not installed; none where nothing of the user's own can be called."""
    added = any(group.startswith("assay.") for group in entry_points().groups)
    if not (added or assembly.config.get("trusted_packages")):
        return []
    modules = [module for name, module in [*sys.modules.items()] if name != "__main__"]
    files = {str(getattr(module, "__file__", None) or "") for module in modules}
    own = {Path(file).resolve() for file in files if is_users_own(file)}
    return sorted(path for path in own if not _is_packaged(path))


def _is_packaged(path: Path) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(path.parts)


def copy_finished(
    record: RunRecord, assembly: Assembly, *, candidates: Iterable[str]
) -> Path | None:
    """Make the run directory of a sweep's job from the finished run that it equals, if there is one."""
    run_dir = Path(assembly.config.run_dir)
    source, doubts = find_same(record, assembly, map(Path, candidates))
    if source is None or doubts:
        if source is not None:
            _print_reuse(_describe_doubts(source, doubts))
        return None
    try:
        _copy(source, run_dir, record, assembly.plain)
    except (AssayError, OSError, shutil.Error) as error:
        log.warning("%s could not be reused, so the job is trained: %s", source, error)
        return None
    return run_dir


def _copy(source: Path, run_dir: Path, record: RunRecord, plain: Mapping[str, Any]) -> None:
    """Copy a finished run under this job's name; checkpoints, which nothing changes in place, are linked."""
    from assay.run.train import write_run

    finished = RunRecord.load(source)
    check_links(source)
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(run_dir) as scratch:
        folder = scratch / run_dir.name
        left_out = shutil.ignore_patterns(LOCK, ".*.tmp", "report.html")
        shutil.copytree(source, folder, symlinks=True, ignore=left_out, copy_function=_copy_file)
        if RunRecord.load(source) != finished:
            raise AssayError("it has changed while it was copied")
        names = ("run_id", "name", "overrides", "config_dir", "choices", "tags", "interpolations")
        copied = replace(
            finished,
            **{name: getattr(record, name) for name in names},
            evaluations=[],
            reused_from=finished.reused_from or str(source),
        )
        write_run(folder, plain, copied, {}, "hydra.sweep.dir=SOMEWHERE/ELSE")
        for name in ("config.yaml", "overrides.yaml"):
            copied.files[name] = digest_of_file(folder / name) or ""
        copied.save(folder)
        folder.rename(run_dir)


def _copy_file(source: str, target: str) -> None:
    if Path(source).parent.name == "checkpoints":
        with suppress(OSError):  # on another disk
            os.link(source, target, follow_symlinks=False)
            return
    write_bytes(Path(target), read_whole(Path(source), sys.maxsize))
