"""A custom project: start one, and add components to it. Imports no torch."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import keyword
import re
import shlex
import shutil
import subprocess
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from assay.errors import ConfigError
from assay.files.atomic import temporary_folder, write_text
from assay.paths import CONF_DIR
from assay.quoting import command
from assay.targets.trust import is_library, project_packages
from assay_explain.listing import groups, list_options

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUPS: Mapping[str, str] = {
    "model": "model",
    "loss": "loss",
    "data": "data",
    "task": "task",
    "metric": "metrics",
    "callback": "callbacks",
    "optimizer": "optimizer",
    "scheduler": "scheduler",
    "augment": "augment",
}
"""The group of each kind of component that `assay add` writes."""
SCHEMAS = ".schemas"
SETTINGS = ".vscode/settings.json"
_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_FILE = re.compile(r"^=== (.+)\n", re.MULTILINE)
"""The line of a template above each file that it makes."""
_HEADER = re.compile(r"\A# @package (\w+)", re.ASCII)


def create_project(name: str, kind: str) -> tuple[Path, list[str]]:
    """Make a folder with a project in it; return it, and what is to be known about it."""
    package = name.replace("-", "_")
    _check_name(name, package)
    path = Path(name)
    if path.is_symlink() or (path.exists() and not (path.is_dir() and not any(path.iterdir()))):
        what = "exists and is not a folder"
        if path.is_dir():
            what = "exists and is not empty"
        raise ConfigError(f"{path} {what}; refusing to overwrite", hint="choose another name")
    source = _installed_from()
    version = importlib.metadata.version("assay")
    files = _render(
        "project", name=name, package=package, kind=kind, source=source, version=version
    )
    if kind != "blank":
        parts = _render(f"model_{kind}", package=package, name="net", class_name="Net")
        files |= {file: text for file, text in parts.items() if not file.startswith("tests/")}
    files[SETTINGS] = editor_settings(CONF_DIR)
    with temporary_folder(path) as folder:
        for file, text in files.items():
            write_text(folder / file, text)
        notes = [_start_repository(folder)]
        if path.exists():
            path.rmdir()
        folder.rename(path)
    if not source:
        notes.append(
            "pyproject.toml takes assay from a package index; [tool.uv.sources] names another place"
        )
    return path, [note for note in notes if note]


def add_component(kind: str, name: str, root: Path) -> list[Path]:
    """Write the Python, the YAML and the test of a component into the project in a folder."""
    packages = [
        one for one in project_packages(root / "conf") if (root / one.replace(".", "/")).is_dir()
    ]
    if not packages:
        raise ConfigError(
            f"there is no project in {root.absolute()}: no conf/project.yaml trusts a package in this folder",
            hint="start assay in a project's folder; assay new NAME makes one",
        )
    _check_word(name, name, f"assay add {kind}", f"my_{kind}")
    group = GROUPS[kind]
    if taken := [one for one in list_options(group) if (one.group, one.name) == (group, name)]:
        message = f"assay has {group}={name} already: {taken[0].description}"
        raise ConfigError(message, key="NAME", hint="choose another name")
    template = kind
    if kind == "model":
        template = f"model_{_kind_of(root)}"
    class_name = "".join(part.capitalize() for part in name.split("_"))
    files = _render(template, package=packages[0], name=name, class_name=class_name)
    if existing := [file for file in files if (root / file).exists()]:
        raise ConfigError(
            f"{existing[0]} exists; refusing to overwrite", hint="choose another name"
        )
    for file in sorted(files, reverse=True):  # the option is there once all it names is
        write_text(root / file, files[file])
    return [root / file for file in files]


def editor_settings(*folders: Path) -> str:
    """What tells an editor's YAML server the schema of each file of `conf`, as JSON."""
    globs = {
        f"{group.replace('/', '.')}.json": [f"conf/{group}/*.yaml"] for group in groups(*folders)
    }
    globs |= {
        "config.json": ["conf/train.yaml", "conf/hydra_defaults.yaml"],
        "project.json": ["conf/project.yaml"],
    }
    named = {f"./{SCHEMAS}/{file}": what for file, what in globs.items()}
    return json.dumps({"yaml.schemas": named}, indent=2) + "\n"


def package_of(path: Path) -> str:
    """The first part of the package in a YAML's header; empty without one."""
    match = _HEADER.match(path.read_text(encoding="utf-8"))
    if match:
        return match[1]
    return ""


def _check_name(name: str, package: str) -> None:
    if Path(name).name != name or name in (".", ".."):
        last = Path(name).name
        hint = "my_project"
        if last not in ("", ".."):
            hint = last
        hint = f"cd {shlex.quote(str(Path(name).parent))} && {command('new', hint)}"
        raise ConfigError(f"expected a name, not a path: {name!r}", key="NAME", hint=hint)
    _check_word(package, name, "assay new", "my_project")
    with suppress(ImportError, ValueError):
        found = importlib.util.find_spec(package)
        if (
            is_library(package)
            or package in ("conf", "tests", "outputs")
            or (found and found.origin)
        ):
            message = f"{package!r} is the name of another module or folder"
            raise ConfigError(message, key="NAME", hint=f"assay new my_{package}")


def _check_word(word: str, typed: str, command: str, example: str) -> None:
    """Refuse what cannot name a module, and show a name that can."""
    if not _NAME.fullmatch(word) or keyword.iskeyword(word):
        near = (
            re.sub(r"\W+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word)).strip("_").lower()
        )
        if not _NAME.fullmatch(near) or keyword.iskeyword(near):
            near = example
        expected = "expected lower-case letters, digits and _, and no keyword of Python"
        raise ConfigError(f"{expected}, got {typed!r}", key="NAME", hint=f"{command} {near}")


def _render(template: str, **values: str) -> dict[str, str]:
    """The files that a template makes, by their names."""
    import jinja2

    environment = jinja2.Environment(  # noqa: S701 - Python and YAML of names that were checked, not HTML
        loader=jinja2.PackageLoader("assay_project"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    _, *parts = _FILE.split(environment.get_template(f"{template}.jinja").render(**values))
    return {
        file: f"{text.strip()}\n" if text.strip() else ""
        for file, text in zip(parts[::2], parts[1::2], strict=True)
    }


def _installed_from() -> str:
    """Where assay came from, as a line of `[tool.uv.sources]`; empty where that was a package index."""
    text = importlib.metadata.distribution("assay").read_text("direct_url.json")
    if text is None:
        return ""
    origin: dict[str, Any] = json.loads(text)
    source: dict[str, Any] = {"url": origin["url"]}
    if "vcs_info" in origin:
        source = {"git": origin["url"], "rev": origin["vcs_info"]["commit_id"]}
    elif (address := urlsplit(origin["url"])).scheme == "file":
        source = {"path": url2pathname(address.path), **origin.get("dir_info", {})}
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in source.items())


def _start_repository(folder: Path) -> str:
    """Put a new project under git, unless it is already; return what keeps that from being done."""
    git = shutil.which("git")
    if git is None:
        return "git is not installed: runs will not say which code they ran; install it, then git init"
    for words in (["rev-parse"], ["init", "-q"]):
        done = subprocess.run([git, *words], cwd=folder, capture_output=True, check=False)  # noqa: S603 - fixed
        if not done.returncode:
            return ""
    return f"git init failed: {done.stderr.decode(errors='replace').strip()}"


def _kind_of(root: Path) -> str:
    """What a project is about: how its models take their inputs."""
    path = root / "pyproject.toml"
    content = {}
    if path.exists():
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    kind = content.get("tool", {}).get("assay", {}).get("kind")
    return kind if kind in ("image", "text") else "table"
