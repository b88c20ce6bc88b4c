"""Private names of other libraries that src/ uses stand in one file per library, and are still there.

They are read from the source: a name that a new version has dropped would be assigned without an error, and a
resumed run would silently be another.
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

SRC = Path(__file__).parents[2] / "src" / "assay"
LIBRARIES = (
    "lightning.pytorch",
    "lightning.fabric",
    "torchmetrics",
    "torch.optim",
    "torch.utils.data",
    "optuna",
    "hydra",
    "omegaconf",
)
MODULES = ("torch.cpu", "torch.distributed.distributed_c10d", "torch.nn.modules.module", "torch")
PRIVATE = re.compile(r"_(?!_)\w*[^\W_]")
OF_EVERY_TUPLE = {"_replace"}


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SRC.rglob("*.py"))}


def imports_lightning(tree: ast.Module) -> bool:
    froms = (node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    names = (one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names)
    return any(name.startswith("lightning") for name in (*froms, *names))


def own_names(tree: ast.Module) -> set[str]:
    """What is defined in a file: functions, classes, attributes of self, variables."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node):
            found.add(node.attr)
    return found


def is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def used_names() -> dict[str, str]:
    """Every private name of others, with the file that uses it."""
    parsed = trees()
    own = set().union(*map(own_names, parsed.values()))
    found: dict[str, str] = {}
    for path, tree in parsed.items():
        if not imports_lightning(tree) and not path.stem.endswith("_internals"):
            continue
        names = {
            node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and not is_self(node)
        }
        # Names that are kept in a table, for getattr and setattr.
        pieces = {
            id(one) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for one in node.values
        }
        names |= {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and type(node.value) is str and id(node) not in pieces
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                ("lightning", "torch", "hydra")
            ):
                names |= {one.name for one in node.names}
        foreign = {name for name in names if PRIVATE.fullmatch(name)} - own - OF_EVERY_TUPLE
        found |= dict.fromkeys(foreign, path.relative_to(SRC).as_posix())
    return dict(sorted(found.items()))


@cache
def defined() -> set[str]:
    """Every private name that the libraries define or set."""
    definition = re.compile(
        r"(?:\bself\.(?:trainer\.)?|\bdef |\bclass |^\s*)(_(?!_)\w+)\s*(?:[:=(]|,.*=)", re.MULTILINE
    )
    found: set[str] = set()
    for name in (*LIBRARIES, *MODULES):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        paths = Path(spec.origin).parent.rglob("*.py") if name in LIBRARIES else [Path(spec.origin)]
        for path in paths:
            found.update(definition.findall(path.read_text(encoding="utf-8")))
    return found | set(dir(__import__("torch")))


USED = used_names()


def test_the_names_are_found() -> None:
    assert {"_restarting", "_logger_connector", "_last_global_step_saved", "_current_fx_name"} <= {*USED}
    assert "_restarting_like_never_before" not in defined()


@pytest.mark.parametrize("name", USED)
def test_it_is_still_there(name: str) -> None:
    assert name in defined(), f"{USED[name]} uses {name}, which this version of Lightning does not have"


ELSEWHERE = {
    "callbacks/run_log.py": {"_check_on_train_epoch_end"},  # a leaf, which knows nothing of the loops
    "callbacks/pruning.py": {"_study_id"},  # Optuna's
    "loop/changed_arguments.py": {"_get_closed_form_lr", "_last_lr", "_schedulers", "_step_count"},  # torch's
    "check/static/processes.py": {"_SubprocessScriptLauncher"},  # looks at a trainer before there are loops
}


def test_those_of_lightning_stand_in_one_file() -> None:
    found: dict[str, set[str]] = {}
    for name, path in USED.items():
        if not path.endswith("_internals.py"):
            found.setdefault(path, set()).add(name)
    assert found == ELSEWHERE


@pytest.mark.parametrize("library", ["hydra", "omegaconf", "torch"])
def test_only_one_file_imports_private_names_of(library: str) -> None:
    files = set()
    for path, tree in trees().items():
        for node in ast.walk(tree):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if any(re.match(rf"{library}\b(?!\._C\b).*\._", name) for name in names):
                files.add(path.stem)
    assert files == {f"{library}_internals"}


NODES = {"_value", "_get_node", "_get_parent", "_get_root", "_is_none", "_is_missing", "_is_interpolation"}


@pytest.mark.parametrize("path", trees(), ids=lambda path: path.relative_to(SRC).as_posix())
def test_nodes_of_omegaconf_are_asked_in_one_file(path: Path) -> None:
    attributes = (node for node in ast.walk(trees()[path]) if isinstance(node, ast.Attribute))
    asked = {node.attr for node in attributes if not is_self(node)} & NODES
    assert not asked or path.stem == "omegaconf_internals"


def test_a_version_that_nobody_has_looked_at_is_not_installed() -> None:
    project = tomllib.loads((SRC.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (wanted,) = (one for one in map(Requirement, project["dependencies"]) if one.name == "lightning")
    assert wanted.specifier.contains("2.6.6")
    assert not any(map(wanted.specifier.contains, ("2.6.2", "2.6.3", "2.7.0", "3.0")))
