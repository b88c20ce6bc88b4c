"""The page of a data set: what a run would be trained on, before it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import rich.box
import rich.table
import torch
from omegaconf import OmegaConf
from rich.markup import escape

from assay.build.assembly import describe, open_data
from assay.build.node import build
from assay.data.data_module import DataModule
from assay.data.samples import Samples
from assay.data.shown_samples import Shown, show, show_augmented
from assay.errors import AssayError
from assay.quoting import number_text
from assay.report.page import (
    Block,
    Cell,
    Note,
    Page,
    Picture,
    Section,
    Table,
    pictures_of,
    value_text,
    write,
)
from assay.report.report import check_replaced, written
from assay.report.survey import SUBSETS, histogram, raw_tables, survey
from assay.task.task_of import task_of
from assay.terminal import in_a_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from torch import Tensor

    from assay.compose.compose import Job
    from assay.data.subset import Subset
    from assay.report.survey import Survey, Values
    from assay.terminal import Console

    _Samples = list[tuple[str, str, Shown]]

_SAMPLES: Final = 24
_MOST_PRINTED: Final = 20
"""Rows of a table on a terminal; the page has all."""
_TEACHER: Final = "assay.augment.teacher.Teacher"


def look(job: Job, out: Path | None = None) -> Survey:
    """Read the data of a job and say what is in it."""
    if out is not None:
        check_replaced(out)
    config = job.to_config()
    datamodule: Any = open_data(config)
    if not isinstance(datamodule, DataModule):
        raise AssayError(
            "data: a datamodule of your own is not looked into: only assay's says what its subsets hold",
            hint="give it as a source: data=custom",
        )
    name = str(job.choices.get("data") or type(datamodule.source).__name__)
    tables = raw_tables(datamodule)
    found = survey(datamodule, name, tables)
    if out is None:
        return found
    describe(config, datamodule.spec)
    samples = _look_at_samples(datamodule, tables, _augment(config))
    written(out, lambda: write(data_page(found, samples, job.overrides), out), "--out FILE")
    return replace(found, page=out)


def _augment(config: Any) -> Any:
    """The augmentation of a batch; None where there is none, or it needs another run's model."""
    target = OmegaConf.select(config, "augment._target_")
    return None if target in (None, _TEACHER) else build(config, "augment")


def _look_at_samples(
    datamodule: DataModule, tables: Mapping[str, pd.DataFrame], augment: Any
) -> dict[str, _Samples]:
    """Some of each subset as they are, and of training as the model sees them, where that differs."""
    shown: dict[str, _Samples] = {}
    for name in SUBSETS:
        subset = datamodule.subset(name)
        if not len(subset.rows):
            continue
        last = len(subset.rows) - 1
        spread = torch.linspace(0, last, min(last + 1, _SAMPLES)).round().long().tolist()
        rows = subset.rows[spread].tolist()
        keys = [subset.data.names[row] if subset.data.names else str(row) for row in rows]
        targets = [_in_words(datamodule, subset.data.targets[row]) for row in rows]
        given = _shown(datamodule, subset, spread, tables.get(name))
        shown[f"{name}, as they are"] = list(zip(keys, targets, given, strict=True))
        if name == "train" and any(sample.picture for sample in given):
            seen = _shown(datamodule, datamodule.subset(name, "train"), spread, None, augment)
            if [sample.picture for sample in seen] != [sample.picture for sample in given]:
                title = "train, after data.transform.train" + (" and augment" if augment else "")
                shown[title] = list(zip(keys, targets, seen, strict=True))
    return shown


def _shown(
    datamodule: DataModule, subset: Subset, positions: Sequence[int], raw: Any, augment: Any = None
) -> list[Shown]:
    """Samples of a subset, of which `raw` has the rows of a table."""
    pieces = getattr(datamodule.encoder, "pieces", None)
    if pieces is not None and isinstance(subset.data, Samples):
        texts = subset.data.inputs[subset.rows[list(positions)]].tolist()
        return [Shown(None, {"text": "".join(pieces([token for token in text if token]))}) for text in texts]
    if augment is None:
        return show(subset, positions, datamodule.seed, raw, getattr(subset.data, "columns", ()))

    def augmented(inputs: Tensor, targets: Tensor) -> Any:
        return augment(*datamodule.prepared(inputs, targets, torch.float32))

    return show_augmented(subset, positions, datamodule.seed, augmented, datamodule.normalize)


def _in_words(datamodule: DataModule, target: Any) -> str:
    names, task = datamodule.spec.class_names, task_of(datamodule.spec.task)
    if target.ndim == 0 and task.by_class:
        return names[int(target)] if names else str(int(target))
    if target.ndim == 1 and names and len(target) == len(names):
        return ", ".join(name for name, has in zip(names, target.tolist(), strict=True) if has) or "none"
    return ", ".join(number_text(value, 5) for value in target.flatten()[:5].tolist())


_LARGEST_PICTURES: Final = 800_000
"""Bytes of all pictures on a page."""
_MOST_CLASSES: Final = 1000


def data_page(
    survey: Survey, samples: Mapping[str, Sequence[tuple[str, str, Shown]]], overrides: Sequence[str]
) -> Page:
    """The page of a survey."""
    shape = "×".join(map(str, survey.input_shape))
    sections = [
        Section("warnings", "What to look at", _notes(survey)),
        Section("subsets", "Subsets", [_subsets(survey)]),
        Section("classes", "Classes", [*_classes(survey)]),
        Section("targets", "Targets", [*_targets(survey)]),
        Section(
            "columns", "Columns", [*_columns(survey)], "Of the training rows, as they stand in the file."
        ),
        Section("samples", "Samples", [block for title in samples for block in _samples(title, samples)]),
    ]
    facts = [survey.task, survey.in_words, f"inputs {shape}", " ".join(overrides)]
    return Page("Data", survey.name, sections, facts=[fact for fact in facts if fact])


def print_survey(console: Console, survey: Survey) -> None:
    """Print the same on a terminal, the first rows of each table."""
    shape = "×".join(map(str, survey.input_shape))
    console.print(f"[bold]{escape(survey.name)}[/bold]  {survey.task}, {survey.in_words}, inputs {shape}")
    for table in (_subsets(survey), *_classes(survey), *_targets(survey), *_columns(survey)):
        _print(console, table)
    for label, sentences in (("note", survey.notes), ("warning", survey.warnings)):
        for sentence in sentences:
            console.print(f"[yellow]{label}:[/yellow] {escape(sentence)}")


def _print(console: Console, table: Table) -> None:
    rows = [[in_a_line(cell.text) for cell in row] for row in table.cells]
    shown = rich.table.Table(
        box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )
    used = [at for at in range(len(table.columns)) if any(row[at] for row in rows)]
    for name in (table.columns[at] for at in used):
        is_number = name in table.numeric
        fits = is_number or name == "distribution"
        shown.add_column(name, justify="right" if is_number else "left", overflow="fold", no_wrap=fits)
    for row in rows[:_MOST_PRINTED]:
        shown.add_row(*(escape(row[at]) for at in used))
    console.print(shown)
    if len(rows) > _MOST_PRINTED:
        console.print(f"{len(rows) - _MOST_PRINTED} more")


def _notes(survey: Survey) -> list[Block]:
    notes = [*(Note(one, "warn") for one in survey.warnings), *map(Note, survey.notes)]
    return [*notes] or [Note("Nothing stands out.", "good")]


def _subsets(survey: Survey) -> Table:
    rows = [
        (
            one.name,
            f"{one.num_samples:,}",
            _count(one.num_equal),
            "" if one.name == "train" else _count(one.in_training),
            str(len(one.unreadable) or ""),
            *_values(one.values),
        )
        for one in survey.subsets
    ]
    columns = ("subset", "samples", "copies", "in training", "not readable", *_VALUES)
    caption = (
        "copies: samples that equal an earlier one of the subset. in training: samples that training has, "
        "too. ?: they would have to be read. Values of inputs before the transforms, or tokens of a text, of "
        "up to 2,000 samples."
    )
    return Table(columns, rows, caption, numeric=frozenset(columns[1:5]))


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


_VALUES: Final = ("values", "distribution")


def _values(values: Values | None) -> list[str]:
    if values is None:
        return ["", ""]
    low, mean, high = (number_text(one) for one in (values.low, values.mean, values.high))
    return [f"{low} to {high}, mean {mean}", histogram(values.histogram)]


def _classes(survey: Survey) -> list[Table]:
    counts = survey.subsets[0].class_counts
    if not survey.class_names or not counts:
        return []
    names = [one.name for one in survey.subsets]
    rows: list[list[Cell | str]] = [
        [
            in_a_line(name),
            *(Cell(f"{one.class_counts[at]:,}", one.class_counts[at]) for one in survey.subsets),
            "█" * round(20 * counts[at] / (max(counts) or 1)),
        ]
        for at, name in enumerate(survey.class_names[:_MOST_CLASSES])
    ]
    more = len(survey.class_names) - len(rows)
    caption = f"{more:,} more classes are not shown." if more else ""
    numeric, columns = frozenset(names), ("class", *names, "in training")
    return [Table(columns, rows, caption, numeric=numeric, filtered=len(rows) > 20)]


def _targets(survey: Survey) -> list[Table]:
    names = dict(enumerate(survey.target_names))
    rows: list[list[Cell | str]] = [
        [names.get(at, f"target {at}"), one.name, *_values(values)]
        for one in survey.subsets
        for at, values in enumerate(one.targets)
    ]
    return [Table(("target", "subset", *_VALUES), rows)] if rows else []


def _columns(survey: Survey) -> list[Table]:
    rows: list[list[Cell | str]] = []
    for one in survey.columns:
        values, drawn = _values(one.values)
        if one.span:
            values = f"{one.span[0]} to {one.span[1]}"
        frequent = ", ".join(f"{in_a_line(value)} ({count:,})" for value, count in one.frequent.items())
        missing = Cell(f"{one.num_missing:,}", one.num_missing, "warn" if one.num_missing else "")
        different = Cell(f"{one.num_different:,}", one.num_different, "warn" if one.num_different < 2 else "")
        rows.append([in_a_line(one.name), one.kind, missing, different, values or frequent, drawn])
    columns = ("column", "kind", "missing", "different", *_VALUES)
    numeric = frozenset(("missing", "different"))
    return [Table(columns, rows, numeric=numeric, filtered=len(rows) > 20)] if rows else []


def _samples(title: str, samples: Mapping[str, Sequence[tuple[str, str, Shown]]]) -> list[Block]:
    shown = samples[title]
    pictures = [Picture(one.picture, target, key) for key, target, one in shown if one.picture is not None]
    blocks = pictures_of(title, pictures, _LARGEST_PICTURES // len(samples))
    rows = [(key, target, one.row) for key, target, one in shown if one.picture is None and one.row]
    if rows:
        columns = list(dict.fromkeys(name for *_, row in rows for name in row))
        cells = [[key, target, *(value_text(row.get(name)) for name in columns)] for key, target, row in rows]
        blocks.append(Table(("sample", "target", *columns), cells, title=title))
    return blocks
