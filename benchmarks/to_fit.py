"""What a run calls from typing to `Trainer.fit`: functions of assay, their files, and calls.

    uv run python benchmarks/to_fit.py [OVERRIDES...]

Without overrides: `model=mlp`. Goal: at most 500 functions in 120 files. Comprehensions, lambdas and the
bodies of modules and classes are not counted.
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


class FitReached(BaseException):
    """Raised at the call of `Trainer.fit`."""


def count_calls(overrides: list[str]) -> Counter[tuple[str, str]]:
    """Run `assay train` up to `Trainer.fit`; count the calls of each (file, qualified name) of assay."""
    calls: Counter[tuple[str, str]] = Counter()
    reached = threading.Event()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
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
    return calls


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--rooms", action="store_true", help="print the counts of each room")
    parser.add_argument("--list", action="store_true", help="print each function")
    arguments = parser.parse_args()
    calls = count_calls(arguments.overrides)
    if arguments.rooms:
        rooms = Counter(Path(file).relative_to(PACKAGE).parts[0] for file, _ in calls)
        for room, functions in rooms.most_common():
            print(f"{functions:6,} functions  {room}")
    if arguments.list:
        for (file, function), times in sorted(calls.items()):
            print(f"{times:6,} {Path(file).relative_to(PACKAGE)} {function}")
    files = {file for file, _ in calls}
    print(f"{len(calls):,} functions in {len(files)} files, {calls.total():,} calls")


if __name__ == "__main__":
    main()
