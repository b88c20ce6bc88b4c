"""What a config says of the world outside of its run: addresses, folders to write to, lines for a shell."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from assay.config.omegaconf_internals import child_node, parent_of, raw_value
from assay.config.tree import Entry, places
from assay.errors import ConfigError
from assay.quoting import format_override
from assay.targets.trust import KEY, VALUES, is_within

if TYPE_CHECKING:
    from assay.targets.trust import Trust

ADDRESS = "it is an external address"
WRITING = ("callbacks", "logger", "trainer")
"""Nodes whose objects write files."""
_PROSE = ("tags", "notes", "description", "trusted_packages")
_PATH = re.compile(
    r"(.*_)?(dirs?|dirpath|path|files?|filepath|folder|location|logdir|prefix_path)"
)
_ADDRESS = re.compile(
    r"(.*_)?(address|addr|api_key|base_url|endpoint|entity|host|hostname|proxy|proxies|server|teamspace|token|uri|url|workspace)"
)
_SHIPPED = ("sqlite:///outputs/mlflow.db", "outputs/mlflow")
"""What assay's own options say: beside the runs."""
_UNSAFE_NAME = ("filename", "name", "prefix", "sub_dir", "version")
"""Arguments that become part of a file's path."""
_WORD = re.compile(r"\w[\w .=+,@-]{0,99}(/\w[\w .=+,@-]{0,99})*")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_external_values(config: DictConfig, person: Trust) -> None:
    """Refuse a job that would write outside of its run directory, or contact another machine, by itself."""
    check_name(config)
    run_dir = Path(str(config.run_dir)).absolute()
    if "$" in str(run_dir) and "${" not in str(run_dir):
        raise ConfigError(
            f"{run_dir}: some loggers would expand the $",
            key="hydra.run.dir",
            hint="choose a name without $",
        )
    packages = [str(name) for name in config.get(KEY) or ()]
    for entry in places(config):
        value = entry.value
        root = entry.key.partition(".")[0]
        if root in ("run_dir", "hydra", "name") or root in _PROSE or str(entry.name) in _PROSE:
            continue
        why = ""
        if isinstance(value, str):
            why = _why_external(entry, root, value, run_dir)
        if why and ("://" in value or not is_within(_class_of(entry.parent), packages)):
            refuse_untyped(entry.key, value, why, person)


def check_addresses(config: DictConfig, person: Trust) -> None:
    """Refuse data behind an address that a run's config names and nobody has typed."""
    for entry in places(config):
        if (
            entry.key.startswith("data.")
            and isinstance(entry.value, str)
            and "://" in entry.value
        ):
            refuse_untyped(entry.key, entry.value, ADDRESS, person)


def check_name(config: DictConfig) -> None:
    """Refuse a name that would lead elsewhere as a part of a path."""
    name = config.get("name")
    if isinstance(name, str) and not _WORD.fullmatch(name):
        message = f"{name!r} cannot be part of a path: expected letters, digits and . - _ = + , @"
        raise ConfigError(message, key="name", hint="name=my_experiment")


def is_path(name: str) -> bool:
    """Whether an argument of this name is a path of a file or folder.

    >>> is_path("save_dir"), is_path("filename")
    (True, False)
    """
    return _PATH.fullmatch(name) is not None


def collect_texts(config: DictConfig) -> frozenset[tuple[str, str]]:
    """Key and text of every value in a job that was checked already, for `Trust.said`."""
    return frozenset(
        (entry.key, entry.value) for entry in places(config) if isinstance(entry.value, str)
    )


def may_reach_out(key: str, value: Any) -> bool:
    """Whether a value may be one that `check_outside` refuses; quick, and sooner yes than no."""
    name = re.split(r"[.\[\]]", key.rstrip("]"))[-1]
    if not isinstance(value, str):
        return False
    is_named = name == "weights" or is_path(name) or _ADDRESS.fullmatch(name) is not None
    return is_named or any(part in value for part in ("/", "\\", "~", "$", "..", ":"))


def check_place(key: str, path: str | Path, person: Trust) -> None:
    """Refuse a directory for runs or sweeps that lies elsewhere than below the current one, unless typed."""
    if not str(path) or CONTROL.search(str(path)):
        why = "an empty path"
        if str(path):
            why = f"{str(path)!r}, which contains a control character"
        raise ConfigError(
            f"expected a folder, got {why}", key=key, hint=f"{key}=outputs/my_folder"
        )
    here = Path.cwd()
    full_path = Path(os.path.normpath(here / path))
    inside = full_path.is_relative_to(here) and full_path != here
    if inside and not any(part.startswith(".") for part in full_path.relative_to(here).parts):
        return
    if not _is_approved(key, str(path), person):
        refuse_untyped(key, str(path), "runs are written below the current directory", person)


def _why_external(entry: Entry, root: str, value: str, run_dir: Path) -> str:
    """Why only the user may set a value; empty if any config may."""
    why = ""
    if value in _SHIPPED or entry.name == "_target_":
        return why
    if root == "model" and entry.name == "weights" and value.isupper():
        why = "this downloads weights"
    elif "://" in value:
        why = ADDRESS
    elif root in WRITING and value and _ADDRESS.fullmatch(str(entry.name)):
        why = "it is an address to contact"
    elif root in WRITING and value and not _stays_inside(str(entry.name), value, run_dir):
        why = "a run writes only below its own directory"
    return why


def _class_of(node: Any) -> str:
    """What is called with a value; where its code is the person's own, so is what it does with a path."""
    while node is not None:
        target = None
        if isinstance(node, DictConfig):
            target = child_node(node, "_target_")
        if target is not None:
            return str(raw_value(target))
        node = parent_of(node)
    return ""


def _stays_inside(name: str, value: str, run_dir: Path) -> bool:
    """Whether a value is not a path, or one of a place in the run's directory."""
    by_name = is_path(name)
    if "${" in value:  # it waits for the data, whose classes may be called anything
        return not by_name and name not in _UNSAFE_NAME
    parts = re.split(r"[/\\]", value)
    absolute = Path(value).is_absolute()
    is_plain = not value.startswith("~") and "$" not in value  # some classes expand these
    if not (by_name or absolute or ".." in parts) and is_plain:
        return True
    # What is not a name of a path, such as a file's name with `..`, is taken from wherever its class puts it.
    full_path = Path(os.path.normpath(Path.cwd() / value))
    return is_plain and full_path.is_relative_to(run_dir) and (by_name or absolute)


def _is_approved(key: str, value: str, person: Trust) -> bool:
    if key in person.keys or (key, value) in person.said:
        return True
    return ".." not in value.split("/") and any(
        value == allowed or value.startswith(f"{allowed.rstrip('/')}/")
        for allowed in person.values
    )


def refuse_untyped(key: str, value: str, why: str, person: Trust, typed: str = "") -> None:
    """Refuse a value that only the user may set, unless it was typed or listed in the project."""
    if _is_approved(key, value, person):
        return
    raise ConfigError(
        f"{value!r:.200} was not given on the command line, and {why}",
        key=key,
        hint=f"to allow it, type {typed or format_override(key, str(value)):.200}, "
        f"or list it under {VALUES} in conf/project.yaml",
    )
