"""A custom project: start one, and add components to it. Imports no torch."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import keyword
import re
import shutil
import subprocess
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from assay.compose.listing import groups, list_options
from assay.errors import ConfigError
from assay.files.atomic import temporary_folder, write_text
from assay.paths import CONF_DIR
from assay.targets.trust import is_library, project_packages

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUPS: Final[Mapping[str, str]] = {
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
SCHEMAS: Final = ".schemas"
SETTINGS: Final = ".vscode/settings.json"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_FILE: Final = re.compile(r"^=== (.+)\n", re.MULTILINE)
"""The line of a template above each file that it makes."""
_HEADER: Final = re.compile(r"\A# @package (\w+)", re.ASCII)


def create_project(name: str, kind: str) -> tuple[Path, list[str]]:
    """Make a folder with a project in it; return it, and what is to be known about it."""
    package = name.replace("-", "_")
    _check_name(name, package)
    path = Path(name)
    if path.is_symlink() or (path.exists() and not (path.is_dir() and not any(path.iterdir()))):
        what = "exists and is not empty" if path.is_dir() else "exists and is not a folder"
        raise ConfigError(f"{path} {what}; refusing to overwrite", hint="choose another name")
    source = _installed_from()
    files = _render("project", name=name, package=package, kind=kind, source=source)
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
        notes.append("pyproject.toml takes assay from a package index; [tool.uv.sources] names another place")
    return path, [note for note in notes if note]


def add_component(kind: str, name: str, root: Path) -> list[Path]:
    """Write the Python, the YAML and the test of a component into the project in a folder."""
    packages = [one for one in project_packages(root / "conf") if (root / one.replace(".", "/")).is_dir()]
    if not packages:
        raise ConfigError(
            f"there is no project in {root.absolute()}: no conf/project.yaml trusts a package in this folder",
            hint="start assay in a project's folder; assay new NAME makes one",
        )
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        near = re.sub(r"\W+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).strip("_").lower()
        hint = near if _NAME.fullmatch(near) and not keyword.iskeyword(near) else f"my_{kind}"
        expected = "expected lower-case letters, digits and _, and no keyword of Python"
        raise ConfigError(f"{expected}, got {name!r}", key="NAME", hint=f"assay add {kind} {hint}")
    group = GROUPS[kind]
    if taken := [one for one in list_options(group) if (one.group, one.name) == (group, name)]:
        raise ConfigError(
            f"assay has {group}={name} already: {taken[0].description}",
            key="NAME",
            hint="choose another name",
        )
    template = f"model_{_kind_of(root)}" if kind == "model" else kind
    class_name = "".join(part.capitalize() for part in name.split("_"))
    files = _render(template, package=packages[0], name=name, class_name=class_name)
    for file, text in files.items():
        if (root / file).exists():
            raise ConfigError(f"{file} exists; refusing to overwrite", hint="choose another name")
        imports = "" if file.startswith("tests/") else text.partition("\nclass ")[0]
        if re.search(rf"^(from|import) .*\b{class_name}\b", imports, re.MULTILINE):
            hint = f"assay add {kind} my_{name}"
            raise ConfigError(f"the code imports another {class_name}", key="NAME", hint=hint)
    for file in sorted(files, reverse=True):  # the option is there once all it names is
        write_text(root / file, files[file])
    return [root / file for file in files]


def editor_settings(*folders: Path) -> str:
    """What tells an editor's YAML server the schema of each file of `conf`, as JSON."""
    globs = {f"{group.replace('/', '.')}.json": [f"conf/{group}/*.yaml"] for group in groups(*folders)}
    globs |= {
        "config.json": ["conf/train.yaml", "conf/hydra_defaults.yaml"],
        "project.json": ["conf/project.yaml"],
    }
    return (
        json.dumps({"yaml.schemas": {f"./{SCHEMAS}/{file}": what for file, what in globs.items()}}, indent=2)
        + "\n"
    )


def package_of(path: Path) -> str:
    """The first part of the package in a YAML's header; empty without one."""
    match = _HEADER.match(path.read_text(encoding="utf-8"))
    return match[1] if match else ""


def _check_name(name: str, package: str) -> None:
    near = re.sub(r"\W+", "_", Path(name).name.lower(), flags=re.ASCII).strip("_")
    usable = _NAME.fullmatch(near) and not keyword.iskeyword(near)
    hint = f"assay new {near if usable else 'my_project'}"
    if Path(name).name != name or name in (".", ".."):
        raise ConfigError(
            f"expected a name, not a path: {name!r}",
            key="NAME",
            hint=f"cd {Path(name).parent} && {hint}" if usable else hint,
        )
    if not _NAME.fullmatch(package):
        raise ConfigError(
            f"expected lower-case letters, digits, - and _, got {name!r}", key="NAME", hint=hint
        )
    hint = f"assay new my_{package}"
    if keyword.iskeyword(package):
        raise ConfigError(
            f"{package!r} is a keyword of Python, so no package can have it", key="NAME", hint=hint
        )
    found = None
    with suppress(ImportError, ValueError):
        found = importlib.util.find_spec(package)
    if is_library(package) or package in ("conf", "tests", "outputs") or (found and found.origin):
        raise ConfigError(f"{package!r} is the name of another module or folder", key="NAME", hint=hint)


def _render(template: str, **values: str) -> dict[str, str]:
    """The files that a template makes, by their names."""
    import jinja2

    environment = jinja2.Environment(  # noqa: S701 - Python and YAML of names that were checked, not HTML
        loader=jinja2.PackageLoader("assay.project"), undefined=jinja2.StrictUndefined, trim_blocks=True
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
    address = urlsplit(origin["url"])
    if "vcs_info" in origin:
        source: dict[str, Any] = {"git": origin["url"], "rev": origin["vcs_info"]["commit_id"]}
    elif address.scheme == "file":
        source = {"path": url2pathname(address.path)}
        source |= {"editable": True} if origin.get("dir_info", {}).get("editable") else {}
    else:
        source = {"url": origin["url"]}
    source |= {"subdirectory": origin["subdirectory"]} if "subdirectory" in origin else {}
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in source.items())


def _start_repository(folder: Path) -> str:
    """Put a new project under git, unless it is already; return what keeps that from being done."""
    git = shutil.which("git")
    if git is None:
        return "git is not installed: runs will not say which code they ran; install it, then git init"
    inside = subprocess.run([git, "rev-parse"], cwd=folder, capture_output=True, check=False)  # noqa: S603 - fixed
    if inside.returncode:
        done = subprocess.run([git, "init", "-q"], cwd=folder, capture_output=True, check=False)  # noqa: S603 - fixed
        if done.returncode:
            return f"git init failed: {done.stderr.decode(errors='replace').strip()}"
    return ""


def _kind_of(root: Path) -> str:
    """What a project is about: how its models take their inputs."""
    try:
        content = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        content = {}
    kind = content.get("tool", {}).get("assay", {}).get("kind", "table")
    return kind if kind in ("image", "text") else "table"
