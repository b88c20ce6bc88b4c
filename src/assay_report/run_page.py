from __future__ import annotations

import math
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.config.yaml_file import load_mapping
from assay.data.core.source_files import SUBSETS
from assay.errors import AssayError
from assay.figure import Figure, Line
from assay.files.checksum import is_yaml_intact
from assay.files.symlinks import check_inside, read_whole
from assay.paths import project_conf
from assay.quoting import command, format_duration, pluralize, repeat_command
from assay.record.run_lock import is_written
from assay.record.run_record import RunRecord, reason_of
from assay.record.scores import (
    Shares,
    describe_baseline,
    describe_threshold,
    format_score,
    is_share,
)
from assay.targets.resolve import import_task
from assay.targets.trust import project_packages
from assay.task.evaluator import LEFT_OUT, LEVEL, num_draws
from assay.task.figures.class_figures import TRUE_CLASS
from assay.task.task_of import task_of
from assay.terminal import shorten
from assay_analysis import predictions_file
from assay_analysis.importances import draw_importances, read_importances
from assay_analysis.objective import describe_metric, metric_keys
from assay_analysis.read_runs import Curve, read_curves
from assay_analysis.run import typed_values
from assay_report.difference import config_values
from assay_report.draw import is_logarithmic
from assay_report.page import (
    Cards,
    Cell,
    Code,
    Figures,
    Note,
    Page,
    Picture,
    Section,
    Table,
    Tone,
    sample_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from assay.task.evaluator import Score
    from assay.task.predictions import StoredPredictions
    from assay_analysis.predictions_file import KeptSample
    from assay_report.page import Blocks


TONES: dict[str, Tone] = {
    "finished": "good",
    "failed": "bad",
    "interrupted": "warn",
    "pruned": "dim",
}
"""Of each status."""
_ENDED = {"failed": "failed", "interrupted": "been interrupted", "pruned": "been pruned"}
_HOW_SAID = "With the model's prediction, and the target where the two differ."
_MOST_COLOURS = 60
_TITLES = {
    "worst": "The most wrong",
    "occlusion": "What speaks for the predicted class",
    "confused": "The most frequent confusion",
    "random": "At random",
    "generated": "What the model writes",
}
_ORDERS = {
    "occlusion": (
        "Left: one of the most wrong; right: red where its predicted class loses probability when a patch is "
        "grey, the most where it is reddest; blue where it gains (Zeiler and Fergus 2014)."
    ),
    "confused": "Wrong ones first, then right ones of each of the two classes.",
}


def run_page(run_dir: Path) -> Page:
    """Make the page of a run."""
    record = RunRecord.load(run_dir)
    status = "running"
    if not (record.status == "running" and is_written(run_dir)):
        status = record.outcome.status
    values, config_note = read_values(run_dir)
    predictions, missing = _read_predictions(run_dir)
    predictions = predictions and predictions.at(record.threshold)
    curves: Mapping[str, Curve] = {}
    no_curves = "Nothing has been logged yet."
    try:
        curves = read_curves(run_dir)
    except AssayError as error:
        no_curves = f"There are no learning curves: {error.message}"
    if not record.metrics:  # the record has them at the end
        record.metrics = {name: curve.values[-1] for name, curve in curves.items()}
    at_best = at_best_epoch(curves, record.best)
    tested = "best"
    if any(name.startswith("test/") for name in record.metrics):
        tested = "tested"
    checkpoint = None
    if at_best is not None:
        checkpoint = (f"epoch {record.best['epoch']}, {tested}", at_best[0])

    def in_words(metric: str) -> str:
        return describe_metric(metric, *(values.get(key, "") for key in metric_keys(metric)))

    drawn = curve_figures(curves, in_words, checkpoint, record.shares)
    took = ""
    if record.finished:
        took = format_duration(record.seconds)
    size = ""
    if count := record.model.get("parameters"):
        size = f"{count:,} parameters"
    facts = [
        record.started.replace("T", " ").replace("+00:00", " UTC"),
        took,
        f"seed {record.seed}",
        *(
            f"{group} {record.choices[group]}"
            for group in ("data", "model")
            if record.choices.get(group)
        ),
        size,
        *record.tags,
    ]
    scores = _outcome_notes(record, status) + _score_blocks(
        record, predictions, at_best, in_words
    )
    shown: Blocks = [Note(f"There is nothing to draw: {missing}", "warn")]
    if predictions is not None:
        shown = _try_blocks(
            lambda: _prediction_figures(predictions, values.get("data.source.target", ""))
        )
    sections = [
        Section("scores", "Scores", scores),
        Section("training", "Training", [Figures(drawn) if drawn else Note(no_curves, "warn")]),
        Section("predictions", "Predictions", shown),
        Section("columns", "Columns", _importance_blocks(run_dir)),
        Section("samples", "Samples", _sample_blocks(run_dir, predictions), _HOW_SAID),
        Section("config", "Config", config_blocks(values, config_note, record)),
        Section("environment", "Environment", environment_blocks(record)),
        Section("reproduce", "Reproduce", reproduce_blocks(run_dir, record)),
    ]
    return Page(
        "Run",
        " / ".join(dict.fromkeys((record.name, record.run_id))),
        sections,
        (status, TONES.get(status, "")),
        [fact for fact in facts if fact],
    )


def _outcome_notes(record: RunRecord, status: str) -> Blocks:
    if status == "running":
        return [
            Note(
                "This run is still in progress: the page shows what it has written so far.",
                "warn",
            )
        ]
    outcome = record.outcome
    if status == "finished":
        return [
            Note(warning, "warn") for warning in (outcome.reason, *outcome.warnings) if warning
        ]
    cause = ""
    if outcome.cause:
        cause = f" ({outcome.cause.replace('_', ' ')})"
    reason = outcome.reason or "no reason is known"
    return [Note(f"The run has {_ENDED.get(status, status)}{cause}: {reason}", "bad")]


def _score_blocks(
    record: RunRecord,
    predictions: StoredPredictions | None,
    at_best: tuple[int, dict[str, float]] | None,
    title: Callable[[str], str],
) -> Blocks:
    blocks: Blocks = []
    if record.baseline:
        baseline = f"Baseline: {describe_baseline(record.baseline)}."
        blocks.append(Note(baseline, "good" if record.baseline["ahead"] == "run" else "warn"))
    if record.threshold:
        said = f"Threshold that assay predict uses: {describe_threshold(record.threshold)}"
        blocks.append(
            Note(
                f"{said}. Cards, figures and samples are at this threshold, the table is at 0.5."
            )
        )
    if record.test_looks:
        looks = f"looked at {pluralize(record.test_looks, 'time')}"
        blocks.append(
            Note(f"The test subset was {looks} in the tries that this run belongs to.", "")
        )
    if predictions is not None:
        blocks += _try_blocks(lambda: _score_cards(predictions))
    blocks += _logged_scores(record, at_best, title)
    blocks += [Note(note) for note in record.notes if note.endswith(LEFT_OUT)]
    blocks += [Note(note, "warn") for note in record.notes if "also in training" in note]
    return blocks or [Note("The run has logged no metrics.", "warn")]


def _logged_scores(
    record: RunRecord, at_best: tuple[int, dict[str, float]] | None, title: Callable[[str], str]
) -> Blocks:
    """Each metric of the best checkpoint, a column per subset; the last values where there is none."""
    metrics = record.metrics
    if at_best is not None:
        of_test = {name: value for name, value in metrics.items() if name.startswith("test/")}
        metrics = {name: value for name, value in at_best[1].items() if name in metrics} | of_test
    rows: dict[str, dict[str, Cell]] = {}
    for name, value in metrics.items():
        subset, metric = subset_and_metric(name)
        if not name.startswith(("lr-", "DeviceStatsMonitor")):
            text = format_score(metric, value, record.shares)
            rows.setdefault(metric, {})[subset] = Cell(text, value, title=repr(value))
    if not rows:
        return []
    logged = dict.fromkeys(subset for cells in rows.values() for subset in cells)
    subsets = [
        *(part for part in SUBSETS if part in logged),
        *sorted(logged.keys() - {*SUBSETS}),
    ]
    names = {subset: subset or "value" for subset in subsets}
    table: list[list[Cell | str]] = [
        [title(metric), *(cells.get(part, Cell("")) for part in subsets)]
        for metric, cells in rows.items()
    ]
    tested = "is kept"
    if "test" in logged:
        tested = "was tested"
    caption = "The last value of each."
    if {"epoch", "monitor"} <= record.best.keys():
        best = f"the best by {record.best['monitor']}, whose checkpoint {tested}"
        caption = (
            f"{'All' if at_best else 'Test scores are'} of epoch {record.best['epoch']}, {best}."
        )
        if not at_best:
            caption += " The others are the last ones logged."
    return [Table(("metric", *names.values()), table, caption, numeric=frozenset(names.values()))]


def _score_cards(predictions: StoredPredictions) -> Blocks:
    task = task_of(predictions.task)
    if predictions.targets is None and not task.learns_from_inputs:
        return []
    scores = task.scores(predictions)
    if not scores:
        return []
    num_samples = len(predictions.keys)
    cards = [
        (
            score.name,
            format_score(score.name, score.value),
            _interval(score) if math.isfinite(score.low) else "no interval",
        )
        for score in scores
    ]
    total = ""
    if predictions.num_evaluated:
        total = f", of {predictions.num_evaluated:,}"
    caption = (
        f"On {num_samples:,} {predictions.subset} samples{total}. Below each score its {100 * LEVEL:.0f} % "
        f"interval, Wilson's of shares of samples, else by the percentile bootstrap over the samples "
        f"({num_draws(num_samples):,} draws): how it would vary with another test set of this size, not "
        "with another seed."
    )
    return [Cards(cards, caption)]


def _interval(score: Score) -> str:
    low, high = (format_score(score.name, end) for end in (score.low, score.high))
    return f"{low.removesuffix(' %')} to {high}"


def _prediction_figures(predictions: StoredPredictions, target: str) -> Blocks:
    task = task_of(predictions.task)
    if predictions.targets is None and not task.learns_from_inputs:
        unknown = "These samples have no targets: there is nothing to compare with."
        return [Note(unknown, "warn")]
    figures = task.figures(predictions)
    if target:  # as the user calls it
        predicted = f"predicted {target}"
        true = f"true {target}"
        for index, figure in enumerate(figures):
            if figure.y_label == TRUE_CLASS:
                figures[index] = replace(figure, x_label=predicted, y_label=true)
    none = "These outputs are neither probabilities nor values, or too few: there is nothing to draw."
    if figures:
        return [Figures(figures)]
    return [Note(none, "warn")]


def _try_blocks(make: Callable[[], Blocks]) -> Blocks:
    """Blocks, or a note on why they could not be made, so that there is always a report."""
    try:
        return make()
    except Exception as error:
        return [Note(f"These predictions cannot be evaluated: {reason_of(error)}", "bad")]


def _read_predictions(run_dir: Path) -> tuple[StoredPredictions | None, str]:
    try:
        check_inside(run_dir / predictions_file.FILE, run_dir)
        predictions = predictions_file.read(run_dir / predictions_file.FILE)
        import_task("spec.task", predictions.task, project_packages(project_conf()))
    except AssayError as error:
        return None, str(error).replace("\n  → ", "; ")
    return predictions, ""


def _importance_blocks(run_dir: Path) -> Blocks:
    try:
        importances = read_importances(run_dir)
    except AssayError as error:
        return [Note(error.message, "warn")]
    figure = importances and draw_importances(importances)
    return [Figures([figure])] if figure else []


def _sample_blocks(run_dir: Path, predictions: StoredPredictions | None) -> Blocks:
    try:
        check_inside(run_dir / predictions_file.SAMPLES, run_dir)
        samples = predictions_file.read_samples(run_dir / predictions_file.SAMPLES)
    except AssayError as error:
        return [Note(error.message, "warn")]
    blocks: Blocks = []
    for reason, title in _TITLES.items():
        chosen = [sample for sample in samples if sample.reason == reason]
        if chosen:
            blocks += _try_blocks(lambda: _group(title, chosen, predictions))  # noqa: B023 - called at once
    return blocks


def _group(
    title: str, samples: Sequence[KeptSample], predictions: StoredPredictions | None
) -> Blocks:
    reason = samples[0].reason
    if reason == "generated":
        return [Code(str(item.row["text"]), title) for item in samples if item.row]
    labels: dict[str, tuple[str, str, Tone]] = {item.key: ("", item.key, "") for item in samples}
    order = _ORDERS.get(reason, "")
    legend: list[tuple[str, bytes]] = []
    if predictions is not None:
        task = task_of(predictions.task)
        legend = task.legend(predictions)
        if reason == "worst":
            order = task.hardest_caption(predictions)
        is_right = None
        if predictions.targets is not None:
            is_right = task.is_right(predictions)
        for index, key in enumerate(predictions.keys):
            if key in labels:
                tone: Tone = "bad"
                if is_right is None or is_right[index]:
                    tone = ""
                labels[key] = task.predicted_label(predictions, index), key, tone
    blocks: Blocks = []
    if reason == "worst" and any(item.picture for item in samples):
        colours = [Picture(png, name, name) for name, png in legend[:_MOST_COLOURS]]
        blocks = sample_blocks("Colours", "", colours)
    are_wide = bool(legend) or reason == "occlusion"
    shown = [
        Picture(item.picture or b"", *labels[item.key], _join_tokens(item.row))
        for item in samples
    ]
    return blocks + sample_blocks(title, "predicted", shown, order, are_wide=are_wide)


def _join_tokens(row: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Join the tokens of a row into one text."""
    if row and isinstance(tokens := row.get("tokens"), list):
        return {"text": "".join(tokens)}
    return row


_LR = "lr-"
_STATS = "DeviceStatsMonitor."


def subset_and_metric(name: str) -> tuple[str, str]:
    """The subset that a logged name begins with, and the rest; no subset where it has no `/`.

    >>> subset_and_metric("val/alcohol/mae"), subset_and_metric("drift")
    (('val', 'alcohol/mae'), ('', 'drift'))
    """
    subset, slash, metric = name.partition("/")
    if slash:
        return (subset, metric)
    return ("", name)


def curve_figures(
    curves: Mapping[str, Curve],
    titles: Callable[[str], str] = str,
    checkpoint: tuple[str, int] | None = None,
    shares: Shares | None = None,
) -> list[Figure]:
    """One figure per metric with a line per subset, those of the loss and the accuracy first."""
    metrics: dict[str, list[Line]] = {}
    for name, curve in curves.items():
        subset, metric = subset_and_metric(name)
        if subset == "test" or name.startswith((_LR, _STATS)):
            continue
        if metric.endswith("_step"):
            subset = f"{subset}, each batch"
            metric = metric.removesuffix("_step")
        metrics.setdefault(metric, []).append(_line(subset or metric, curve))
    figures = []
    order = sorted(metrics, key=lambda name: (name != "loss", name != "accuracy", name))
    for index, metric in enumerate(order):
        lines = metrics[metric]
        title = titles(metric)
        values = np.concatenate([np.asarray(line.y, dtype=float) for line in lines])
        finite = values[np.isfinite(values)]
        lost = len(values) - len(finite)
        caption = ""
        if lost:
            caption = f"{lost:,} of {len(values):,} values are not finite: gaps."
        if checkpoint is not None and len(finite):  # where the checkpoint that was tested stands
            ends = [finite.min(), finite.max()]
            lines.append(Line(checkpoint[0], [checkpoint[1]] * 2, ends, is_reference=True))
        share = "y" * is_share(metric, shares)
        name = f"curve_{index}"
        figures.append(
            Figure(name, title, tuple(lines), "step", title, shares=share, caption=caption)
        )
    rates = [
        _line(name.removeprefix(_LR), curve)
        for name, curve in curves.items()
        if name.startswith(_LR)
    ]
    if rates:
        log = "y" * is_logarithmic(np.concatenate([line.y for line in rates]).tolist())
        figures.append(
            Figure(
                "learning_rate", "Learning rate", tuple(rates), "step", "learning rate", log=log
            )
        )
    return figures


def at_best_epoch(
    curves: Mapping[str, Curve], best: Mapping[str, Any]
) -> tuple[int, dict[str, float]] | None:
    """The step of the best checkpoint, and each metric as it stood there; None where that was not logged."""
    monitor = curves.get(str(best.get("monitor")), Curve())
    candidates = [
        index for index, epoch in enumerate(monitor.epochs) if epoch == best.get("epoch")
    ]
    if not candidates:
        return None
    nearest = min(candidates, key=lambda index: abs(monitor.values[index] - best["value"]))
    step = monitor.steps[nearest]
    values: dict[str, float] = {}
    for name, curve in curves.items():
        rows = zip(curve.epochs, curve.steps, curve.values, strict=True)
        logged = [
            (at_step, logged_value)
            for epoch, at_step, logged_value in rows
            if epoch == best["epoch"]
        ]
        before = [logged_value for at_step, logged_value in logged if at_step <= step]
        if logged:  # of training after it, where validation came within the epoch
            values[name] = [logged[0][1], *before][-1]
    return step, values


def _line(name: str, curve: Curve) -> Line:
    return Line(name, np.asarray(curve.steps), np.asarray(curve.values, dtype=float))


_PACKAGES = ("assay", "torch", "torchvision", "lightning", "torchmetrics", "hydra-core", "numpy")


def read_values(run_dir: Path) -> tuple[dict[str, str], str]:
    """Values as they stand in the file: interpolations are not resolved, as the config may not be trusted."""
    path = run_dir / "config.yaml"
    try:
        check_inside(path, run_dir)
        problem = ""
        if not is_yaml_intact(read_whole(path)):
            problem = f"{path} has changed since the run wrote it"
        return config_values(load_mapping(path)), problem
    except OSError as error:
        return {}, f"{path} cannot be read: {error.strerror}"
    except AssayError as error:
        return {}, error.message


def config_blocks(values: dict[str, str], problem: str, record: RunRecord) -> Blocks:
    """The overrides, and every value of the config."""
    blocks: Blocks = [Code(shlex.join(record.overrides) or "nothing: all defaults", "Typed")]
    if problem:
        blocks.insert(0, Note(problem, "warn"))
    if not values:
        return blocks
    words = [
        *record.overrides,
        *(text for entry in record.resumed for text in entry.get("overrides", ())),
    ]
    typed_keys = {key.partition("@")[0].replace("/", ".") for key in typed_values(words)}
    rows: list[list[Cell | str]] = []
    for key, value in values.items():
        parts = key.partition("[")[0].split(".")
        is_typed = not typed_keys.isdisjoint(
            ".".join(parts[:end]) for end in range(1, len(parts) + 1)
        )
        if parts[0] != "hydra":
            rows.append(
                [Cell(key, tone="best" if is_typed else ""), Cell(shorten(value), title=value)]
            )
    caption = "What was typed, as a value or as an option of its group, stands out."
    return [*blocks, Table(("key", "value"), rows, caption, filtered=True, wraps=True)]


def environment_blocks(record: RunRecord) -> Blocks:
    """The machine, the packages, and what the code and the data were."""
    machine = record.machine
    git = record.git or {}
    memory = machine.get("memory_bytes")
    commit = "no repository"
    if git:
        commit = f"{str(git.get('commit'))[:12]}{', with changes' * bool(git.get('dirty'))}"
    facts: dict[str, Any] = {
        "machine": machine.get("hostname"),
        "system": machine.get("platform"),
        "processor": f"{machine.get('cpu', '')}, {machine.get('cores', '?')} cores",
        "memory": f"{memory / 2**30:.1f} GiB" if memory else "",
        "GPU": ", ".join(machine.get("gpus") or ["none"]),
        "Python": machine.get("python"),
        **{name: record.packages[name] for name in _PACKAGES if name in record.packages},
        "code": commit,
        "branch": git.get("branch"),
        "data": record.data_sha256[:16],
        "weights": record.weights_sha256[:16],
    }
    packages = "\n".join(
        f"{name}=={version}" for name, version in sorted(record.packages.items())
    )
    return [
        Table(
            ("what", "value"),
            [(name, str(value)) for name, value in facts.items() if value],
            wraps=True,
        ),
        Code(packages, f"All {len(record.packages)} packages", folded=True),
    ]


def reproduce_blocks(run_dir: Path, record: RunRecord) -> Blocks:
    """Commands to repeat the run."""
    overrides = [
        override for override in record.overrides if not override.startswith("hydra.run.dir=")
    ]
    lines = [
        "# the same run again, bit for bit where the machine allows it",
        command("reproduce", run_dir),
        "",
        "# a new run with the same overrides, and with other seeds",
        command("train", *overrides, config_dir=record.config_dir),
        repeat_command(record.overrides, "seed=1,2,3", config_dir=record.config_dir),
    ]
    git = record.git or {}
    blocks: Blocks = [Code("\n".join(lines))]
    if not git.get("commit"):
        blocks.append(Note("The code was not in a git repository: only the config is known."))
    elif git.get("dirty"):
        extent = "in part"
        if git.get("patch_complete"):
            extent = "as a whole"
        blocks.append(Note(f"The code had changes; code.patch has them {extent}."))
    return blocks
