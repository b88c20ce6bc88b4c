"""The segments of a run, which may go on many times: code, packages and machine of each."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.record.provenance.provenance import git_state, lock_sha256, machine, packages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.record.run_record import RunRecord

_NUMERIC_PACKAGES = (
    *("torch", "lightning", "numpy", "torchvision", "torchmetrics", "scikit-learn", "assay", "pandas"),
    *("pillow", "scipy"),
)
_SHOWN = 6
_FIELDS = ("git", "patch_sha256", "lock_sha256", "packages", "machine")


def segment_here(gpus: list[str], threads: int) -> tuple[dict[str, Any], str]:
    """What a segment that begins now runs with.

    Args:
        gpus: As for `assay.record.provenance.provenance.machine`.
        threads: As for `assay.record.provenance.provenance.machine`.

    Returns:
        `git`, `patch_sha256`, `lock_sha256`, `packages`, `machine`, as `RunRecord` has them; and the patch.
    """
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
    """A segment as an entry of the record says it: of the packages those that are not as before.

    >>> shortened({"packages": {"a": "2"}}, {"packages": {"a": "1", "b": "1"}})
    {'packages': {'a': '2', 'b': ''}}
    """
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
    """Packages of another version, those that compute first.

    Args:
        then: Version by name.
        now: Version by name.

    >>> package_changes({"torch": "2.14", "a": "1"}, {"torch": "2.15", "a": "1"})
    ['torch 2.14 then, 2.15 now']
    """
    names = [name for name in then if then[name] != now.get(name)]
    names.sort(key=lambda name: (_rank(name), name))
    shown = [f"{name} {then[name]} then, {now.get(name, 'none')} now" for name in names[:_SHOWN]]
    return [*shown, f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else shown


def _rank(name: str) -> int:
    return _NUMERIC_PACKAGES.index(name) if name in _NUMERIC_PACKAGES else len(_NUMERIC_PACKAGES)


def _switches(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    # The number of threads is compared as such.
    names = sorted((then.keys() | now.keys()) - {"OMP_NUM_THREADS"})
    return [
        f"{name}={then.get(name, '')} then, {now.get(name, '')} now"
        for name in names
        if then.get(name) != now.get(name)
    ]
