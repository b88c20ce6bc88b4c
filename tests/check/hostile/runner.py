"""Runs hostile cases through assay's real entry points; watches what is imported and started.

`python runner.py FOLDER EVERY [BEGIN]`: every EVERY-th case whose name begins so; prints a line of JSON each.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
import warnings
from contextlib import chdir
from pathlib import Path
from typing import Any

from tests.check.hostile.case import QUICK, Case, run_directory
from tests.check.hostile.corpus import CASES
from tests.check.hostile.folder import fill
from tests.check.hostile.payloads import MARKER
from typer.testing import CliRunner

KNOWN = (
    "torch",
    "torchvision",
    "torchmetrics",
    "lightning",
    "assay",
    "lightning_utilities",
    "lightning_fabric",
    "optuna",
    "sqlalchemy",
    "colorlog",
    "tqdm",
)
"""Whose further modules may be imported while a target is looked for."""
STARTED = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "pickle.find_class",
    "exec",
)
seen: list[tuple[str, str]] = []
"""What Python's audit hook saw: modules imported, commands started."""


def watch(event: str, args: tuple[Any, ...]) -> None:
    if event == "import":
        seen.append((event, str(args[0])))
    elif event in STARTED and event != "exec":
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
    done = CliRunner().invoke(app, [case.verb, *case.typed], env=case.environment)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return 1, "".join(traceback.format_exception(done.exception))
    return done.exit_code, done.output


def innocent(folder: Path) -> None:
    """What honest work imports and starts, so that it is known, by the words that stand in most cases.

    Raises:
        AssertionError: They are refused by themselves, and so would be whatever stands beside them.
    """
    linear = {"_target_": "torch.nn.Sequential", "_args_": [{"_target_": "torch.nn.Flatten"}]}
    fill(folder, run_directory(linear, "!pickle"))
    honest: tuple[tuple[str, ...], ...] = (QUICK, (*QUICK, "-m", "seed=1,2", "hydra.sweep.dir=sweep"))
    typed: tuple[tuple[str, ...], ...] = (
        ("optimizr=sgd",),
        ("optimizer.lr=x",),
        ("model._target_=torch.nn.Lineer",),
        ("data=image_folder", "data.source.root=nowhere"),
        ("data=arrays", "data.source.root=evil.pkl"),
        ("augment=teacher", "augment.model.run=nowhere"),
    )
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
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
