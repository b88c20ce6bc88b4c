"""The few lines a run ends with."""

from __future__ import annotations

import logging
import shlex
from typing import TYPE_CHECKING

from rich.markup import escape

from assay.quoting import counted
from assay.task.task_of import task_of
from assay.terminal import Console

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from assay.build.assembly import Assembly
    from assay.record.run_record import RunRecord
    from assay.run.result import RunResult

_SHARES = ("accuracy", "precision", "recall", "f1", "auroc", "one_nn", "recall_at")


def format_score(name: str, value: float) -> str:
    """A score as people say it: shares in per cent, the rest with four significant digits.

    Args:
        name: Such as `test/accuracy`.
        value: The score.

    >>> format_score("test/accuracy", 0.98611), format_score("test/loss", 0.043218)
    ('98.61 %', '0.04322')
    """
    metric = name.rpartition("/")[2]
    return f"{100 * value:.2f} %" if metric.startswith(_SHARES) else f"{value:.4g}"


def say_warnings(warnings: Iterable[str]) -> None:
    """What the check found that may be meant, each once, before anything runs.

    Args:
        warnings: One line each.
    """
    console = Console(highlight=False, soft_wrap=True, stderr=True)
    for warning in dict.fromkeys(warnings):
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")


def say_start(assembly: Assembly, record: RunRecord, notes: Sequence[str] = ()) -> None:
    """What is about to be trained, on what, where: three lines, and one a note.

    Args:
        assembly: The objects.
        record: Knows the choices and the number of parameters.
        notes: What the user should know, a sentence each.
    """
    console = Console(highlight=False, soft_wrap=True)
    lines = []
    spec = assembly.config.get("spec")
    if spec is not None:
        sizes = "×".join(str(n) for n in spec.input_shape)
        shape = sizes if len(spec.input_shape) > 1 else counted(spec.num_features, "feature")
        parts = f"{spec.num_train:,} train, {spec.num_val:,} val, {spec.num_test:,} test"
        lines.append(
            ("data", f"{record.choices.get('data')}: {parts}; {shape}, {task_of(spec.task).in_words(spec)}")
        )
    total, trainable = record.model["parameters"], record.model["trainable_parameters"]
    frozen = "" if total == trainable else f", {trainable:,} of them trained"
    lines.append(("model", f"{record.choices.get('model')}: {total:,} parameters{frozen}"))
    trainer = assembly.trainer
    where = f"{trainer.world_size} × " if trainer.world_size > 1 else ""
    lines.append(("device", f"{where}{trainer.strategy.root_device}, precision {trainer.precision}"))
    lines += [("note", note) for note in notes]
    for name, text in lines:
        console.print(f"[bold]{name:<6}[/bold] {escape(text)}")
        logging.getLogger("assay").info("%s: %s", name, text)


def say_run(console: Console, result: RunResult) -> None:
    """Scores, where they came from, and what to type next.

    Args:
        console: Where to print.
        result: One run.
    """
    if result.status != "finished":
        console.print(f"{result.status}: {result.reason}", style="bold red", markup=False)
        if result.run_dir.is_dir():
            console.print(f"run   {result.run_dir}", markup=False)
            traceback = " has the traceback" if result.status == "failed" else ""
            console.print(f"log   {result.run_dir / 'log.txt'}{traceback}", markup=False)
            if result.status == "interrupted":
                console.print(f"next  assay resume {shlex.quote(str(result.run_dir))}", markup=False)
        return
    console.print()
    for stage in ("test", "val"):
        scores = scores_of(result.metrics, stage)
        if scores:
            console.print(f"[bold]{stage:<5}[/bold] {scores}")
            break
    if result.best:
        monitor = result.best["monitor"]
        score = format_score(monitor, result.best["value"])
        console.print(f"[bold]best[/bold]  epoch {result.best['epoch']}, {monitor} {score}")
    console.print(f"[bold]run[/bold]   {escape(str(result.run_dir))}")
    console.print(f"[bold]next[/bold]  assay train -m {escape(_again(result.overrides))}seed=1,2,3")
    kept = (result.run_dir / "checkpoints" / f"{name}.ckpt" for name in ("best", "last"))
    if any(path.is_file() for path in kept):
        console.print(f"      {load_command(result.run_dir)}", markup=False)


def load_command(run_dir: Path) -> str:
    """What to type for the predictions of a finished run: of a table's rows, else it says what it takes.

    Args:
        run_dir: Of the run.
    """
    run = repr(str(run_dir))
    if (run_dir / "encoder.json").is_file():
        code = f"import assay; print(assay.load({run})('NEW_ROWS.csv'))"
    else:
        code = f"import assay; model = assay.load({run}); print(model)"
    return f'python -c "{code}"' if not set(run) & set('"$`\\') else f"python -c {shlex.quote(code)}"


def scores_of(metrics: Mapping[str, float], stage: str) -> str:
    """The scores of one stage in a line, its loss last.

    Args:
        metrics: All of them.
        stage: Such as `test`.
    """
    own = {name: value for name, value in metrics.items() if name.startswith(f"{stage}/")}
    ordered = sorted(own, key=lambda name: (name.endswith("/loss"),))
    return "   ".join(f"{name.removeprefix(f'{stage}/')} {format_score(name, own[name])}" for name in ordered)


def _again(overrides: Sequence[str]) -> str:
    kept = [shlex.quote(o) for o in overrides if not o.startswith(("seed=", "hydra."))]
    return " ".join([*kept, ""])
