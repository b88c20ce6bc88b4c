"""Where a run came from: code, packages, machine."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import socket
from pathlib import Path
from typing import Any

import psutil

from assay.record.secrets import redact

_NUMERIC_SWITCHES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "MKL_CBWR",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_TF32_OVERRIDE",
    "PYTHONHASHSEED",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
_SOURCES = (".py", ".pyi", ".yaml", ".yml", ".toml", ".cfg", ".json", ".sh")
_LARGEST_UNTRACKED = 1 << 20
_LARGEST_PATCH = 20 << 20
_NUMERIC_FLAGS = ("avx", "avx2", "avx512f", "avx512_bf16", "amx_bf16", "fma", "asimd", "bf16", "sve")


def git_state(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """Commit and patch of the repository that a folder lies in.

    Args:
        folder: Any folder of the user's project.

    Returns:
        `commit`, `branch`, `dirty`, `remote` and `patch_complete`, or None outside a repository or without git; and the patch
        (tracked changes and untracked source files) that `git apply` puts onto the commit.
    """
    try:
        import git
    except ImportError:  # GitPython raises this when there is no git executable
        return None, ""
    try:
        repository = git.Repo(folder, search_parent_directories=True)
        commit = repository.head.commit.hexsha if repository.head.is_valid() else None
    except (git.InvalidGitRepositoryError, git.NoSuchPathError, ValueError):
        return None, ""
    with repository:
        patch, complete = _patch(repository) if commit else ("", False)
        remote = next((url for one in repository.remotes for url in one.urls), None)
        return {
            "commit": commit,
            "branch": None if repository.head.is_detached else repository.active_branch.name,
            "dirty": bool(patch) or repository.is_dirty(untracked_files=True),
            "remote": redact(remote) if remote else None,
            "patch_complete": complete,
        }, patch


def _patch(repository: Any) -> tuple[str, bool]:
    """Changes against HEAD, and untracked source files; and whether that is all of them."""
    parts = [repository.git.diff("HEAD", "--binary", "--no-color", "--no-ext-diff", strip_newline_in_stdout=False)]
    complete = True
    root = Path(repository.working_dir)
    for name in repository.untracked_files:
        path = root / name
        if path.suffix not in _SOURCES or not path.is_file():
            continue
        if path.stat().st_size > _LARGEST_UNTRACKED:
            complete = False
            continue
        parts.append(
            repository.git.diff(
                "--no-index", "--binary", "--no-color", "--", os.devnull, name, with_exceptions=False, strip_newline_in_stdout=False
            )
        )
    patch = "".join(parts)
    return (patch, complete) if len(patch) <= _LARGEST_PATCH else ("", False)


def packages() -> dict[str, str]:
    """Version of every installed distribution."""
    found = {dist.name: dist.version for dist in importlib.metadata.distributions() if dist.name}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


@functools.cache
def cpu_model() -> str:
    """The processor's name, as the system tells it."""
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


@functools.cache
def _cpuinfo() -> dict[str, str]:
    # The file is read directly where there is one: py-cpuinfo starts processes and takes about a second.
    path = Path("/proc/cpuinfo")
    if path.is_file():
        lines = (line.partition(":") for line in path.read_text(encoding="utf-8").split("\n\n")[0].splitlines())
        return {key.strip(): value.strip() for key, _, value in lines}
    import cpuinfo

    info = cpuinfo.get_cpu_info()
    return {"model name": str(info.get("brand_raw", "")), "flags": " ".join(info.get("flags", []))}


def machine(gpus: list[str], threads: int) -> dict[str, Any]:
    """What the run ran on.

    Args:
        gpus: Names of the GPUs, asked of torch by the caller.
        threads: Threads of one torch operation.
    """
    info = _cpuinfo()
    flags = set((info.get("flags") or info.get("Features") or "").split())
    return {
        "hostname": socket.gethostname(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cpu": cpu_model(),
        "cpu_flags": [flag for flag in _NUMERIC_FLAGS if flag in flags],
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "threads": threads,
        "gpus": gpus,
        "environment": {name: os.environ[name] for name in _NUMERIC_SWITCHES if name in os.environ},
    }
