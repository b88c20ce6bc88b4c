"""Where a run came from: code, packages and machine, of each of its segments."""

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
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from assay.errors import ConfigError
from assay.record.code_patch import code_patch, head_of
from assay.record.secrets import is_secret, redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    import git

    from assay.record.run_record import RunRecord


log = logging.getLogger(__name__)

_NUMERIC_SWITCHES = (
    *("ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES", "GLIBC_TUNABLES"),
    *("HIP_VISIBLE_DEVICES", "NCCL_ALGO", "NCCL_PROTO", "NPY_DISABLE_CPU_FEATURES", "NUMEXPR_NUM_THREADS"),
    *("NVIDIA_TF32_OVERRIDE", "PYTHONHASHSEED", "VECLIB_MAXIMUM_THREADS"),
)
_NUMERIC_FAMILIES = (
    *("CUBLAS_", "CUDNN_", "DNNL_", "KMP_", "MKL_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTORCH_"),
    *("TORCHINDUCTOR_", "TORCH_"),
)
_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "pixi.lock", "conda-lock.yml", "requirements.txt")
_SHOWN = 8
_CPUINFO, _CGROUP = Path("/proc/cpuinfo"), Path("/sys/fs/cgroup")
_NUMERIC_FLAGS = ("amx", "asimd", "avx", "bf16", "f16c", "fma", "fphp", "i8mm", "sse4", "sve")


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
            patch, complete = _patch(repository)
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
        names = changed_files(patch)
        shown = ", ".join(names[:_SHOWN]) + (
            f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        )
        raise ConfigError(
            f"these are not committed: {shown or 'files too large for a patch'}",
            key="enforce_clean_git",
            hint="git commit, or enforce_clean_git=false",
        )


def changed_files(patch: str) -> list[str]:
    r"""Names of the files that a patch of ours touches."""
    both = re.findall(r"^diff --git (.+)$", patch, re.MULTILINE)
    # The two names are one: renames are not looked for.
    return [_unquoted(name[: len(name) // 2]).removeprefix("a/") for name in both]


def _unquoted(name: str) -> str:
    """A name as git writes it in a patch: one with other than plain letters in quotes, by its bytes."""
    if not name.startswith('"'):
        return name
    octal = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), name.strip('"'))
    return octal.encode("latin-1", "replace").decode("utf-8", "replace")


def lock_sha256(folder: Path) -> str:
    """SHA-256 of what pins the packages: the nearest `uv.lock` or its like, up to the repository's root."""
    for place in (folder.resolve(), *folder.resolve().parents):
        for name in _LOCKS:
            if (place / name).is_file():
                return hashlib.sha256((place / name).read_bytes()).hexdigest()
        if (place / ".git").exists():
            break
    return ""


def _patch(repository: git.Repo) -> tuple[str, bool]:
    import git

    try:
        return code_patch(repository)
    except (git.GitError, OSError) as error:
        log.warning("the changes in %s could not be read: %s", repository.working_dir, error)
        return "", False


def _remote(repository: git.Repo) -> str | None:
    """Address of the remote `origin`, else of any."""
    remotes = sorted(repository.remotes, key=lambda remote: remote.name != "origin")
    return without_credentials(next(iter(remotes[0].urls))) if remotes else None


def without_credentials(address: str) -> str:
    """A remote's address without user name (which is not a secret for SSH), password, query, fragment."""
    scheme, separator, _ = address.partition("://")
    if not separator:
        before, at, after = address.rpartition("@")
        return redact(after if at and ":" in before else address)
    parts = urlsplit(re.sub(r"[?#].*", "", address))
    host = parts.netloc.rpartition("@")[2]
    user = f"{parts.username}@" if parts.username and scheme.endswith("ssh") else ""
    return redact(f"{scheme}://{user}{host}{parts.path}", code=True)


@functools.cache
def packages() -> dict[str, str]:
    """Version of every installed distribution; of two by one name, the one that is imported."""
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        if distribution.name:
            versions.setdefault(distribution.name, distribution.version)
    return dict(sorted(versions.items(), key=lambda item: item[0].lower()))


@functools.cache
def cpu_model() -> str:
    """The processor's name, as the system tells it."""
    info = _cpuinfo()
    numbers = (info[key] for key in ("CPU implementer", "CPU part") if key in info)  # of an ARM core
    return info.get("model name") or " ".join((platform.processor() or platform.machine(), *numbers))


@functools.cache
def _cpuinfo() -> dict[str, str]:
    first = _CPUINFO.read_text(encoding="utf-8").split("\n\n")[0] if _CPUINFO.is_file() else ""
    lines = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):  # version 2, version 1
        with contextlib.suppress(OSError, ValueError):  # the other version; `max`, which is not a quota
            quota, period = " ".join((_CGROUP / name).read_text() for name in files).split()
            if int(quota) > 0:
                return min(cores, math.ceil(int(quota) / int(period)))
    return cores


def machine(gpus: list[str], threads: int) -> dict[str, Any]:
    """What the run ran on."""
    import psutil

    info = _cpuinfo()
    flags = (info.get("flags") or info.get("Features", "")).split()
    return {
        "hostname": socket.gethostname(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cpu": cpu_model(),
        "cpu_flags": sorted(flag for flag in flags if flag.startswith(_NUMERIC_FLAGS)),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "threads": threads,
        "gpus": gpus,
        "gpu_driver": _nvidia_driver(),
        "environment": numeric_environment(),
    }


def numeric_environment() -> dict[str, str]:
    """The environment variables that change numbers; a fixed list, and nothing else of the environment."""
    names = sorted(
        name for name in os.environ if name in _NUMERIC_SWITCHES or name.startswith(_NUMERIC_FAMILIES)
    )
    return {name: redact(os.environ[name]) for name in names if not is_secret(name)}


def _nvidia_driver() -> str | None:
    path = Path("/proc/driver/nvidia/version")
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    match = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return match[1] if match else None


_NUMERIC_PACKAGES = (
    *("torch", "lightning", "numpy", "torchvision", "torchmetrics", "scikit-learn", "assay", "pandas"),
    *("pillow", "scipy"),
)
_MOST_PACKAGES = 6
_FIELDS = ("git", "patch_sha256", "lock_sha256", "packages", "machine")


def segment_here(gpus: list[str], threads: int) -> tuple[dict[str, Any], str]:
    """What a segment that begins now runs with."""
    git, patch = git_state(Path.cwd())
    return {
        "git": git,
        "patch_sha256": hashlib.sha256(patch.encode("utf-8", "surrogateescape")).hexdigest() if patch else "",
        "lock_sha256": lock_sha256(Path.cwd()),
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


def shortened(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """A segment as an entry of the record says it: of the packages those that are not as before."""
    then, new = before["packages"], now["packages"]
    changed = {name: new.get(name, "") for name in sorted({**then, **new}) if then.get(name) != new.get(name)}
    return {**now, "packages": changed}


def differences_within(record: RunRecord) -> list[str]:
    """What was not the same in all segments of a run, and from which step on."""
    every = segments(record)
    steps = [entry.get("from_step") for entry in record.resumed if "machine" in entry]
    return [
        f"the run itself went on at step {step} with other {change}"
        for step, before, now in zip(steps, every, every[1:], strict=False)
        for change in [*code_changes(before, now), *machine_changes(before, now)]
    ]


def code_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Whether the code of two segments is the same; nothing where it is not known of either."""
    before, after = _code(then), _code(now)
    return [] if before == after else [f"code: {before} then, {after} now"]


def _code(segment: Mapping[str, Any]) -> str:
    if segment["git"] is None:
        return "not in a repository"
    patch = f" with changes ({segment['patch_sha256'][:8]})" if segment["patch_sha256"] else ""
    return f"commit {(segment['git'].get('commit') or 'none')[:12]}{patch}"


def machine_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between machines and packages, the most likely cause of other numbers first."""
    changes = []
    before, after = then["machine"], now["machine"]
    for key, name in (("gpus", "device"), ("gpu_driver", "device driver")):
        if before.get(key) != after.get(key):
            changes.append(f"{name}: {before.get(key) or 'none'} then, {after.get(key) or 'none'} now")
    changed = package_changes(then["packages"], now["packages"])
    if changed:
        changes.append(f"packages: {', '.join(changed)}")
    for key, name in (("cpu", "CPU"), ("threads", "threads"), ("python", "python"), ("platform", "platform")):
        if before.get(key) != after.get(key):
            changes.append(f"{name}: {before.get(key)} then, {after.get(key)} now")
    flags = set(before.get("cpu_flags", [])) ^ set(after.get("cpu_flags", []))
    if flags:
        changes.append(f"CPU flags: {' '.join(sorted(flags))}")
    switches = _switches(before.get("environment", {}), after.get("environment", {}))
    if switches:
        changes.append(f"environment: {', '.join(switches)}")
    return changes


def package_changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Packages of another version, those that compute first."""
    ranks = {name: rank for rank, name in enumerate(_NUMERIC_PACKAGES)}
    changed = (name for name in then if then[name] != now.get(name))
    names = sorted(changed, key=lambda name: (ranks.get(name, len(ranks)), name))
    shown = [f"{name} {then[name]} then, {now.get(name, 'none')} now" for name in names[:_MOST_PACKAGES]]
    return [*shown, f"{len(names) - _MOST_PACKAGES} more"] if len(names) > _MOST_PACKAGES else shown


def _switches(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    # The number of threads is compared as such.
    names = sorted((then.keys() | now.keys()) - {"OMP_NUM_THREADS"})
    return [
        f"{name}={then.get(name, '')} then, {now.get(name, '')} now"
        for name in names
        if then.get(name) != now.get(name)
    ]
