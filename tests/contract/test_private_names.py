"""Private names of other libraries that src/ uses stand in one file per library, and are still there.

They are read from the source: a name that a new version has dropped would be assigned without an error, and a
resumed run would silently be another.
"""

from __future__ import annotations

import ast
import re
import tomllib
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable

SRC = Path(__file__).parents[2] / "src"
LIBRARIES = (
    *("lightning.pytorch", "lightning.fabric", "torchmetrics", "torch.optim", "torch.utils.data"),
    *("optuna", "hydra", "omegaconf"),
)
MODULES = (
    *("torch.cpu", "torch.distributed.distributed_c10d", "torch.nn.modules.module", "torch"),
    *("torch.autograd.graph", "torch.autograd.profiler"),
)
DEPRECATING = r"(torch|torchvision|torchmetrics|lightning|hydra|omegaconf|pandas|numpy|sklearn)\b"
PRIVATE = re.compile(r"_(?!_)\w*[^\W_]")
OF_HYDRA_1_4 = {"_get_active_execution_whitelist", "_is_execution_whitelisted"}
OF_EVERY_TUPLE = {"_replace"}


Nodes = dict[Path, list[ast.AST]]


@pytest.fixture(scope="module")
def nodes() -> Nodes:
    """Those of each file, parsed and walked once."""
    paths = sorted(SRC.rglob("*.py"))
    return {path: list(ast.walk(ast.parse(path.read_bytes()))) for path in paths}


@pytest.fixture(scope="module")
def used(nodes: Nodes) -> dict[str, str]:
    """Every private name of others, with the file that uses it."""
    own = {name for found in nodes.values() for name in own_names(found)}
    names: dict[str, str] = {}
    for path, found in nodes.items():
        if imports_lightning(found) or path.stem.endswith("_internals"):
            foreign = {name for name in named(found) if PRIVATE.fullmatch(name)} - own - OF_EVERY_TUPLE
            names |= dict.fromkeys(foreign, path.relative_to(SRC).as_posix())
    return names


def imports_lightning(nodes: Iterable[ast.AST]) -> bool:
    return any(
        name.startswith("lightning")
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
        )
    )


def own_names(nodes: Iterable[ast.AST]) -> set[str]:
    """What is defined in a file: functions, classes, attributes of self, variables."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node):
            found.add(node.attr)
    return found


def is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def named(nodes: list[ast.AST]) -> set[str]:
    """Attributes, imported names, and names that are kept in a table, for getattr and setattr."""
    found: set[str] = set()
    pieces = {id(one) for node in nodes if isinstance(node, ast.JoinedStr) for one in node.values}
    for node in nodes:
        if isinstance(node, ast.Attribute) and not is_self(node):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and type(node.value) is str and id(node) not in pieces:
            found.add(node.value)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            ("lightning", "torch", "hydra")
        ):
            found |= {one.name for one in node.names}
    return found


def defined() -> set[str]:
    """Every private name that the libraries define or set."""
    definition = re.compile(
        r"(?:\b(?:self|trainer|opt|wrapper)\.(?:trainer\.)?|\bdef |\bclass |^\s*)"
        r"(_(?!_)\w+)\s*(?:[:=(]|,.*=)",
        re.MULTILINE,
    )
    found: set[str] = set()
    for name in (*LIBRARIES, *MODULES):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        paths = Path(spec.origin).parent.rglob("*.py") if name in LIBRARIES else [Path(spec.origin)]
        for path in paths:
            found.update(definition.findall(path.read_text(encoding="utf-8")))
    return found | {*dir(torch), *dir(torch.Tensor)}


def test_they_are_still_there(used: dict[str, str]) -> None:
    assert {"_restarting", "_logger_connector", "_last_global_step_saved", "_current_fx_name"} <= {*used}
    there = defined()
    assert "_restarting_like_never_before" not in there
    there |= set() if version("hydra-core").startswith("1.4") else OF_HYDRA_1_4
    assert not {name: path for name, path in used.items() if name not in there}


ELSEWHERE = {
    "assay_sweep/pruning.py": {"_study_id"},  # Optuna's
    "assay/loop/carried_state.py": {
        "_get_closed_form_lr",
        "_last_lr",
        "_schedulers",
        "_step_count",
    },  # torch's
    "assay_prove/step.py": {"_indices", "_scaled_dot_product_flash_attention_for_cpu"},  # torch's
    "assay_prove/fit.py": {"_SubprocessScriptLauncher"},  # looks at a trainer before there are loops
}


def test_those_of_lightning_stand_in_files_of_their_own(used: dict[str, str]) -> None:
    found: dict[str, set[str]] = {}
    for name, path in used.items():
        if not path.endswith("_internals.py"):
            found.setdefault(path, set()).add(name)
    assert found == ELSEWHERE


@pytest.mark.parametrize("library", ["hydra", "omegaconf", "torch"])
def test_only_one_file_imports_private_names_of(library: str, nodes: Nodes) -> None:
    files = set()
    for path, found in nodes.items():
        for node in found:
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if any(re.match(rf"{library}\b(?!\._C\b).*\._", name) for name in names):
                files.add(path.stem)
    assert files == {f"{library}_internals"}


def deprecated(module: str, name: str) -> str | None:
    """Why a name of another library is going, where it says so as PEP 702 has it."""
    found: str | None = getattr(getattr(import_module(module), name, None), "__deprecated__", None)
    return found


def test_no_name_that_is_imported_is_deprecated(nodes: Nodes) -> None:
    assert deprecated("torch.distributed.checkpoint.state_dict_saver", "save_state_dict"), "the control"
    imported = {
        (str(node.module), one.name)
        for found in nodes.values()
        for node in found
        if isinstance(node, ast.ImportFrom) and re.match(DEPRECATING, str(node.module))
        for one in node.names
    }
    assert len(imported) > 100
    assert not {f"{module}.{name}": why for module, name in imported if (why := deprecated(module, name))}


def test_a_version_that_nobody_has_looked_at_is_not_installed() -> None:
    project = tomllib.loads((SRC.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {one.name: one.specifier for one in map(Requirement, project["dependencies"])}
    assert wanted["lightning"].contains("2.6.6")
    assert not any(map(wanted["lightning"].contains, ("2.6.2", "2.6.3", "2.7.0", "3.0")))
    assert [*wanted["hydra-core"].filter(["1.3.7", "1.3.8", "1.4.0rc3", "1.5.0"])] == ["1.3.8"], (
        "a plain install"
    )
    assert wanted["hydra-core"].contains("1.4.0rc3", prereleases=True), "one that asks for it"
