"""What the source may import, call and ask; directions between rooms are in `[tool.importlinter]`."""

import ast
from functools import cache
from pathlib import Path

import pytest

from assay.task.task_of import TASKS

SRC = Path(__file__).parents[2] / "src"
LEAVES = (
    *("augment", "callbacks", "data", "finetune", "logger", "loss", "metrics", "model", "optimizer"),
    "scheduler",
)


@cache
def trees() -> dict[str, ast.Module]:
    """All modules of the core and the rooms, parsed once."""
    return {
        path.relative_to(SRC).with_suffix("").as_posix().replace("/", "."): ast.parse(path.read_bytes())
        for path in sorted(SRC.rglob("*.py"))
    }


def imported(tree: ast.Module) -> set[str]:
    """Full names of what a module imports; blocks for the type checker do not count."""
    found: set[str] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"from {'.' * node.level}{node.module}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        pending.extend(ast.iter_child_nodes(node))
    return found


@cache
def imports() -> dict[str, set[str]]:
    """What each module imports."""
    return {name: imported(tree) for name, tree in trees().items()}


def is_leaf(name: str) -> bool:
    package, *parts = name.split(".")
    return package == "assay" and parts[0] in LEAVES


def test_leaf_groups_know_no_config() -> None:
    leaves = {name: targets for name, targets in imports().items() if is_leaf(name)}
    assert len(leaves) > len(LEAVES)
    for name, targets in leaves.items():
        assert not {"hydra", "omegaconf"} & {target.split(".")[0] for target in targets}, name


def test_only_targets_calls_what_a_config_names() -> None:
    def users(*names: str) -> list[str]:
        return [name for name, targets in imports().items() if targets.intersection(names)]

    assert not users(*(f"hydra.utils.{name}" for name in ("instantiate", "call", "get_class", "get_method")))
    assert users("assay.targets.resolve.instantiate") == ["assay.assemble.node"]
    # Those beside it take a name from a list that is written in the source, or one of Optuna's own.
    looked_up = [
        name
        for name, tree in trees().items()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and getattr(call.func, "attr", getattr(call.func, "id", "")).endswith("import_module")
        and not isinstance(call.args[0], ast.Constant)
    ]
    assert sorted({*looked_up}) == [
        *("assay.__init__", "assay.targets.resolve", "assay.targets.trust"),
        "assay_sweep.worker.fork_server",
    ]


RUNS_CODE = {
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "yaml.load", "yaml.full_load", "yaml.unsafe_load"),
    *("joblib.load", "marshal.loads", "eval", "exec"),
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


def test_nothing_unpickles() -> None:
    assert not {name: found for name, tree in trees().items() if (found := dangers(tree))}


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


def branches(tree: ast.AST) -> list[str]:
    """Comparisons with the name of a task, cases of a match, and tables with an entry for each."""
    found = []
    for node in ast.walk(tree):
        asked: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            asked = [node.value]
        elif isinstance(node, ast.Dict):
            asked = node.keys
        constants = [one for value in asked if value is not None for one in ast.walk(value)]
        if any(isinstance(one, ast.Constant) and one.value in TASKS for one in constants):
            found.append(ast.unparse(node)[:80])
    return found


def test_only_tasks_know_what_differs_between_tasks() -> None:
    assert not {
        name: found
        for name, tree in trees().items()
        if not name.startswith("assay.task.") and (found := branches(tree))
    }
    for code in ('spec.task == "multiclass"', 'task in ("binary",)', '{"regression": 2}[task]'):
        assert branches(ast.parse(code))
