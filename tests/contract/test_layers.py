"""What rooms may import of others, and of torch."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "assay"
LEAVES = (
    *("augment", "callbacks", "data", "finetune", "logger", "loss", "metrics", "model", "optimizer"),
    "scheduler",
)
SHARED = (
    "errors",
    "error_location",
    "quoting",
    "splitmix",
    "layer_depth",
    "task",
    "terminal",
    "torch_internals",
)
ALSO = (
    *("assay.checkpoint.archive.", "assay.config.did_you_mean.", "assay.files.symlinks."),
    "assay.record.run_record.",
)
"""What every group may import: rooms, and files that judge files or words."""
HEAVY = {"torch", "torchvision", "lightning", "torchmetrics"}
LIGHT = (
    "__init__",
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
    "run.reproduce_process",
    "run.reproduce",
    "run.summary",
    "sweep",
    "targets.allowlist",
    "targets.judge_name",
    "targets.outside",
    "targets.trust",
    "task",
    "terminal",
)


def modules() -> list[str]:
    names = [path.relative_to(SRC).with_suffix("").as_posix().replace("/", ".") for path in SRC.rglob("*.py")]
    return sorted(names)


def source(name: str) -> str:
    return (SRC / (name.replace(".", "/") + ".py")).read_text(encoding="utf-8")


def imported(name: str, *, top_level_only: bool) -> set[str]:
    """Full names of what a module imports; blocks for the type checker do not count."""
    tree = ast.parse(source(name))
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
            assert not node.level, f"{name}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        pending.extend(ast.iter_child_nodes(node))
    return found


def group_of(name: str) -> str:
    return name.split(".", 1)[0]


@pytest.mark.parametrize("name", [n for n in modules() if group_of(n) in LEAVES])
def test_leaf_groups_know_neither_each_other_nor_hydra(name: str) -> None:
    own = group_of(name)
    for target in imported(name, top_level_only=False):
        assert group_of(target) not in ("hydra", "omegaconf"), f"assay.{name} imports {target}"
        if target.startswith("assay."):
            room = target.split(".")[1]
            assert target.startswith(ALSO) or room in (own, *SHARED), f"assay.{name} imports {target}"


@pytest.mark.parametrize(
    "name", [n for n in modules() if any(n == light or n.startswith(f"{light}.") for light in LIGHT)]
)
def test_light_modules_import_no_torch(name: str) -> None:
    heavy = {target for target in imported(name, top_level_only=True) if group_of(target) in HEAVY}
    assert not heavy


def test_module_knows_only_leaf_groups() -> None:
    own = {target for target in imported("module", top_level_only=False) if target.startswith("assay.")}
    assert all(target.split(".")[1] in (*LEAVES, "task") for target in own)


def test_tasks_know_only_figures_errors_and_what_is_printed() -> None:
    for name in (name for name in modules() if group_of(name) == "task"):
        own = {target for target in imported(name, top_level_only=False) if target.startswith("assay.")}
        assert {target.split(".")[1] for target in own} <= {"task", "figure", "errors", "terminal"}, name


def test_only_targets_calls_what_a_config_names() -> None:
    def users(*names: str) -> list[str]:
        return [n for n in modules() if imported(n, top_level_only=False).intersection(names)]

    assert not users(
        "hydra.utils.instantiate", "hydra.utils.call", "hydra.utils.get_class", "hydra.utils.get_method"
    )
    assert users("assay.targets.instantiate.instantiate") == ["build.node"]
    # Those beside it take a name from a list that is written in the source, or one of Optuna's own.
    looked_up = [n for n in modules() if imports_by_name(ast.parse(source(n)))]
    assert looked_up == ["sweep.factory", "sweep.worker.preload", "targets.resolve"]


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


@pytest.mark.parametrize("name", modules())
def test_nothing_unpickles(name: str) -> None:
    assert not dangers(ast.parse(source(name)))


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
