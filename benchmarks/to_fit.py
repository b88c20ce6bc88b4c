"""What a run calls from typing to `Trainer.fit`: functions of assay, their files, and calls.

    uv run python benchmarks/to_fit.py [OVERRIDES...]

Without overrides: `model=mlp`. Goal: at most 400 functions in 80 files. Comprehensions, lambdas and the
bodies of modules and classes are not counted. The last lines say how often the same work is done: goal are
1 composition, 3 parses of overrides, 10 conversions to plain data, none back, few walks over it,
and each part built once. `--callers` says who does it.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import assay
from assay.cli.app import main as run_command

if TYPE_CHECKING:
    from types import FrameType

PACKAGE = str(Path(assay.__file__).parents[1])
ANONYMOUS = frozenset({"<module>", "<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


WORK = {
    "compose_config": "compositions",
    "parse_overrides": "parses of overrides",
    "to_container": "conversions to plain data",
    "_create_impl": "conversions from plain data",
    "walk": "walks over a config or a part of it",
}
"""By function, what is counted beside the calls."""
MANY = 5
"""Nodes at the top of what counts as a whole config."""


class FitReached(BaseException):
    """Raised at the call of `Trainer.fit`."""


callers: Counter[tuple[str, str]] = Counter()
"""What is counted, by the function of assay that asks for it."""


def note_work(frame: FrameType, work: Counter[str]) -> None:
    """Count work that is to be done once."""
    code = frame.f_code
    name = code.co_name
    if name == "build" and code.co_filename.startswith(PACKAGE):
        work[f"builds of {frame.f_locals['key']}"] += 1
    if name not in WORK:
        return
    values = frame.f_locals
    if name == "_create_impl":
        plain = values.get("obj")
        counts = isinstance(plain, dict) and len(plain) >= MANY and "seed" in plain
    elif name == "walk":  # a generator: at its start nothing was taken from it
        caller = frame.f_back
        recurses = caller is not None and caller.f_code is code
        counts = code.co_filename.startswith(PACKAGE) and "name" not in values and not recurses
    elif name == "parse_overrides":
        counts = "override_parser" in code.co_filename and bool(values["overrides"])
    else:
        counts = not code.co_filename.startswith(PACKAGE)
    work[WORK[name]] += counts
    if counts:
        callers[WORK[name], _caller(frame)] += 1


def _caller(frame: FrameType) -> str:
    """The function of assay that a call comes from."""
    outer = frame.f_back
    while outer is not None and not outer.f_code.co_filename.startswith(PACKAGE):
        outer = outer.f_back
    if outer is None:
        return ""
    return f"{Path(outer.f_code.co_filename).relative_to(PACKAGE)} {outer.f_code.co_qualname}"


def count_calls(overrides: list[str]) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """Run `assay train` up to `Trainer.fit`; count the calls of each (file, qualified name) of assay."""
    calls: Counter[tuple[str, str]] = Counter()
    work: Counter[str] = Counter()
    reached = threading.Event()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        note_work(frame, work)
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED and code.co_name not in ANONYMOUS
        if code.co_filename.startswith(f"{PACKAGE}/assay") and is_function:
            calls[code.co_filename, code.co_qualname] += 1
        if code.co_name == "fit" and code.co_filename.endswith("trainer/trainer.py"):
            sys.setprofile(None)
            reached.set()
            raise FitReached

    with tempfile.TemporaryDirectory() as folder:
        sys.argv = ["assay", "train", *(overrides or ["model=mlp"]), f"hydra.run.dir={folder}/run"]
        threading.setprofile(profile)
        sys.setprofile(profile)
        try:
            run_command()
        except (FitReached, SystemExit):
            if not reached.is_set():
                raise
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return calls, work


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--rooms", action="store_true", help="print the counts of each room")
    parser.add_argument("--list", action="store_true", help="print each function")
    parser.add_argument("--callers", action="store_true", help="print who does work again")
    arguments = parser.parse_args()
    calls, work = count_calls(arguments.overrides)
    if arguments.rooms:
        rooms = Counter(Path(file).relative_to(PACKAGE).parts[0] for file, _ in calls)
        for room, functions in rooms.most_common():
            print(f"{functions:6,} functions  {room}")
    if arguments.list:
        for (file, function), times in sorted(calls.items()):
            print(f"{times:6,} {Path(file).relative_to(PACKAGE)} {function}")
    files = {file for file, _ in calls}
    print(f"{len(calls):,} functions in {len(files)} files, {calls.total():,} calls")
    for what, times in sorted(work.items()):
        print(f"{times:6,} {what}")
        for (kind, caller), number in callers.most_common() if arguments.callers else ():
            if kind == what:
                print(f"{number:12,} {caller}")


if __name__ == "__main__":
    main()
