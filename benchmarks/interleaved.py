"""Both sides of a timing in processes of their own, taken in turns."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WARM_UP = 2
_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


@final
class Side:
    """A process that has imported everything, and answers one line of JSON with another.

    Args:
        script: Of Python, which calls `answer`.
        arguments: Of the script.
    """

    def __init__(self, script: str, *arguments: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != _NVML}
        self._process = subprocess.Popen(  # noqa: S603 - this benchmark's own script
            [sys.executable, script, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **question: Any) -> Any:
        """What the process makes of a question; the benchmark ends where it makes nothing of it."""
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101, PT018 - pipes
        print(json.dumps(question), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"a side has ended with code {self._process.wait()}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def answer(give: Callable[..., Any]) -> None:
    """Answer questions until there are no more.

    Args:
        give: Called with what was asked; its result is the answer.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what else is printed is no answer
    for line in sys.stdin:
        print(json.dumps(give(**json.loads(line))), file=answers, flush=True)


def by_hand_and_ours(
    script: str, job: Path, pairs: int, **question: Any
) -> tuple[list[float], list[float], list[list[float]]]:
    """Time a job by hand and by assay, in turns.

    Args:
        script: Of the benchmark; with `--side` it is assay's side.
        job: File that the hand-written loop reads.
        pairs: How many rounds count.
        question: For both.

    Returns:
        As `in_turns`.
    """
    with (
        Side(str(Path(__file__).parent / "by_hand.py"), str(job)) as hand,
        Side(script, "--side", *sys.argv[1:]) as ours,
    ):
        return in_turns(hand, ours, pairs, **question)


def in_turns(
    hand: Side, ours: Side, pairs: int, **question: Any
) -> tuple[list[float], list[float], list[list[float]]]:
    """Ask by hand, ours, by hand, … after some rounds that do not count.

    Args:
        hand: Gives seconds.
        ours: Gives a list of seconds.
        pairs: How many rounds count.
        question: For both.

    Returns:
        Of each round: seconds by hand (the mean of two), the ratio of the first to the second, and ours.
    """
    means, noise, found = [], [], []
    for turn in range(WARM_UP + pairs):
        before = hand.ask(**question)
        one = ours.ask(**question)
        after = hand.ask(**question)
        if turn >= WARM_UP:
            means.append((before + after) / 2)
            noise.append(before / after)
            found.append(one)
    return means, noise, found


def ratios(name: str, times: Sequence[float], hand: Sequence[float]) -> str:
    """A line with the median of the times and of their ratios, and the spread of these.

    Args:
        name: Of what was timed.
        times: Seconds of each round.
        hand: The same by hand.
    """
    each = [one / other for one, other in zip(times, hand, strict=True)]
    return (
        f"  {name:<10}{1e6 * statistics.median(times):9.0f} µs   {statistics.median(each):.3f} of it "
        f"({min(each):.3f} to {max(each):.3f})"
    )
