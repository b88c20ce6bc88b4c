"""Jobs that run beside their own code, in a process of their own, and the parent's end of it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError
from assay.process import Stopped
from assay_cluster.children import end_with_parent, run_children

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ANSWER = "answer.json"
"""Beside the question: what it came to, or the error that kept it from that."""


def ask(
    question: Mapping[str, Any],
    place: Path,
    *,
    python: str,
    folder: Path,
    environment: Mapping[str, str],
) -> list[Any]:
    """Have a process that ends with this one do what is asked, in a folder; its files lie in `place`."""
    file = place / "question.json"
    file.write_text(json.dumps(question), encoding="utf-8")
    answer = place / _ANSWER
    answer.unlink(missing_ok=True)
    # -P: else a file torch.py in the current directory would be taken for torch.
    command = (python, "-P", "-m", "assay_lab.run_side", str(folder), str(file))
    (code,), stopped = run_children([(command, environment)])
    if stopped:
        raise Stopped(stopped)
    if not answer.is_file():
        raise AssayError(f"its process ended with code {code}; it says why above")
    said = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in said:
        raise AssayError(said["error"], hint=said["hint"])
    answers: list[Any] = said["answer"]
    return answers


def train_seeds(typed: Sequence[str], config_dir: Path | None, deadline: float) -> list[str]:
    """Train a sweep; the runs that finish in time. Seeds that finish where others fail are no fair choice."""
    from contextlib import redirect_stdout

    from assay_sweep.session import start_sweep

    with redirect_stdout(sys.stderr):
        swept = start_sweep(typed, config_dir, deadline=deadline)
    if swept.stopped:
        raise Stopped(signal.Signals(swept.stopped - 128).name)
    ended = [job for job in swept.jobs if job.outcome]
    if failed := [job.outcome.reason for job in ended if job.outcome and job.status == "failed"]:
        raise AssayError(
            f"{len(failed)} of {swept.total} runs failed: {failed[0]}", hint=str(swept.directory)
        )
    return [str(swept.run_dir(job)) for job in ended if job.status == "finished"]


def score_tests(
    runs: Sequence[str], trusted: Sequence[str], config_dir: Path | None
) -> list[dict[str, float]]:
    """The scores of the test subset of each run."""
    from assay_serve.evaluate import evaluate

    found = [evaluate(run, trusted, split="test", config_dir=config_dir) for run in runs]
    return [dict(one.metrics) for one in found]


def _answer(asked: dict[str, Any]) -> list[Any]:
    config_dir = None
    if "config_dir" in asked:
        config_dir = Path(asked["config_dir"])
    if "again" in asked:
        from assay_lab.run_again import run_again

        run_again(Path(asked["run"]), Path(asked["again"]), asked["trusted"])
        return []
    if "runs" in asked:
        return score_tests(asked["runs"], asked["words"], config_dir)
    return train_seeds(asked["words"], config_dir, time.monotonic() + asked["seconds"])


def main() -> None:
    """Do what is asked in a file that the command line names, in a folder that it names."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is to be saved before jobs run
    end_with_parent()
    folder, question = map(Path, sys.argv[1:])
    os.chdir(folder)
    from assay.files.atomic import write_text

    said: dict[str, Any]
    try:
        said = {"answer": _answer(json.loads(question.read_text(encoding="utf-8")))}
    except AssayError as error:
        said = {"error": error.message, "hint": error.hint}
    except KeyboardInterrupt:
        sys.exit(1)
    write_text(question.with_name(_ANSWER), json.dumps(said))


if __name__ == "__main__":
    main()
