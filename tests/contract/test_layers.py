"""What rooms may import of others, and of torch."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "assay"
LEAVES = (
    *("augment", "callbacks", "data", "finetune", "logger", "loss", "metrics", "model", "optimizer"),
    "scheduler",
)
SHARED = (
    "errors",
    "quoting",
    "splitmix",
    "layer_depth",
    "task",
    "terminal",
    "torch_internals",
)
ALSO = (
    *(
        "assay.config.did_you_mean.",
        "assay.files.atomic.",
        "assay.files.control_groups.",
        "assay.files.symlinks.",
    ),
    *("assay.config.yaml_file.", "assay.record.run_record.", "assay.targets.objects."),
)
"""What every group may import: rooms, and files that judge or write files, or judge words."""
HEAVY = {"torch", "torchvision", "lightning", "torchmetrics"}
LIGHT = (
    "__init__",
    "analysis",
    "callbacks.optuna_study",
    "check.job",
    "cli",
    "compose",
    "config",
    "errors",
    "figure",
    "files",
    "paths",
    "process",
    "quoting",
    "record",
    "report.difference",
    "run.reproduce",
    "run.result",
    "sweep",
    "targets.allowed_targets",
    "targets.external_values",
    "targets.trust",
    "task",
    "terminal",
)


Trees = dict[str, ast.Module]


@pytest.fixture(scope="module")
def trees() -> Iterator[Trees]:
    """All modules, parsed once."""
    paths = {
        path.relative_to(SRC).with_suffix("").as_posix().replace("/", "."): path for path in SRC.rglob("*.py")
    }
    yield {name: ast.parse(paths[name].read_bytes()) for name in sorted(paths)}
    imported.cache_clear()


@cache
def imported(tree: ast.Module, *, top_level_only: bool = False) -> frozenset[str]:
    """Full names of what a module imports; blocks for the type checker do not count."""
    found: set[str] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if top_level_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"from {'.' * node.level}{node.module}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        pending.extend(ast.iter_child_nodes(node))
    return frozenset(found)


def rooms(names: Iterable[str]) -> set[str]:
    """Those of assay among what is imported."""
    return {name.split(".")[1] for name in names if name.startswith("assay.")}


def group_of(name: str) -> str:
    return name.split(".", 1)[0]


def test_leaf_groups_know_neither_each_other_nor_hydra(trees: Trees) -> None:
    leaves = {name: imported(tree) for name, tree in trees.items() if group_of(name) in LEAVES}
    assert {group_of(name) for name in leaves} == set(LEAVES)
    for name, targets in leaves.items():
        known = rooms(target for target in targets if not target.startswith(ALSO))
        assert not {"hydra", "omegaconf"} & {group_of(target) for target in targets}, name
        assert known <= {group_of(name), *SHARED}, name


@pytest.mark.parametrize("light", LIGHT)
def test_light_modules_import_no_torch(light: str, trees: Trees) -> None:
    found = [name for name in trees if name == light or name.startswith(f"{light}.")]
    assert found
    for name in found:
        assert not {group_of(target) for target in imported(trees[name], top_level_only=True)} & HEAVY, name


def test_module_knows_only_leaf_groups(trees: Trees) -> None:
    assert rooms(imported(trees["module"])) <= {*LEAVES, "task"}


def test_tasks_know_only_figures_errors_and_what_is_printed(trees: Trees) -> None:
    for name, tree in trees.items():
        if group_of(name) == "task":
            assert rooms(imported(tree)) <= {
                "task",
                "figure",
                "errors",
                "quoting",
                "terminal",
            }, name


def test_only_targets_calls_what_a_config_names(trees: Trees) -> None:
    def users(*names: str) -> list[str]:
        return [name for name, tree in trees.items() if imported(tree).intersection(names)]

    assert not users(
        "hydra.utils.instantiate", "hydra.utils.call", "hydra.utils.get_class", "hydra.utils.get_method"
    )
    assert users("assay.targets.instantiate.instantiate") == ["build.node"]
    # Those beside it take a name from a list that is written in the source, or one of Optuna's own.
    looked_up = [name for name, tree in trees.items() if imports_by_name(tree)]
    assert looked_up == ["sweep.definition", "sweep.worker.fork_server", "targets.resolve"]


def imports_by_name(tree: ast.AST) -> bool:
    """Whether a module is imported whose name is not written there."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(
        ast.unparse(call.func).endswith("import_module") and not isinstance(call.args[0], ast.Constant)
        for call in calls
    )


RUNS_CODE = {
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "yaml.load",
    "yaml.full_load",
    "yaml.unsafe_load",
    "joblib.load",
    "marshal.loads",
    "eval",
    "exec",
}


def dangers(tree: ast.AST) -> list[str]:
    """Calls that run what a file says: unpickling, unsafe YAML, eval."""
    found = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        loads_tensors = name == "torch.load" and given.get("weights_only") != "True"
        if name in RUNS_CODE or loads_tensors or given.get("allow_pickle") == "True":
            found.append(f"line {call.lineno}: {ast.unparse(call)}")
        if given.get("weights_only") == "False" or given.get("weights_only") == "None":
            found.append(f"line {call.lineno}: {ast.unparse(call)}")
    return found


def test_nothing_unpickles(trees: Trees) -> None:
    assert not {name: found for name, tree in trees.items() if (found := dangers(tree))}


@pytest.mark.parametrize(
    "code",
    [
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "trainer.test(m, weights_only=False)",
        "pickle.loads(data)",
        "numpy.load(path, allow_pickle=True)",
        "yaml.load(text, Loader=yaml.Loader)",
        "eval(text)",
    ],
)
def test_the_search_for_unpickling_finds_it(code: str) -> None:
    assert dangers(ast.parse(code))
