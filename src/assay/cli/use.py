"""Using what was trained: `assay eval`."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.arguments import ConfigDir, Debug, Json, Overrides, loading
from assay.cli.error_report import reported
from assay.terminal import Console

if TYPE_CHECKING:
    from assay.run.evaluate import Evaluation


class Role(StrEnum):
    """Which weights."""

    best = "best"
    last = "last"


class Subset(StrEnum):
    """Which samples."""

    train = "train"
    val = "val"
    test = "test"


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    overrides: Overrides = None,
    *,
    checkpoint: Annotated[Role, typer.Option("--checkpoint", help="Which weights.")] = Role.best,
    split: Annotated[
        Subset | None,
        typer.Option("--split", help="Which samples.  [default: test; of other data without one: all]"),
    ] = None,
    config_dir: ConfigDir = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Test a run's weights again, on its own data or on other data.

    RUN data.source.path=new.csv tests a file of new rows, RUN data=OPTION another data set. Preprocessing is
    the run's. The scores become an entry of the run's record.
    """
    with reported(debug, as_json=as_json) as document:
        from assay.record.run_record import RunRecord

        RunRecord.load(run)  # a mistyped directory costs no wait
        with loading():
            from assay.run.evaluate import evaluate as test

        found = test(
            run,
            overrides or [],
            checkpoint=checkpoint.value,
            split=split.value if split is not None else "",
            config_dir=config_dir,
        )
        _say(found)
        document.say("eval", found)


def _say(found: Evaluation) -> None:
    from assay.run.summary import scores_of

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{found.subset:<5}[/bold] {scores_of(found.metrics, found.subset)}")
    samples = f"{found.num_samples:,} samples, " if found.num_samples else ""
    whose = "the run's own data" if found.same_data else "other data"
    console.print(f"[bold]data[/bold]  {samples}{whose}")
    for note in found.notes:
        console.print("[bold]note[/bold]  ", end="")
        console.print(note, markup=False)
    if found.not_kept:
        console.print(f"not kept in the record: {found.not_kept}", markup=False)
    run = shlex.quote(str(found.run_dir))
    if found.predictions:
        console.print("[bold]kept[/bold]  ", end="")
        console.print(str(found.run_dir / found.predictions), markup=False)
    console.print("[bold]next[/bold]  ", end="")
    console.print(f"assay predict {run} INPUT", markup=False)
