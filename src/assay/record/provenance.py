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

from assay.errors import AssayError, first_line
from assay.paths import CODE_DIR
from assay.process import cpu_quotas
from assay.record.secrets import is_secret, redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.record.run_record import RunRecord


log = logging.getLogger(__name__)

_CHANGE_NUMBERS = (
    *(
        "ATEN_CPU_CAPABILITY",
        "CUBLAS_",
        "CUDA_VISIBLE_DEVICES",
        "CUDNN_",
        "DNNL_",
        "GLIBC_TUNABLES",
    ),
    *(
        "HIP_VISIBLE_DEVICES",
        "KMP_",
        "MKL_",
        "NCCL_",
        "NPY_DISABLE_CPU_FEATURES",
        "NUMEXPR_NUM_THREADS",
    ),
    *("NVIDIA_TF32_OVERRIDE", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHONHASHSEED", "PYTORCH_"),
    *("TORCHINDUCTOR_", "TORCH_", "VECLIB_MAXIMUM_THREADS"),
)
"""How the names of environment variables begin that change numbers."""
_CPUINFO = Path("/proc/cpuinfo")


def git_state(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """Commit and patch of the repository that a folder lies in."""
    try:
        root = Path(run_git(folder, "rev-parse", "--show-toplevel").rstrip("\n"))
    except FileNotFoundError:  # there is no git, or no such folder
        return None, ""
    except (AssayError, OSError) as error:
        if _NO_REPOSITORY not in str(error):
            log.warning("the state of the repository at %s could not be read: %s", folder, error)
        return None, ""
    try:
        patch, complete = code_patch(root)
    except (AssayError, OSError) as error:
        log.warning("the changes in %s could not be read: %s", root, error)
        patch = ""
        complete = False
    return {
        "commit": _head_of(root),
        "branch": ask_git(root, "symbolic-ref", "--quiet", "--short", "HEAD") or None,
        "dirty": bool(patch) or not complete,
        "remote": _remote(root),
        "patch_complete": complete,
        "folder": folder.resolve().relative_to(root.resolve()).as_posix(),
    }, patch


@functools.cache
def assay_commit() -> str:
    """Commit of assay itself, as git says it of a checkout and `hatch_build.py` wrote it into a wheel.

    Empty where it is unknown; it ends in `-dirty` where files have changed since.
    """
    if (built_in := CODE_DIR / "COMMIT").is_file():
        return built_in.read_text(encoding="ascii").strip()
    checkout = CODE_DIR.parents[1]
    # whatever repository an environment lies in is not assay's
    if not (checkout / ".git").exists():
        return ""
    with contextlib.suppress(OSError):  # there is no git
        return ask_git(checkout, "describe", "--always", "--dirty", "--abbrev=12")
    return ""


def _remote(root: Path) -> str | None:
    """Address of the remote `origin`, else of any, without credentials and query."""
    remotes = ask_git(root, "config", "--get-regexp", r"^remote\..*\.url$").splitlines()
    urls = sorted(remotes, key=lambda line: not line.startswith("remote.origin.url "))
    if urls:
        return redact(re.sub(r"[?#].*", "", urls[0].partition(" ")[2]))
    return None


@functools.cache
def packages() -> dict[str, str]:
    """Version of every installed distribution; of two by one name, the one that is imported."""
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        # Its own parser of emails takes half a second for a few hundred of them.
        headers = dict(
            re.findall(r"^(Name|Version): (.+)$", text.partition("\n\n")[0], re.MULTILINE)
        )
        if len(headers) == 2:
            versions.setdefault(headers["Name"], headers["Version"])
    return dict(sorted(versions.items(), key=lambda item: item[0].lower()))


@functools.cache
def cpu_model() -> str:
    """The processor's name, as the system tells it."""
    text = ""
    if _CPUINFO.is_file():
        text = _CPUINFO.read_text(encoding="utf-8")
    # An ARM core has numbers in place of a name.
    named = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    numbers = re.findall(r"^CPU (?:implementer|part)\s*: (.+)$", text, re.MULTILINE)[:2]
    if named:
        return named[1]
    return " ".join((platform.processor() or platform.machine(), *numbers))


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and the quotas of its control groups."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return min([cores, *map(math.ceil, cpu_quotas())])


def idle_cores() -> int:
    """Cores of this process that nothing uses for a tenth of a second, in which it waits."""
    import psutil

    shares = psutil.cpu_percent(0.1, percpu=True)
    if hasattr(os, "sched_getaffinity"):
        cores = os.sched_getaffinity(0)
        shares = [share for core, share in enumerate(shares) if core in cores]
    return min(usable_cores(), round(len(shares) - sum(shares) / 100))


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
        "assay": assay_commit(),
    }


def numeric_environment() -> dict[str, str]:
    """The environment variables that change numbers; a fixed list, and nothing else of the environment."""
    names = sorted(
        name for name in os.environ if name.startswith(_CHANGE_NUMBERS) and not is_secret(name)
    )
    return {name: redact(os.environ[name]) for name in names}


NUMERIC_PACKAGES = (
    *(
        "torch",
        "lightning",
        "numpy",
        "torchvision",
        "torchmetrics",
        "scikit-learn",
        "assay",
        "pandas",
    ),
    *("pillow", "scipy"),
)
"""Packages that compute."""
_MOST_PACKAGES = 6
_NOT_COMPARED = {
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "KMP_DUPLICATE_LIB_OK",
    "KMP_INIT_AT_FORK",
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "TORCHINDUCTOR_CACHE_DIR",
}
"""Threads and GPUs are compared as such; scikit-learn, Lightning and torch set the others as they go."""
_FIELDS = ("git", "patch_sha256", "packages", "machine")


def describe_segment(gpus: list[str], threads: int) -> tuple[dict[str, Any], str]:
    """What a segment that begins now runs with."""
    git, patch = git_state(Path.cwd())
    digest = ""
    if patch:
        digest = hashlib.sha256(patch.encode("utf-8", "surrogateescape")).hexdigest()
    return {
        "git": git,
        "patch_sha256": digest,
        "packages": packages(),
        "machine": machine(gpus, threads),
    }, patch


def segments(record: RunRecord) -> list[dict[str, Any]]:
    """What each segment of a run ran with, from the first on; the unknown ones are left out."""
    every = [{name: getattr(record, name) for name in _FIELDS}]
    for entry in record.resumed:
        if "machine" in entry:
            new = {
                name: version for name, version in entry.get("packages", {}).items() if version
            }
            gone = entry.get("packages", {}).keys() - new.keys()
            kept = {
                name: version
                for name, version in every[-1]["packages"].items()
                if name not in gone
            }
            every.append({name: entry.get(name) for name in _FIELDS} | {"packages": kept | new})
    return every


def segment_changes(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """A segment as an entry of the record says it: of the packages those that are not as before."""
    then = before["packages"]
    new = now["packages"]
    changed = {
        name: new.get(name, "")
        for name in sorted({**then, **new})
        if then.get(name) != new.get(name)
    }
    return {**now, "packages": changed}


def differences_between(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two segments, the code first."""
    before = describe_code(then)
    after = describe_code(now)
    if before != after:
        code = [f"code: {before} then, {after} now"]
    else:
        code = []
    return [*code, *machine_changes(then, now)]


def describe_code(segment: Mapping[str, Any]) -> str:
    """Commit and changes of a segment's code."""
    if segment["git"] is None:
        return "not in a repository"
    patch = ""
    if segment["patch_sha256"]:
        patch = f" with changes ({segment['patch_sha256'][:8]})"
    return f"commit {(segment['git'].get('commit') or 'none')[:12]}{patch}"


def machine_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between machines and packages, the most likely cause of other numbers first."""
    before = then["machine"]
    after = now["machine"]
    names = {
        "gpus": "device",
        "cpu": "CPU",
        "threads": "threads",
        "python": "python",
        "platform": "platform",
        "assay": "commit of assay",
    }
    changes = [
        f"{name}: {before.get(key) or 'none'} then, {after.get(key) or 'none'} now"
        for key, name in names.items()
        if before.get(key) != after.get(key)
    ]
    if changed := package_changes(then["packages"], now["packages"]):
        changes.append(f"packages: {', '.join(changed)}")
    old = before.get("environment", {})
    new = after.get("environment", {})
    switches = [
        f"{name}={old.get(name, '')} then, {new.get(name, '')} now"
        for name in sorted((old.keys() | new.keys()) - _NOT_COMPARED)
        if old.get(name) != new.get(name)
    ]
    if switches:
        return [*changes, f"environment: {', '.join(switches)}"]
    return changes


def package_changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Packages of another version, those that compute first."""
    changed = (name for name in then if then[name] != now.get(name))
    names = sorted(changed, key=lambda name: (name not in NUMERIC_PACKAGES, name))
    shown = [
        f"{name} {then[name]} then, {now.get(name, 'none')} now"
        for name in names[:_MOST_PACKAGES]
    ]
    if len(names) > _MOST_PACKAGES:
        return [*shown, f"{len(names) - _MOST_PACKAGES} more"]
    return shown


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
    "LC_ALL": "C",
}
_NO_REPOSITORY = "not a git repository"


def git_environment(folder: Path) -> dict[str, str]:
    """Environment variables with which git runs no hook, monitor, filter or helper of a repository's own."""
    settings = {**_SETTINGS, **_disable_filters(folder)}
    count = os.environ.get("GIT_CONFIG_COUNT", "0")  # what the user has set this way stays
    first = 0
    if count.isdigit():
        first = int(count)
    variables = {**_VARIABLES, "GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (key, value) in enumerate(settings.items(), start=first):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _disable_filters(folder: Path) -> dict[str, str]:
    """Each filter that the repository's own settings name, set to the user's own or to none."""
    arguments = ["--includes", "--show-scope", "--null", "--get-regexp", r"^filter\."]
    words = ask_git(folder, "config", *arguments).split("\0")
    users: dict[str, str] = {}
    options: list[str] = []
    # an empty word is left at the end
    for scope, pair in zip(words[::2], words[1::2], strict=False):
        key, _, value = pair.partition("\n")
        if scope in ("local", "worktree"):
            options.append(key)
        else:
            users[key] = value
    return {key: users.get(key, "false" if key.endswith(".required") else "") for key in options}


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


def code_patch(root: Path, largest: int = _LARGEST_PATCH) -> tuple[str, bool]:
    """Changes of a repository against HEAD, and the source files that git neither tracks nor ignores."""
    directories = run_git(
        root, "rev-parse", "--absolute-git-dir", "--git-common-dir"
    ).splitlines()
    git_dir, common = (Path(root, line) for line in directories)
    with tempfile.TemporaryDirectory() as folder:
        # Announced in a copy of the index, so that one diff shows everything and the user's own stays.
        index = Path(folder) / "index"
        if (git_dir / "index").is_file():
            # its time tells git what may have changed since
            shutil.copy2(git_dir / "index", index)
        environment = {
            **git_environment(root),
            "GIT_INDEX_FILE": str(index),
            "GIT_OBJECT_DIRECTORY": folder,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(common.resolve() / "objects"),
        }
        all_there = _announce_untracked(root, environment)
        empty = ("hash-object", "-t", "tree", os.devnull)
        base = _head_of(root) or run_git(root, *empty, environment=environment).strip()
        text = run_git(root, "diff", base, *_FORMAT, "--", ":/", environment=environment)
    redacted = redact(text, code=True)
    if len(redacted) > largest:
        return "", False
    return redacted, all_there and redacted == text


def _head_of(root: Path) -> str | None:
    """The commit that is checked out, in hexadecimal digits; None before the first."""
    return ask_git(root, "rev-parse", "--quiet", "--verify", "HEAD") or None


def _announce_untracked(root: Path, environment: Mapping[str, str]) -> bool:
    """Add the untracked source files with intent; False where some are too large, or hold credentials."""
    options = ("--others", "--exclude-standard", "--full-name", "-z", ":/")
    listed = run_git(root, "ls-files", *options, environment=environment).split("\0")
    skipped: dict[Path, bool] = {}
    found = [
        name
        for name in listed
        if name.endswith(_SOURCES) and not _is_generated((root / name).parent, root, skipped)
    ]
    kept = [
        name
        for name in found
        if (root / name).lstat().st_size <= _LARGEST_UNTRACKED
        and not _CREDENTIALS.fullmatch(Path(name).name)
    ]
    if kept:
        names = "\0".join(f":(top,literal){name}" for name in kept).encode(
            "utf-8", "surrogateescape"
        )
        add = ("--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul")
        run_git(root, "add", *add, environment=environment, stdin=names)
    return kept == found


def _is_generated(folder: Path, root: Path, seen: dict[Path, bool]) -> bool:
    """Whether a folder lies in a run directory or a virtual environment."""
    if folder not in seen:
        here = folder != root and (
            (folder / "record.json").is_file() or (folder / "pyvenv.cfg").is_file()
        )
        seen[folder] = here or (folder != root and _is_generated(folder.parent, root, seen))
    return seen[folder]


def run_git(
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str] = _VARIABLES,
    stdin: bytes = b"",
    problem: str = "",
) -> str:
    """What git prints."""
    done = subprocess.run(  # noqa: S603 - git, with a hash that was looked at and paths of our own
        ["git", *arguments],  # noqa: S607 - the user's git
        cwd=folder,
        env={**os.environ, **environment},
        input=stdin,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        reason = first_line(done.stderr.decode(errors="replace")) or "git failed"
        raise AssayError(f"{problem}{reason}")
    return done.stdout.decode("utf-8", "surrogateescape")


def ask_git(folder: Path, *arguments: str) -> str:
    """What git answers; nothing where it has no answer."""
    with contextlib.suppress(AssayError):
        return run_git(folder, *arguments).rstrip("\n")
    return ""
