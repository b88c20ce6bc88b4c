"""Where a run came from: packages, machine and code of each of its segments, with what git would lose."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import logging
import math
import os
import platform
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, ConfigError, first_line
from assay.paths import CODE_DIR
from assay.quoting import join_first
from assay.record.secrets import is_secret, redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import git

    from assay.record.run_record import RunRecord


log = logging.getLogger(__name__)

_CHANGE_NUMBERS = (
    *("ATEN_CPU_CAPABILITY", "CUBLAS_", "CUDA_VISIBLE_DEVICES", "CUDNN_", "DNNL_", "GLIBC_TUNABLES"),
    *("HIP_VISIBLE_DEVICES", "KMP_", "MKL_", "NCCL_", "NPY_DISABLE_CPU_FEATURES", "NUMEXPR_NUM_THREADS"),
    *("NVIDIA_TF32_OVERRIDE", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHONHASHSEED", "PYTORCH_"),
    *("TORCHINDUCTOR_", "TORCH_", "VECLIB_MAXIMUM_THREADS"),
)
"""How the names of environment variables begin that change numbers."""
_SHOWN = 8
_CPUINFO = Path("/proc/cpuinfo")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def git_state(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """Commit and patch of the repository that a folder lies in."""
    try:
        import git
    except ImportError:  # GitPython raises this when there is no git executable
        return None, ""
    try:
        with git.Repo(folder, search_parent_directories=True) as repository:
            if repository.bare:
                return None, ""
            try:
                patch, complete = code_patch(repository)
            except (git.GitError, OSError) as error:
                log.warning("the changes in %s could not be read: %s", repository.working_dir, error)
                patch = ""
                complete = False
            return {
                "commit": head_of(repository),
                "branch": None if repository.head.is_detached else repository.active_branch.name,
                "dirty": bool(patch) or not complete,
                "remote": _remote(repository),
                "patch_complete": complete,
                "folder": folder.resolve().relative_to(Path(repository.working_dir).resolve()).as_posix(),
            }, patch
    except (git.InvalidGitRepositoryError, git.NoSuchPathError):
        return None, ""
    except (git.GitError, OSError, ValueError) as error:
        log.warning("the state of the repository at %s could not be read: %s", folder, error)
        return None, ""


def assay_commit() -> str:
    """Commit of assay itself, as git says it of a checkout and `hatch_build.py` wrote it into a wheel.

    Empty where it is unknown; it ends in `-dirty` where files have changed since.
    """
    if (built_in := CODE_DIR / "COMMIT").is_file():
        return built_in.read_text(encoding="ascii").strip()
    checkout = CODE_DIR.parents[1]
    if not (checkout / ".git").exists():  # whatever repository an environment lies in is not assay's
        return ""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"]
    with contextlib.suppress(OSError):  # there is no git
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603 - git, with fixed arguments
    return ""


def check_clean(folder: Path) -> None:
    """Refuse to go on where git would lose code; what `enforce_clean_git` asks for."""
    refuse_uncommitted(folder, *git_state(folder))


def refuse_uncommitted(folder: Path, state: dict[str, Any] | None, patch: str) -> None:
    """As `check_clean`, where the state of the repository is known."""
    if state is None:
        raise ConfigError(
            f"{folder} lies in no git repository", key="enforce_clean_git", hint="git init, and commit"
        )
    if state["dirty"]:
        shown = join_first(patched_files(patch), _SHOWN)
        message = f"these are not committed: {shown or 'files too large for a patch'}"
        raise ConfigError(message, key="enforce_clean_git", hint="git commit, or enforce_clean_git=false")


def patched_files(patch: str) -> list[str]:
    """Names of the files that a patch of ours touches."""
    return re.findall(r'^diff --git "?a/(.+?)"? "?b/', patch, re.MULTILINE)


def _remote(repository: git.Repo) -> str | None:
    """Address of the remote `origin`, else of any, without credentials and query."""
    remotes = sorted(repository.remotes, key=lambda remote: remote.name != "origin")
    return redact(re.sub(r"[?#].*", "", next(iter(remotes[0].urls)))) if remotes else None


@functools.cache
def packages() -> dict[str, str]:
    """Version of every installed distribution; of two by one name, the one that is imported."""
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        # Its own parser of emails takes half a second for a few hundred of them.
        headers = dict(re.findall(r"^(Name|Version): (.+)$", text.partition("\n\n")[0], re.MULTILINE))
        if len(headers) == 2:
            versions.setdefault(headers["Name"], headers["Version"])
    return dict(sorted(versions.items(), key=lambda item: item[0].lower()))


@functools.cache
def cpu_model() -> str:
    """The processor's name, as the system tells it."""
    text = _CPUINFO.read_text(encoding="utf-8") if _CPUINFO.is_file() else ""
    # An ARM core has numbers in place of a name.
    named = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    numbers = re.findall(r"^CPU (?:implementer|part)\s*: (.+)$", text, re.MULTILINE)[:2]
    return named[1] if named else " ".join((platform.processor() or platform.machine(), *numbers))


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # there is none; `max`, which is no number
        quota, period = map(int, _QUOTA.read_text(encoding="ascii").split())
        cores = min(cores, math.ceil(quota / period))
    return cores


def machine(gpus: list[str], threads: int) -> dict[str, Any]:
    """What the run ran on."""
    import psutil

    return {
        "hostname": socket.gethostname(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "threads": threads,
        "gpus": gpus,
        "environment": numeric_environment(),
    }


def numeric_environment() -> dict[str, str]:
    """The environment variables that change numbers; a fixed list, and nothing else of the environment."""
    names = sorted(name for name in os.environ if name.startswith(_CHANGE_NUMBERS) and not is_secret(name))
    return {name: redact(os.environ[name]) for name in names}


NUMERIC_PACKAGES = (
    *("torch", "lightning", "numpy", "torchvision", "torchmetrics", "scikit-learn", "assay", "pandas"),
    *("pillow", "scipy"),
)
"""Packages that compute."""
_MOST_PACKAGES = 6
_FIELDS = ("git", "patch_sha256", "packages", "machine")


def describe_segment(gpus: list[str], threads: int) -> tuple[dict[str, Any], str]:
    """What a segment that begins now runs with."""
    git, patch = git_state(Path.cwd())
    return {
        "git": git,
        "patch_sha256": hashlib.sha256(patch.encode("utf-8", "surrogateescape")).hexdigest() if patch else "",
        "packages": packages(),
        "machine": machine(gpus, threads),
    }, patch


def segments(record: RunRecord) -> list[dict[str, Any]]:
    """What each segment of a run ran with, from the first on; the unknown ones are left out."""
    every = [{name: getattr(record, name) for name in _FIELDS}]
    for entry in record.resumed:
        if "machine" in entry:
            new = {name: version for name, version in entry.get("packages", {}).items() if version}
            gone = entry.get("packages", {}).keys() - new.keys()
            kept = {name: version for name, version in every[-1]["packages"].items() if name not in gone}
            every.append({name: entry.get(name) for name in _FIELDS} | {"packages": kept | new})
    return every


def segment_changes(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """A segment as an entry of the record says it: of the packages those that are not as before."""
    then = before["packages"]
    new = now["packages"]
    changed = {name: new.get(name, "") for name in sorted({**then, **new}) if then.get(name) != new.get(name)}
    return {**now, "packages": changed}


def differences_within(record: RunRecord) -> list[str]:
    """What was not the same in all segments of a run, and from which step on."""
    every = segments(record)
    steps = [entry.get("from_step") for entry in record.resumed if "machine" in entry]
    return [
        f"the run itself went on at step {step} with other {change}"
        for step, before, now in zip(steps, every, every[1:], strict=False)
        for change in differences_between(before, now)
    ]


def differences_between(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two segments, the code first."""
    before = describe_code(then)
    after = describe_code(now)
    code = [] if before == after else [f"code: {before} then, {after} now"]
    return [*code, *machine_changes(then, now)]


def describe_code(segment: Mapping[str, Any]) -> str:
    """Commit and changes of a segment's code."""
    if segment["git"] is None:
        return "not in a repository"
    patch = f" with changes ({segment['patch_sha256'][:8]})" if segment["patch_sha256"] else ""
    return f"commit {(segment['git'].get('commit') or 'none')[:12]}{patch}"


def machine_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between machines and packages, the most likely cause of other numbers first."""
    before = then["machine"]
    after = now["machine"]
    names = {"gpus": "device", "cpu": "CPU", "threads": "threads", "python": "python", "platform": "platform"}
    changes = [
        f"{name}: {before.get(key) or 'none'} then, {after.get(key) or 'none'} now"
        for key, name in names.items()
        if before.get(key) != after.get(key)
    ]
    if changed := package_changes(then["packages"], now["packages"]):
        changes.append(f"packages: {', '.join(changed)}")
    old = before.get("environment", {})
    new = after.get("environment", {})
    # The number of threads is compared as such.
    switches = [
        f"{name}={old.get(name, '')} then, {new.get(name, '')} now"
        for name in sorted((old.keys() | new.keys()) - {"OMP_NUM_THREADS"})
        if old.get(name) != new.get(name)
    ]
    return [*changes, f"environment: {', '.join(switches)}"] if switches else changes


def package_changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Packages of another version, those that compute first."""
    changed = (name for name in then if then[name] != now.get(name))
    names = sorted(changed, key=lambda name: (name not in NUMERIC_PACKAGES, name))
    shown = [f"{name} {then[name]} then, {now.get(name, 'none')} now" for name in names[:_MOST_PACKAGES]]
    return [*shown, f"{len(names) - _MOST_PACKAGES} more"] if len(names) > _MOST_PACKAGES else shown


_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.quotePath": "false",
    "submodule.recurse": "false",
    "diff.submodule": "short",
    "diff.ignoreSubmodules": "dirty",
}
_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone would fetch what it lacks, by whatever its remote names
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}


def git_environment(git_dir: Path) -> dict[str, str]:
    """Environment variables with which git runs no hook, monitor, filter or helper of a repository's own."""
    settings = {**_SETTINGS, **_disable_filters(git_dir)}
    count = os.environ.get("GIT_CONFIG_COUNT", "0")  # what the user has set this way stays
    first = int(count) if count.isdigit() else 0
    variables = {**_VARIABLES, "GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (key, value) in enumerate(settings.items(), start=first):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _disable_filters(git_dir: Path) -> dict[str, str]:
    """Each filter that the repository's own settings name, set to the user's own or to none."""
    command = ["git", "config", "--includes", "--show-scope", "--null", "--get-regexp", r"^filter\."]
    environment = {**os.environ, "GIT_DIR": str(git_dir)}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)  # noqa: S603 - git, with fixed arguments
    words = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    users: dict[str, str] = {}
    options: list[str] = []
    for scope, pair in zip(words[::2], words[1::2], strict=False):  # an empty word is left at the end
        key, _, value = pair.partition("\n")
        if scope in ("local", "worktree"):
            options.append(key)
        else:
            users[key] = value
    return {key: users.get(key, "false" if key.endswith(".required") else "") for key in options}


def safe_git_environment(folder: Path) -> Mapping[str, str]:
    """As `git_environment`, for the repository that a folder lies in; what suits any where there is none."""
    import git

    try:
        with git.Repo(folder, search_parent_directories=True) as repository:
            return git_environment(Path(repository.git_dir))
    except (git.GitError, OSError, ValueError):
        return git_environment(folder)


_SOURCES = (".py", ".pyi", ".yaml", ".yml", ".toml", ".cfg", ".json", ".sh")
_CREDENTIALS = re.compile(
    r"(.*[._-])?(credentials?|secrets?|env|tokens?|passwords?|service[_-]?account|kaggle|client[_-]secrets?"
    r"|auth|api[_-]?keys?)([._-].*)?\.(?!pyi?$)\w+",
    re.IGNORECASE,
)
"""Files that hold nothing but secrets; a `tokens.py` is code, in which secrets are struck out."""
_LARGEST_UNTRACKED = 1 << 20
_LARGEST_PATCH = 20 << 20
# Whatever the user's own settings make of a diff, this is what `git apply` reads.
_FORMAT = (
    *("--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"),
    *("--no-relative", "--ignore-submodules=dirty", "--src-prefix=a/", "--dst-prefix=b/"),
)


def code_patch(repository: git.Repo, largest: int = _LARGEST_PATCH) -> tuple[str, bool]:
    """Changes against HEAD, and the source files that git neither tracks nor ignores."""
    root = Path(repository.working_dir)
    with tempfile.TemporaryDirectory() as folder:
        # Announced in a copy of the index, so that one diff shows everything and the user's own stays.
        index = Path(folder) / "index"
        if (index_file := Path(repository.git_dir) / "index").is_file():
            shutil.copy2(index_file, index)  # with its time, by which git tells what may have changed since
        common = Path(repository.common_dir).resolve()
        environment = {
            **git_environment(Path(repository.git_dir)),
            "GIT_INDEX_FILE": str(index),
            "GIT_OBJECT_DIRECTORY": folder,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(common / "objects"),
        }
        with repository.git.custom_environment(**environment):
            all_there = _announce_untracked(repository, root)
            base = "HEAD" if head_of(repository) else repository.git.hash_object("-t", "tree", os.devnull)
            content = repository.git.diff(
                base, *_FORMAT, "--", ":/", stdout_as_string=False, strip_newline_in_stdout=False
            )
    text = bytes(content).decode("utf-8", "surrogateescape")
    redacted = redact(text, code=True)
    if len(redacted) > largest:
        return "", False
    return redacted, all_there and redacted == text


def head_of(repository: git.Repo) -> str | None:
    """The commit that is checked out, in hexadecimal digits; None before the first."""
    from git import SymbolicReference

    try:  # GitPython's `head.commit` starts a process to look the commit up
        return SymbolicReference.dereference_recursive(repository, repository.head.path)
    except ValueError:
        return None


def _announce_untracked(repository: git.Repo, root: Path) -> bool:
    """Add the untracked source files with intent; False where some are too large, or hold credentials."""
    listed = repository.git.ls_files("--others", "--exclude-standard", "--full-name", "-z", ":/").split("\0")
    skipped: dict[Path, bool] = {}
    found = [
        root / name
        for name in listed
        if name.endswith(_SOURCES) and not _is_generated((root / name).parent, root, skipped)
    ]
    kept = [
        path
        for path in found
        if path.lstat().st_size <= _LARGEST_UNTRACKED and not _CREDENTIALS.fullmatch(path.name)
    ]
    if sources := [path.relative_to(root).as_posix() for path in kept]:
        listing = "\0".join(f":(top,literal){name}" for name in sources).encode("utf-8", "surrogateescape")
        with tempfile.TemporaryFile() as file:
            file.write(listing)
            file.seek(0)
            repository.git.add(
                "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul", istream=file
            )
    return kept == found


def _is_generated(folder: Path, root: Path, seen: dict[Path, bool]) -> bool:
    """Whether a folder lies in a run directory or a virtual environment."""
    if folder not in seen:
        here = folder != root and ((folder / "record.json").is_file() or (folder / "pyvenv.cfg").is_file())
        seen[folder] = here or (folder != root and _is_generated(folder.parent, root, seen))
    return seen[folder]


def checkout_code(repository: Path, commit: str, patch: Path | None, folder: Path) -> None:
    """Write the files of a commit into a folder, and apply a patch to them."""
    safe = safe_git_environment(repository)
    if commit and not _has_commit(repository, commit, safe):
        raise AssayError(
            f"the run's code cannot be brought back: commit {commit[:12]} is not in {repository}",
            hint="git fetch, or reproduce the run in a clone that has it",
        )
    if not commit and patch is None:
        raise AssayError("the run's code cannot be brought back: it has neither a commit nor a patch")
    folder.mkdir(parents=True)
    if commit:
        index = {**safe, "GIT_INDEX_FILE": str(folder.parent / "index")}
        _git(repository, ["read-tree", commit], index)
        _git(repository, ["checkout-index", "--all", f"--prefix={folder}{os.sep}"], index)
    if patch is not None:
        # As if there were no repository around: the folder may lie in one.
        alone = {**safe, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
        problem = f"code.patch does not apply to commit {commit[:12]}: "
        _git(folder, ["apply", "--binary", "--whitespace=nowarn", str(patch.resolve())], alone, problem)


def _has_commit(repository: Path, commit: str, environment: Mapping[str, str]) -> bool:
    # The hash comes from a file: nothing else may be asked of git with it.
    if len(commit) not in (40, 64) or not all(letter in "0123456789abcdef" for letter in commit):
        return False
    return not _run(repository, ["cat-file", "-e", f"{commit}^{{commit}}"], environment).returncode


def _git(folder: Path, arguments: Sequence[str], environment: Mapping[str, str], problem: str = "") -> None:
    done = _run(folder, arguments, environment)
    if done.returncode:
        reason = first_line(done.stderr) or "git failed"
        raise AssayError(f"the run's code cannot be brought back: {problem}{reason}")


def _run(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[Any]:
    return subprocess.run(  # noqa: S603 - git, with a hash that was looked at and paths of our own
        ["git", *arguments],  # noqa: S607 - the user's git
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
