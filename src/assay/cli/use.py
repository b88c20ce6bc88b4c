"""Using what was trained: `assay eval` and `assay export`."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.arguments import ConfigDir, Debug, Json, Overrides, loading
from assay.cli.error_report import reported
from assay.terminal import Console

if TYPE_CHECKING:
    from assay.run.evaluate import Evaluation
    from assay.run.export.description import Exported


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


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    *,
    file_format: Annotated[
        str, typer.Option("--format", "-f", metavar="onnx|torch_export|safetensors", help="Of the file.")
    ] = "onnx",
    quantize: Annotated[
        str | None, typer.Option("--quantize", metavar="int8", help="Round weights to 8 bits (onnx).")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PATH", help="File or folder.  [default: RUN/export/FORMAT]"),
    ] = None,
    checkpoint: Annotated[Role, typer.Option("--checkpoint", help="Which weights.")] = Role.best,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a run's model into a file that runs without assay, with a model card beside it.

    What the run's data does to raw input and what the outputs mean is inside where the format can hold it
    (safetensors holds the weights alone). The file is compared with the original on the run's own test
    samples first; one that says something else is not kept.
    """
    with reported(debug, as_json=as_json) as document:
        from assay.record.run_record import RunRecord

        RunRecord.load(run)  # a mistyped directory costs no wait
        with loading():
            from assay.run.export.export import export as export_run

        options: Any = {"out": out, "checkpoint": checkpoint.value, "quantize": quantize}
        exported = export_run(run, file_format, **options)  # type: ignore[arg-type]  # it judges the name
        _say_exported(exported)
        document.say("export", exported)


def _say_exported(exported: Exported) -> None:
    from assay.run.export.model_card import agreement_in_words

    console, about = Console(highlight=False, soft_wrap=True), exported.description
    size = f"{exported.size / 1e6:.2f} MB"
    lines = [("file", f"{exported.path} ({size}{', int8' if exported.quantized else ''})")]
    lines.append(("card", str(exported.card)))
    lines += [
        ("input", f"{one['name']}: {one['dtype']} [{', '.join(map(str, one['shape']))}]")
        for one in about["inputs"]
    ]
    lines.append(("output", about["output"]["name"]))
    lines.append(("inside", "; ".join(about["inside"]) or "the bare model"))
    lines.append(("check", agreement_in_words(exported)))
    lines += [("note", note) for note in exported.notes]
    lines.append(("next", f"the lines that run it are in {shlex.quote(str(exported.card))}"))
    for name, text in lines:
        console.print(f"[bold]{name:<6}[/bold] ", end="")
        console.print(text, markup=False)
