"""Using what was trained: `assay eval`, `assay predict` and `assay export`."""

from __future__ import annotations

import math
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from assay.cli.verb import (
    Checkpoint,
    ConfigDir,
    Document,
    Overrides,
    show_loading,
)
from assay.errors import AssayError, ConfigError
from assay.quoting import command, pluralize
from assay.terminal import Console, make_table, print_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay_serve.evaluate import Evaluation
    from assay_serve.evaluate_members import MembersEvaluation
    from assay_serve.export.model_card import Exported
    from assay_serve.predict import Predicted

_SHOWN = 20
_IN_DOCUMENT = 1000
_WIDE = 1000
Runs = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="A run directory, or a sweep: the mean of its runs."),
]
Threshold = Annotated[
    str | None,
    typer.Option(
        metavar="P|RULE",
        help="With two classes, predict the second from this probability on; or from that which validation "
        "chooses: f1, 'recall>=0.8', 'precision>=0.9', cost=10:1 (of a miss and a false alarm).  "
        "[default: the run's]",
    ),
]


def evaluate(
    document: Document,
    run: Runs,
    changes: Overrides = None,
    *,
    checkpoint: Checkpoint = "best",
    split: Annotated[
        Literal["train", "val", "test"] | None,
        typer.Option(help="Subset to test.  [default: test; all of other data without one]"),
    ] = None,
    threshold: Threshold = None,
    config_dir: ConfigDir = None,
) -> None:
    """Test a run's weights again, on the same or on other data.

    RUN data.source.path=new.csv tests a file of new rows, RUN data=OPTION another data set. Preprocessing is
    the run's. The scores become an entry of the run's record. --threshold becomes that of the run, unless
    other data is tested.
    """
    from assay_serve.members import find_members

    members = find_members(run)  # a mistyped directory costs no wait
    options: Any = {"checkpoint": checkpoint, "split": split or "", "threshold": threshold}
    if members is not None:
        with show_loading():
            from assay_serve.evaluate_members import evaluate_members

        of_members = evaluate_members(members, changes or [], config_dir=config_dir, **options)
        document.say("eval_sweep", of_members)
        _print_members(document.console, of_members)
        return
    with show_loading():
        from assay_serve.evaluate import evaluate as test

    evaluation = test(run, changes or [], config_dir=config_dir, **options)
    document.say("eval", evaluation)
    _print_evaluation(document.console, evaluation)


def _print_evaluation(console: Console, evaluation: Evaluation) -> None:
    from assay.record.scores import describe_threshold
    from assay.run.result import format_scores, label_commands, predict_commands, read_shares

    shares = read_shares(evaluation.run_dir)
    scores = format_scores(evaluation.metrics, evaluation.subset, shares)
    print_lines(console, [(evaluation.subset, scores)], 5)
    whose = "other data"
    if evaluation.same_data:
        whose = "the run's own data"
    if evaluation.num_samples:
        whose = f"{pluralize(evaluation.num_samples, 'sample')}, {whose}"
    if evaluation.threshold:
        print_lines(console, [("threshold", describe_threshold(evaluation.threshold))], 9)
    lines = [("data", whose), *(("note", note) for note in evaluation.notes)]
    if evaluation.predictions:
        lines.append(("kept", str(evaluation.run_dir / evaluation.predictions)))
    print_lines(console, [*lines, *label_commands(predict_commands(evaluation.run_dir))], 5)


def _print_members(console: Console, evaluation: MembersEvaluation) -> None:
    from assay.record.scores import describe_threshold, format_score
    from assay.run.result import label_commands

    columns = {
        f"mean of {len(evaluation.members)} runs": evaluation.metrics,
        "a run (mean)": evaluation.member_metrics,
        "out of fold": evaluation.out_of_fold,
    }
    shown = {name: scores for name, scores in columns.items() if scores}
    table = make_table([evaluation.subset, *shown], shown)
    for name in evaluation.metrics:
        values = (format_score(name, scores.get(name, math.nan)) for scores in shown.values())
        table.add_row(name, *values)
    console.print(table)
    lines = [("data", pluralize(evaluation.num_samples, "sample"))]
    if evaluation.threshold:
        lines.append(("threshold", describe_threshold(evaluation.threshold)))
    lines += [("note", note) for note in evaluation.notes]
    print_lines(console, lines)
    print_lines(console, label_commands([command("export", evaluation.run_dir)]))


def predict(  # noqa: PLR0917 - typer passes them by name
    document: Document,
    run: Runs,
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[INPUT]…", help="Images, tables, .npy or .npz files, texts, or folders."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write all rows: .parquet, .csv or .jsonl."
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            min=1,
            help="Classes named per sample; tokens that a language model samples from.  [default: 3; all]",
        ),
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Text for the language model to continue."),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="T",
            help="Sampling temperature; 0 takes the most likely token.  [default: 1]",
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help="Maximum number of tokens per prompt.  [default: 200]"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of the sampling.  [default: 0]")
    ] = None,
    batch_size: Annotated[
        str, typer.Option(metavar="N|auto", help="Samples per batch.")
    ] = "auto",
    encoding: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Encoding of CSV and .txt files, such as cp1252."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Copy a column of the table, such as an id."),
    ] = None,
    threshold: Threshold = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Predict new samples, prepared as in the run's own evaluation.

    A file or row that cannot be predicted becomes a row with an error. Without --out the first 20 rows are
    shown, or the first 1,000 by --json. The exit code is 1 where nothing could be
    predicted.
    """
    if batch_size != "auto" and not (batch_size.isdecimal() and int(batch_size)):
        raise ConfigError(
            f"expected an int > 0 or auto, got {batch_size}",
            key="--batch-size",
            hint="--batch-size auto",
        )
    with show_loading():
        from assay.task.language_modelling import Sampling
        from assay_serve.ensemble import read
        from assay_serve.predict import check_name, check_prompts
        from assay_serve.predict import predict as predict_inputs
        from assay_serve.raw_files import read_as
        from assay_serve.threshold import set_threshold

        if out is not None:
            check_name(out)
        predictor = read(run, checkpoint)
        if threshold is not None:
            set_threshold(predictor, run, threshold)
    console = Console(stderr=True)
    inputs = inputs or []
    prompt = prompt or []
    drawn = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
    drawn = {name: value for name, value in drawn.items() if value is not None}
    check_prompts(prompt, inputs, drawn, generates=predictor.generates)
    if encoding is not None and predictor.preprocess is not None:
        read_as(predictor.preprocess, encoding)
    options: Any = {"out": out, "top_k": top_k or 3, "keep": keep or ()}
    if batch_size != "auto":
        options["batch_size"] = int(batch_size)
    if out is None:
        options["limit"] = _IN_DOCUMENT if document.as_json else _SHOWN
    with console.status("predicting") if sys.stderr.isatty() else nullcontext() as status:
        if status is not None:
            options["progress"] = lambda count: status.update(f"{count:,} samples")
        sampling = Sampling(top_k=top_k, **drawn)  # type: ignore[arg-type]  # typer has judged the types
        predicted = predict_inputs(
            predictor, run, inputs, prompts=prompt, sampling=sampling, **options
        )
    document.say("predict", predicted)
    of_model = {"threshold": threshold}
    if checkpoint != "best":
        of_model["checkpoint"] = checkpoint
    exported = command("export", run, *_as_typed(of_model))
    document.next = [exported]
    for note in predicted.notes:
        console.print(f"note   {note}", markup=False, highlight=False, soft_wrap=True)
    if predicted.num_failed == predicted.num_samples:
        count = ""
        if predicted.num_samples != 1:
            count = f"all {predicted.num_samples:,} samples failed; first "
        raise AssayError(f"{count}{predicted.first_error}")
    if not document.as_json:
        typed: dict[str, object] = {"encoding": encoding, "top_k": top_k, **drawn, **of_model}
        several = [f"--prompt={text}" for text in prompt] + [
            f"--keep={name}" for name in keep or ()
        ]
        again = command("predict", run, *inputs, *several, *_as_typed(typed))
        _print_predictions(predicted, f"{again} --out predictions.csv", exported)


def _as_typed(options: Mapping[str, object]) -> list[str]:
    """Options of a command, without those that were left out."""
    given = {name: value for name, value in options.items() if value is not None}
    return [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]


def _print_predictions(predicted: Predicted, everything: str, exported: str) -> None:
    from assay_serve.predict import as_table

    console = Console(
        highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _WIDE
    )
    lines = []
    if predicted.out is None:
        console.print(as_table(predicted.columns, predicted.rows))
        lines.append(("all", everything))
    else:
        lines.append(("out", f"{predicted.out}: {predicted.num_samples:,} rows"))
    lines.append(("next", exported))
    if predicted.num_failed:
        counts = f"{predicted.num_failed:,} of {predicted.num_samples:,} samples"
        lines.append(("failed", f"{counts}, see column error; {predicted.first_error}"))
    print_lines(console, lines)


def export(
    document: Document,
    run: Runs,
    *,
    file_format: Annotated[
        Literal["onnx", "safetensors"], typer.Option("--format", "-f", help="Format of the file.")
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="PATH", help="File or folder.  [default: RUN/export/FORMAT]"
        ),
    ] = None,
    threshold: Threshold = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Write a run's model into a file that runs without assay.

    A model card lies beside it. What the run's data does to raw input and what the outputs mean is inside
    where the format can hold it (safetensors holds the weights alone). The file is compared with the original
    on the run's own test samples first; one that says something else is not kept.
    """
    from assay.record.run_record import RunRecord
    from assay_serve.members import find_members

    if find_members(run) is None:
        RunRecord.load(run)  # a mistyped directory costs no wait
    with show_loading():
        from assay_serve.export.export import export as export_run

    exported = export_run(run, file_format, out=out, checkpoint=checkpoint, threshold=threshold)
    document.say("export", exported)
    _print_export(document.console, exported)


def _print_export(console: Console, exported: Exported) -> None:
    from assay.record.scores import describe_threshold
    from assay_serve.export.model_card import agreement_in_words

    about = exported.description
    lines = [
        ("file", f"{exported.path} ({exported.size / 1e6:.2f} MB)"),
        ("card", str(exported.card)),
    ]
    lines += [
        ("input", f"{tensor['name']}: {tensor['dtype']} [{', '.join(map(str, tensor['shape']))}]")
        for tensor in about["inputs"]
    ]
    lines.append(("output", ", ".join(about["outputs"])))
    lines.append(("inside", "; ".join(about["inside"]) or "the bare model"))
    if about["threshold"]:
        lines.append(("threshold", describe_threshold(about["threshold"])))
    lines.append(("check", agreement_in_words(exported)))
    lines += [("note", note) for note in exported.notes]
    lines.append(("next", f"the lines that run it are in {shlex.quote(str(exported.card))}"))
    print_lines(console, lines)


VERBS = {"Use": {"eval": evaluate, "predict": predict, "export": export}}
