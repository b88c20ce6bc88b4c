"""Runs hostile cases through assay's real entry points; watches what is imported and started.

`python runner.py FOLDER EVERY [BEGIN]`: every EVERY-th case whose name begins so; prints a line of JSON each.
`python runner.py FOLDER naive`: every payload by a loader that does not judge, which shows that it is one.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import traceback
import warnings
from contextlib import chdir, suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.check.hostile.cases import IMPORTED, MARKER, NODES, QUICK, Case, call, fill, run_directory
from tests.check.hostile.corpus import CASES
from typer.testing import CliRunner

KNOWN = [
    *("torch", "torchvision", "torchmetrics", "lightning", "assay", "assay_sweep"),
    *("lightning_utilities", "lightning_fabric", "optuna", "sqlalchemy", "colorlog", "tqdm"),
]
"""Whose further modules may be imported while a target is looked for."""
STARTED = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pickle.find_class")
seen: list[tuple[str, str]] = []
"""What Python's audit hook saw: modules imported, commands started."""


def watch(event: str, args: tuple[Any, ...]) -> None:
    if event == "import":
        seen.append((event, str(args[0])))
    elif event in STARTED:
        seen.append((event, str(args)))


def run(case: Case) -> tuple[int, str]:
    """Exit code and everything said."""
    from assay.cli.app import app

    if case.verb == "load":
        import assay
        from assay.errors import AssayError

        try:
            assay.load(*case.typed)
        except AssayError as error:
            return error.exit_code, str(error)
        return 0, ""
    words = [word for word in case.typed if "-m" not in case.typed or word != QUICK[-1]]  # refused for sweeps
    done = CliRunner().invoke(app, [case.verb, *words], env=case.environment)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return 1, "".join(traceback.format_exception(done.exception))
    return done.exit_code, done.output


def innocent(folder: Path) -> None:
    """What honest work imports and starts, so that it is known, by the words that stand in most cases.

    Raises:
        AssertionError: They are refused by themselves, and so would be whatever stands beside them.
    """
    fill(folder, run_directory(call("torch.nn.Sequential", call("torch.nn.Flatten")), "!pickle"))
    sweep = ("-m", "seed=1,2", "hydra.sweep.dir=sweep", "hydra/launcher=serial", "baseline=none")
    honest: tuple[tuple[str, ...], ...] = (QUICK, (*QUICK, *sweep))
    typed: tuple[tuple[str, ...], ...] = (
        ("optimizr=sgd",),
        ("optimizer.lr=x",),
        ("model._target_=torch.nn.Lineer",),
        ("data=image_folder", "data.source.root=nowhere"),
        ("data=arrays", "data.source.root=evil.pkl"),
        ("augment=teacher", "augment.model.run=nowhere"),
    )
    importlib.import_module("assay_sweep.launcher.local")  # starts another process, which takes seconds
    with chdir(folder):
        for words in honest:
            code, said = run(Case("innocent", words))
            assert code == 0, said
        for words in typed:
            run(Case("innocent", words))
        for where in ("evil_run", "nowhere"):
            run(Case("innocent", (where,), verb="load"))


def listing(folder: Path) -> set[str]:
    """Every file with its size, links not followed; what Python and locks leave does not count."""
    found = (path for path in folder.rglob("*") if "__pycache__" not in path.parts and not path.is_dir())
    return {f"{path} {path.lstat().st_size}" for path in found if path.lstat().st_size}


def judge(case: Case, folder: Path, known: set[str]) -> dict[str, Any]:
    fill(folder, case.files)
    before, path, files = set(sys.modules), list(sys.path), listing(folder.parent)
    del seen[:]
    with chdir(folder):
        code, said = run(case)
    sys.path[:] = path
    asked = {name for event, name in seen if event == "import"}
    loaded = set(sys.modules) - before
    roots = {*KNOWN, *case.trusted}
    foreign = {name for name in loaded if name.partition(".")[0] not in roots} - known
    for name in loaded:
        if name.partition(".")[0] in case.trusted:
            del sys.modules[name]
    evil = {Path(name).parts[0].removesuffix(".py") for name in case.files if name.endswith(".py")}
    return {
        "name": case.name,
        "code": code,
        "said": said,
        "marker": [str(p) for p in (*folder.parent.glob(MARKER), *folder.rglob(f"{MARKER}*"))],
        "foreign": sorted(foreign | {name for name in asked & evil if name not in roots | known}),
        "written": [
            one for one in sorted(listing(folder.parent) ^ files) if "/.lock " not in one
        ],  # who goes on locks the run
        "started": [f"{event} {what}" for event, what in seen if event != "import"],
    }


def locate(path: str) -> Any:
    parts = path.split(".")
    found: Any = importlib.import_module(parts[0])
    for index, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            importlib.import_module(".".join(parts[:index]))
        found = getattr(found, part)
    return found


def make(node: Any) -> Any:
    """A node by the few rules that every loader has."""
    if isinstance(node, list):
        return [make(one) for one in node]
    if not isinstance(node, dict):
        return node
    if "_target_" not in node:
        return {key: make(value) for key, value in node.items()}
    inner = node if node.get("_recursive_") is False else {k: make(v) for k, v in node.items()}
    plain = {key: value for key, value in inner.items() if not key.startswith("_")}
    called = partial(locate(node["_target_"]), *inner.get("_args_", []), **plain)
    return called if node.get("_partial_") else called()


def naive(folder: Path) -> None:
    for number, (name, node) in enumerate(NODES["payloads"].items()):
        place = folder / str(number)
        fill(place, {})
        sys.modules.pop(IMPORTED, None)
        sys.path.insert(0, str(place))
        importlib.invalidate_caches()
        with chdir(place), suppress(Exception):
            make(node)
        sys.path.remove(str(place))
        sys.stdout.write(f"{json.dumps({'name': name, 'marker': (place / MARKER).exists()})}\n")


def main(folder: Path, every: int, only: str = "") -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    os.environ.update(OMP_NUM_THREADS="1")
    (folder / "innocent").mkdir(parents=True)
    innocent(folder / "innocent")
    sys.addaudithook(watch)
    known = set(sys.modules)
    for number, case in enumerate(CASES):
        if number % every == 0 and case.name.startswith(only):
            sys.stdout.write(f"{json.dumps(judge(case, folder / 'cases' / str(number) / 'in', known))}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[2] == "naive":
        naive(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
