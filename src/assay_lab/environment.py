"""The environment of a run, built again by uv from the packages that its record names."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import shutil
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from assay.data.core.source_files import cache_folder
from assay.errors import AssayError
from assay.files.atomic import temporary_folder, write_text
from assay.quoting import join_first
from assay.record.provenance import assay_commit, packages
from assay.terminal import Console

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from assay.record.run_record import RunRecord

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_PYTHON = re.compile(r"3\.\d{1,2}\.\d{1,2}", re.ASCII)
_ASSAY = "assay"


def build_environment(record: RunRecord, *, trust_code: bool) -> tuple[Path, list[str]]:
    """The Python of an environment with a run's packages, and what is to be said of it.

    It is kept in the user's folder for caches, and not in the run directory: that may come from elsewhere,
    and nothing in it is to be executed.

    Raises:
        AssayError: Something cannot be had, or the record holds what is not a package.
    """
    uv = shutil.which("uv")
    if uv is None:
        raise AssayError("--environment needs uv, which is not installed", hint="pip install uv")
    python = str(record.machine.get("python"))
    if not _PYTHON.fullmatch(python):
        raise AssayError(f"the run's record is damaged: it names Python {python!r:.80}")
    wanted = read_requirements(record.packages)
    local = {name: version for name, version in wanted.items() if _is_local(name)}
    lines = [f"{name}=={version}" for name, version in wanted.items() if name not in local]
    known = {canonicalize_name(name) for name in packages()}
    new = [line for line in lines if line.partition("==")[0] not in known]
    if new and not trust_code:
        raise AssayError(
            f"the run has packages that are not installed here: {join_first(new)}",
            hint="--trust-code, if you trust the author of this run",
        )
    head = f"# Python {python}, assay {packages()[_ASSAY]} {assay_commit()}"
    text = "\n".join([head, *lines, ""])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = _environments() / digest
    local.pop(_ASSAY, None)
    notes = [f"environment: {folder}, with the assay that is installed here"]
    if local:
        notes.append(f"installed here from a folder, so left out: {join_first([*local])}")
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(folder) as scratch, Console(stderr=True).status("building it"):
            _build(uv, python, text, scratch / digest)
            with suppress(OSError):  # another process has been faster
                (scratch / digest).rename(folder)
    return folder / "bin" / "python", notes


def list_environments() -> dict[str, int]:
    """Bytes of each environment that is kept, by its folder; files that are links to uv's count as well."""
    return {
        str(folder): sum(path.lstat().st_size for path in folder.rglob("*"))
        for folder in sorted(_environments().glob("*"))
    }


def _environments() -> Path:
    return cache_folder() / "environments"


def read_requirements(recorded: Mapping[str, str]) -> dict[str, str]:
    """Version by name, each judged: a record from elsewhere may hold options, paths and addresses."""
    needed = map(Requirement, importlib.metadata.requires(_ASSAY) or ())
    floors = {canonicalize_name(one.name): one.specifier for one in needed if not one.marker}
    wanted: dict[str, str] = {}
    for name, text in recorded.items():
        try:
            version = Version(text)
        except InvalidVersion:
            version = None
        if version is None or not _NAME.fullmatch(name):
            raise AssayError(
                f"the run's record names a package that is none: {name!r:.80} {text!r:.80}"
            )
        wanted[canonicalize_name(name)] = str(version)
        allowed = floors.get(canonicalize_name(name))
        if allowed is not None and not allowed.contains(version, prereleases=True):
            raise AssayError(
                f"the run had {name} {version}, and this assay needs {allowed}",
                hint="reproduce it with the assay of the run: assay info RUN",
            )
    return wanted


def _is_local(name: str) -> bool:
    """Whether a package was installed here from a folder, as one's own project is; assay is copied."""
    with suppress(importlib.metadata.PackageNotFoundError):
        origin = importlib.metadata.distribution(name).read_text("direct_url.json") or ""
        return name == _ASSAY or '"file:' in origin
    return False


def _build(uv: str, python: str, text: str, folder: Path) -> None:
    if error := _run(
        uv, "venv", "--no-project", "--relocatable", "--python", python, str(folder)
    ):
        hint = f"uv python install {python}"
        raise AssayError(f"Python {python} cannot be had: {error}", hint=hint)
    requirements = folder / "requirements.txt"
    missing: list[str] = []
    command = ("pip", "install", "--no-deps", "--python", str(folder), "-r", str(requirements))
    lines = text.splitlines(keepends=True)
    write_text(requirements, text)
    while error := _run(uv, *command):
        named = [
            line
            for line in lines
            if re.search(
                rf"(?<![\w.-]){re.escape(line.partition('==')[0])}(==| was not found)", error
            )
        ]
        if not named:
            raise AssayError(f"the environment cannot be built: {error}")
        missing += [line.strip() for line in named]
        lines = [line for line in lines if line not in named]
        write_text(requirements, "".join(lines))
    if missing:
        hint = (
            "UV_INDEX=ADDRESS or UV_FIND_LINKS=FOLDER before the command, where they can be had"
        )
        raise AssayError(f"cannot be had: {', '.join(missing)}", hint=hint)
    (library,) = folder.glob("lib/python*/site-packages")
    for file in importlib.metadata.files(_ASSAY) or ():
        if ".." not in file.parts:
            (library / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), library / file)


def _run(uv: str, *arguments: str) -> str:
    """What uv says where it fails; with the user's own configuration, as in the current folder."""
    command = [uv, *arguments, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - judged above
    if not done.returncode:
        return ""
    return " ".join(done.stderr.split()) or f"uv ended with code {done.returncode}"
