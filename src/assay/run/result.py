"""What a run came to, and the few lines it ends with."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from assay.config.yaml_file import load_mapping
from assay.errors import AssayError
from assay.quoting import command, pluralize, repeat_command
from assay.record.run_record import RunRecord, exit_code
from assay.record.scores import describe_baseline, describe_threshold, format_score
from assay.targets.objects import provide_objects
from assay.task.classification import Binary
from assay.task.task_of import find_task, task_of
from assay.terminal import NO_BREAK, Console, print_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import lightning as L

    from assay.assemble.assembly import Assembly
    from assay.record.run_record import Cause, Status
    from assay.run.predictor import Predictor


@final
@dataclass(frozen=True)
class RunResult:
    """What a run came to.

    Attributes:
        run_dir: Where everything about it lies.
        status: `finished`, `failed`, `interrupted` or `pruned`.
        metrics: Each scalar, such as `test/accuracy`: those of validation at the best checkpoint, others at
            the end.
        best: Monitored metric, its value and the epoch of the best checkpoint; empty without one.
        overrides: What was typed.
        seconds: Spent in the run, over all segments.
        reason: How it ended, when not well.
        signal: Name of the signal that interrupted it.
        cause: Kind of the failure; see `assay.record.run_record.Cause`.
        warnings: What the test says of a model that is of no use, such as that it predicts one class for all.
        parameters: Numbers in the model; None where the run ended before it was made.
        trainable: Of these, the ones the optimizer changes.
        notes: What the user should know of the data, the model and the config, a sentence each.
        baseline: What a simple model scores on the same test samples, and what to type where it is as good;
            empty where there is none.
        threshold: Of two classes, the probability from which on `predict` says the second one, with its
            precision, recall and F1 on the test; empty where none was chosen.
        reused_from: Directory of the finished run that was taken in place of training; else empty.
        curves: A row an epoch or logged step, as CSV; None where the run writes none.
        module: What was trained, where that was in this process; of a finished run on the weights of its best
            checkpoint.
        trainer: What trained it, likewise.
    """

    run_dir: Path
    status: Status
    metrics: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    seconds: float = 0.0
    reason: str = ""
    signal: str = ""
    cause: Cause = ""
    warnings: Sequence[str] = ()
    parameters: int | None = None
    trainable: int | None = None
    notes: Sequence[str] = ()
    baseline: Mapping[str, Any] = field(default_factory=dict)
    threshold: Mapping[str, Any] = field(default_factory=dict)
    reused_from: str = ""
    curves: Path | None = None
    module: L.LightningModule | None = field(default=None, repr=False)
    trainer: L.Trainer | None = field(default=None, repr=False)
    _objects: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _trusted: Sequence[str] = field(default=(), repr=False)

    @functools.cached_property
    def predictor(self) -> Predictor:
        """As `assay.load` gives it: the model on its best checkpoint's weights, behind what its data does.

        Raises:
            AssayError: As for `assay.load`.
        """
        from assay.run.predictor import load

        with provide_objects(self._objects):
            return load(self.run_dir, trusted_packages=self._trusted)

    @property
    def exit_code(self) -> int:
        """0 finished or pruned, 130 stopped by hand, 129 terminal closed, 143 told to stop, 1 otherwise."""
        return exit_code(self.status, self.signal)


def print_warnings(warnings: Iterable[str]) -> None:
    """What the check found that may be meant, each once, before anything runs."""
    console = Console(highlight=False, stderr=True)
    print_lines(console, [("warning:", text) for text in dict.fromkeys(warnings)], 8, "yellow")


def print_start(assembly: Assembly, record: RunRecord, notes: Sequence[str] = ()) -> None:
    """What is about to be trained, on what, where: three lines, and one a note."""
    lines = []
    spec = assembly.config.get("spec")
    if spec is not None:
        sizes = "×".join(str(n) for n in spec.input_shape)
        if len(spec.input_shape) > 1:
            shape = sizes
        else:
            shape = pluralize(spec.num_features, "feature")
        if vocab_size := spec.get("vocab_size"):
            shape = f"up to {sizes} tokens, vocabulary {vocab_size:,}"
        parts = f"{spec.num_train:,} train, {spec.num_val:,} val, {spec.num_test:,} test"
        outputs = task_of(spec.task).in_words(spec)
        if spec.task == Binary.name and spec.class_names:
            outputs += f", {spec.class_names[1]!r} is the positive one"
        lines.append(("data", f"{record.choices.get('data')}: {parts}; {shape}, {outputs}"))
    total = record.model["parameters"]
    trainable = record.model["trainable_parameters"]
    frozen = ""
    if total != trainable:
        frozen = f", {trainable:,} of them trained"
    lines.append(("model", f"{record.choices.get('model')}: {total:,} parameters{frozen}"))
    trainer = assembly.trainer
    where = ""
    if trainer.world_size > 1:
        where = f"{trainer.world_size} × "
    lines.append(
        ("device", f"{where}{trainer.strategy.root_device}, precision {trainer.precision}")
    )
    print_and_log([*lines, *(("note", note) for note in notes)])


def print_and_log(lines: Iterable[tuple[str, str]]) -> None:
    """Print what a run says of itself, and write it into its log."""
    lines = list(lines)
    print_lines(Console(highlight=False), lines)
    for name, text in lines:
        logging.getLogger("assay").info("%s: %s", name, text)


def print_run(console: Console, result: RunResult) -> list[str]:
    """Scores, where they came from, and what to type next, which is returned."""
    commands = _next_commands(result)
    if result.status != "finished":
        print_lines(console, [(f"{result.status}:", result.reason)], 0, "bold red")
        lines = []
        if result.run_dir.is_dir():
            traceback = ""
            if result.status == "failed":
                traceback = " has the traceback"
            lines = [
                ("run", str(result.run_dir)),
                ("log", f"{result.run_dir / 'log.txt'}{traceback}"),
            ]
            lines += label_commands(commands)
        print_lines(console, lines, 5, "")
        return commands
    console.print()
    shares = read_shares(result.run_dir)
    scores = ((stage, format_scores(result.metrics, stage, shares)) for stage in ("test", "val"))
    lines = [line for line in scores if line[1]][:1]
    print_lines(console, lines, 5)
    print_lines(console, [("warning:", text) for text in result.warnings], 0, "yellow")
    lines = []
    if result.baseline:
        lines = [("baseline", describe_baseline(result.baseline))]
        if result.baseline["advice"]:
            lines += [("", result.baseline["advice"])]
    if result.threshold:
        lines.append(("threshold", describe_threshold(result.threshold)))
    print_lines(console, lines, 10)
    lines = []
    if result.best:
        monitor = result.best["monitor"]
        score = format_score(monitor, result.best["value"], shares)
        lines.append(("best", f"epoch {result.best['epoch']}, {monitor} {score}"))
    print_lines(console, [*lines, ("run", str(result.run_dir)), *label_commands(commands)], 5)
    return commands


def _next_commands(result: RunResult) -> list[str]:
    if result.status != "finished":
        if result.status == "interrupted":
            return [command("resume", result.run_dir)]
        return []
    try:
        config_dir = RunRecord.load(result.run_dir).config_dir
    except AssayError:
        config_dir = ""
    return [
        command("report", result.run_dir),
        *predict_commands(result.run_dir),
        repeat_command(result.overrides, "seed=1,2,3", config_dir=config_dir),
    ]


def label_commands(commands: Sequence[str]) -> list[tuple[str, str]]:
    """What to type next, line by line, of which the first says so."""
    return [("" if number else "next", command) for number, command in enumerate(commands)]


def predict_commands(run_dir: Path) -> list[str]:
    """What to type to predict with a run; nothing where it kept no weights, or got objects in Python."""
    paths = (run_dir / "checkpoints" / f"{name}.ckpt" for name in ("best", "last"))
    try:
        if RunRecord.load(run_dir).objects or not any(path.is_file() for path in paths):
            return []
        samples = "INPUT"
        if (run_dir / "encoder.json").is_file():
            # The config is slow to read; only here does it matter.
            samples = "NEW_ROWS.csv"
            spec = load_mapping(run_dir / "config.yaml").get("spec")
            task = find_task(str((spec or {}).get("task")))
            if task is not None and task.generates:
                return [command("predict", run_dir, "--prompt", "TEXT")]
    except AssayError:
        return []
    return [command("predict", run_dir, samples)]


def read_shares(run_dir: Path) -> Mapping[str, bool]:
    """Which scores of a run are shares of a whole; nothing where its record cannot be read."""
    try:
        return RunRecord.load(run_dir).shares
    except AssayError:
        return {}


def format_scores(metrics: Mapping[str, float], stage: str, shares: Mapping[str, bool]) -> str:
    """The scores of one stage in a line, its loss last."""
    scores = {name: value for name, value in metrics.items() if name.startswith(f"{stage}/")}
    ordered = sorted(scores, key=lambda name: (name.endswith("/loss"),))
    texts = (
        (name.removeprefix(f"{stage}/"), format_score(name, scores[name], shares))
        for name in ordered
    )
    return "   ".join(" ".join(pair).replace(" ", NO_BREAK) for pair in texts)
