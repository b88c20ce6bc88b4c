"""The data of a job before anything is trained on it: what is in it, as a page and on a terminal."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd
import torch
from omegaconf import OmegaConf
from rich.markup import escape

from assay.assemble.assembly import add_spec, open_data
from assay.assemble.node import build
from assay.data.core.copies import COPIES, hash_rows, hash_samples
from assay.data.core.data_module import DataModule
from assay.data.core.loaders import KeyedDataset, input_of
from assay.data.core.rendering import RenderedSample, show, show_augmented
from assay.data.core.source import subset_of
from assay.data.core.source_files import SUBSETS
from assay.data.core.transforms import Transforms
from assay.data.table.column import is_number
from assay.data.table.date import TIME, Date, parse_times
from assay.data.table.number import Number
from assay.errors import AssayError, DataError, explain_write_errors
from assay.quoting import format_number, join_first, pluralize
from assay.task.predictions import side_by_side
from assay.task.task_of import task_of
from assay.terminal import make_table, single_line
from assay_report.page import (
    Cell,
    Note,
    Page,
    Picture,
    Section,
    Table,
    sample_blocks,
    write,
)
from assay_report.report import check_overwrite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.compose.compose import Job
    from assay.data.core.subset import Subset
    from assay.terminal import Console
    from assay_report.page import Blocks

_MOST_READ = 2000
_MOST_COLUMNS = 1000
_FEW = 5
_RARE = 20
_UNEVEN = 100
_BINS = 12


@final
@dataclass(frozen=True)
class Values:
    """How numbers are distributed.

    Attributes:
        low: The smallest.
        mean: Their mean.
        high: The largest.
        histogram: How many lie in each of some bins of equal width.
    """

    low: float
    mean: float
    high: float
    histogram: Sequence[int] = ()


@final
@dataclass(frozen=True)
class SubsetSurvey:
    """One of the subsets that samples are divided into.

    Attributes:
        name: `train`, `val` or `test`.
        num_samples: How many.
        class_counts: Of each class or label; empty where there are none.
        targets: Of each real-valued target.
        values: Of the inputs of up to 2,000 samples, before they are transformed; of token ids, how many a
            sample has; null of the columns of a table.
        num_equal: Samples whose inputs an earlier one of the subset has, too; null where unknown.
        in_training: Samples whose inputs are in training, too; null where unknown.
        unreadable: Samples that cannot be read, each with the reason.
    """

    name: str
    num_samples: int
    class_counts: Sequence[int] = ()
    targets: Sequence[Values] = ()
    values: Values | None = None
    num_equal: int | None = None
    in_training: int | None = None
    unreadable: Sequence[str] = ()


@final
@dataclass(frozen=True)
class ColumnSurvey:
    """A column of the training rows.

    Attributes:
        name: Of the column.
        kind: `number`, `date`, `time`, `category` or `text`.
        num_missing: Rows without a value.
        num_different: How many different values it has.
        values: Of numbers; null of others.
        frequent: The most frequent values of others, with how often each occurs.
        span: The first and the last of dates and times; empty of others.
    """

    name: str
    kind: str
    num_missing: int
    num_different: int
    values: Values | None = None
    frequent: Mapping[str, int] = field(default_factory=dict)
    span: Sequence[str] = ()


@final
@dataclass(frozen=True)
class Survey:
    """What was seen of the data of a job.

    Attributes:
        name: Of the data's option.
        task: What is predicted.
        in_words: The same, such as `3 classes`.
        input_shape: Of a sample as the model gets it.
        class_names: Of classes or labels.
        target_names: Of real-valued targets, as far as they have names.
        subsets: These, in the order of training, validation and test.
        columns: Of a table, or of features; at most 1,000.
        notes: What the data decided on its own.
        warnings: What will hurt.
        page: The HTML file; null where none was asked for.
    """

    name: str
    task: str
    in_words: str
    input_shape: Sequence[int]
    class_names: Sequence[str]
    target_names: Sequence[str]
    subsets: Sequence[SubsetSurvey]
    columns: Sequence[ColumnSurvey]
    notes: Sequence[str]
    warnings: Sequence[str]
    page: Path | None = None


def survey_data(
    datamodule: DataModule,
    name: str,
    tables: Mapping[str, pd.DataFrame],
    *,
    full: bool = False,
) -> Survey:
    """Survey the data as a run would get it; `full`: read all of a stream."""
    spec = datamodule.spec
    task = task_of(datamodule.spec.task)
    subsets = {name: datamodule.subset(name) for name in SUBSETS}
    train = subsets["train"]
    surveys = []
    columns = _survey_columns(datamodule, train, tables.get("train"))
    hashes = {name: _hashes(subset) for name, subset in subsets.items()}
    for subset_name, subset in subsets.items():
        if not len(subset.rows):
            continue
        targets = subset.data.targets[subset.rows]
        hashed = hashes[subset_name]
        training = hashes["train"]
        inputs, unreadable = _read_inputs(subset)
        if full and subset is train:
            unreadable += _read_stream(datamodule)
        of_texts = bool(getattr(subset.data, "vocab_size", 0))
        if of_texts:
            inputs = [(tensor != 0).sum() for tensor in inputs]
        real: Any = ()
        if task.has_real_targets:
            real = targets.double().reshape(len(targets), -1).numpy().T
        summary = None
        if inputs and (of_texts or not columns):
            summary = summarize_values(
                torch.cat([tensor.double().flatten() for tensor in inputs]).numpy()
            )
        sizes = task.sizes(targets, spec.class_names)
        survey = SubsetSurvey(
            subset_name,
            len(subset.rows),
            tuple(sizes.get("class_counts") or ()),
            tuple(map(summarize_values, real)),
            summary,
            unreadable=unreadable,
        )
        if hashed is not None:
            survey = replace(survey, num_equal=len(hashed) - len(np.unique(hashed)))
        if subset is train:
            survey = replace(survey, num_samples=spec.num_train, class_counts=spec.class_counts)
        elif hashed is not None and training is not None:
            survey = replace(survey, in_training=int(np.isin(hashed, training).sum()))
        surveys.append(survey)
    result = Survey(
        name,
        task.name,
        task.in_words(spec.as_config()),
        tuple(spec.input_shape),
        spec.class_names,
        spec.target_names,
        surveys,
        columns,
        [note for note in datamodule.notes if COPIES not in note],
        [note for note in datamodule.notes if COPIES in note],
    )
    return replace(
        result, warnings=[*result.warnings, *_warnings(result, train, hashes["train"])]
    )


def _hashes(subset: Subset) -> NDArray[np.int64] | None:
    hashes = hash_samples({"": subset.data})
    return None if hashes is None else hashes[""][subset.rows.numpy()]


def _read_inputs(subset: Subset) -> tuple[list[torch.Tensor], list[str]]:
    """Inputs, evenly spread over the subset, before they are transformed; and what cannot be read."""
    spread = _spread_positions(subset, _MOST_READ)
    if subset.data.in_memory:
        return list(subset.data.inputs[subset.rows[spread]]), []
    dataset = KeyedDataset(subset.data, Transforms(), 0)
    inputs = []
    unreadable = []
    for row in subset.rows[spread].tolist():
        try:
            inputs.append(input_of(dataset[0, row, row]))
        except DataError as error:
            unreadable.append(error.message)
    return inputs, unreadable


def _read_stream(datamodule: DataModule) -> list[str]:
    """Read all training samples of a stream; what cannot be read."""
    stream: Any = datamodule.splits.stream
    problems: list[str] = []
    if stream is None:
        return problems
    order = replace(datamodule.train_dataloader().order, drop_last=False)
    for step in range(len(order)):
        try:
            stream.batches(order, 0, step, 1, Transforms())
        except DataError as error:
            problems.append(error.message)
    return problems


def _spread_positions(subset: Subset, most: int) -> Tensor:
    """Positions of at most `most` samples, evenly spread over a subset."""
    number = len(subset.rows)
    return torch.linspace(0, number - 1, min(number, most)).round().long()


def summarize_values(numbers: NDArray[Any]) -> Values:
    """How numbers are distributed."""
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        return Values(float("nan"), float("nan"), float("nan"))
    if finite.min() < finite.max():
        counts = np.histogram(finite, _BINS)[0]
    else:
        counts = np.array([len(finite)])
    return Values(
        float(finite.min()), float(finite.mean()), float(finite.max()), tuple(counts.tolist())
    )


def _survey_columns(
    datamodule: DataModule, train: Subset, frame: pd.DataFrame | None
) -> list[ColumnSurvey]:
    data = train.data
    if (
        frame is None
        and data.in_memory
        and data.inputs.ndim == 2
        and data.inputs.shape[1] <= _MOST_COLUMNS
        and not data.vocab_size
    ):
        names = list(data.columns) or [
            f"feature {index}" for index in range(data.inputs.shape[1])
        ]
        frame = pd.DataFrame(data.inputs[train.rows].numpy(), columns=names)
    if frame is None or len(frame.columns) > _MOST_COLUMNS:
        return []
    learned = {column.name: column for column in getattr(datamodule.encoder, "columns", ())}
    surveys = []
    for name, column in frame.items():
        how = learned.get(str(name))
        kind = "category"
        if how is not None:
            kind = how.kind
        elif is_number(column):
            kind = "number"
        counts = column.value_counts()
        extra: dict[str, Any] = {}
        if isinstance(how, Date) and how.form == TIME:
            kind = "time"
            extra["span"] = tuple(
                f"{end:%H:%M:%S}" for end in parse_times(column).agg(["min", "max"])
            )
        elif kind == "number":
            values = column
            if isinstance(how, Number):
                values = how.parse(column)
            extra["values"] = summarize_values(values.to_numpy(dtype=np.float64, na_value=np.nan))
        elif kind == "date":
            extra["span"] = tuple(
                str(end).removesuffix(" 00:00:00") for end in (column.min(), column.max())
            )
        else:
            extra["frequent"] = {
                str(value)[:40]: int(count) for value, count in counts.head(3).items()
            }
        surveys.append(
            ColumnSurvey(str(name), kind, int(column.isna().sum()), len(counts), **extra)
        )
    return surveys


def raw_tables(datamodule: DataModule) -> dict[str, pd.DataFrame]:
    """The rows of each subset as they stand in their table; none where the data is none."""
    if datamodule.splits.stream is not None:
        return dict(datamodule.splits.raw)
    if datamodule.encoder is None:
        return {}
    tables_read = datamodule.source.read()
    tables = {}
    for subset in SUBSETS:
        samples = subset_of(tables_read, subset)
        if isinstance(samples.raw, pd.DataFrame):
            tables[subset] = samples.raw.iloc[datamodule.subset(subset).rows.numpy()]
    return tables


def _warnings(survey: Survey, train: Subset, hashes: NDArray[np.int64] | None) -> list[str]:
    warnings = []
    base = survey.subsets[0]
    for subset in survey.subsets:
        if subset.in_training and not survey.warnings:
            warnings.append(
                f"{subset.in_training:,} of {subset.num_samples:,} samples in {subset.name} {COPIES}: "
                "scores on them are optimistic"
            )
        if subset.unreadable:
            number = pluralize(len(subset.unreadable), "sample")
            warnings.append(f"{number} of {subset.name} cannot be read: {subset.unreadable[0]}")
        sizes = zip(survey.class_names, subset.class_counts, strict=False)
        lacking = [name for name, count in sizes if not count]
        if lacking and subset is not base:
            warnings.append(
                f"{subset.name} has no sample of {join_first(lacking)}: its scores say nothing about it"
            )
    if base.num_equal and base.num_equal * _RARE >= base.num_samples:
        warnings.append(
            f"{base.num_equal:,} of {base.num_samples:,} training samples are copies of others"
        )
    if hashes is not None and task_of(survey.task).by_class:
        frame = pd.DataFrame(
            {"inputs": hashes, "target": hash_rows(train.data.targets[train.rows])}
        )
        conflicting = frame.groupby("inputs")["target"].transform("nunique") > 1
        if conflicting.any():
            warnings.append(
                f"{conflicting.sum():,} training samples have equal inputs and different classes"
            )
    counts = base.class_counts
    few = [name for name, count in zip(survey.class_names, counts, strict=False) if count < _FEW]
    if few:
        warnings.append(f"fewer than {_FEW} training samples: {join_first(few)}")
    if counts and min(counts) and max(counts) >= _UNEVEN * min(counts):
        times = max(counts) / min(counts)
        warnings.append(f"the largest class has {times:,.0f} times the samples of the smallest")
    named = {
        "a single value in all training rows": [
            col.name for col in survey.columns if col.num_different <= 1
        ],
        "more than half of the training rows have no value": [
            col.name for col in survey.columns if 2 * col.num_missing > base.num_samples
        ],
    }
    return warnings + [
        f"{problem}: {join_first(names)}" for problem, names in named.items() if names
    ]


_LEVELS = "▁▂▃▄▅▆▇█"


def histogram(counts: Sequence[int]) -> str:
    """One bar per bin; a dot for an empty bin."""
    highest = max(counts, default=0) or 1
    return "".join(_LEVELS[-(-8 * count // highest) - 1] if count else "·" for count in counts)


_SAMPLES = 24
_MOST_PRINTED = 20
"""Rows of a table on a terminal; the page has all."""
_TEACHER = "assay.augment.teacher.Teacher"


def survey_job(job: Job, out: Path | None, *, full: bool) -> Survey:
    """Read the data of a job and survey it."""
    if out is not None:
        check_overwrite(out)
    config = job.to_config()
    datamodule: Any = open_data(config)
    if not isinstance(datamodule, DataModule):
        raise AssayError(
            "data: a custom datamodule cannot be surveyed: only assay's DataModule describes its subsets",
            hint="give it as a source: data=custom",
        )
    name = str(job.choices.get("data") or type(datamodule.source).__name__)
    tables = raw_tables(datamodule)
    survey = survey_data(datamodule, name, tables, full=full)
    if out is None:
        return survey
    add_spec(config, datamodule.spec)
    target = OmegaConf.select(config, "augment._target_")
    # A teacher needs another run's model.
    augment = None
    if target not in (None, _TEACHER):
        augment = build(config, "augment")
    samples = _look_at_samples(datamodule, tables, augment)
    with explain_write_errors(out, "--out FILE writes it somewhere else"):
        write(data_page(survey, samples, job.overrides), out)
    return replace(survey, page=out)


def _look_at_samples(
    datamodule: DataModule, tables: Mapping[str, pd.DataFrame], augment: Any
) -> Blocks:
    """Samples of each subset as they are, and of training as the model sees them if that differs."""
    blocks: Blocks = []
    for name in SUBSETS:
        subset = datamodule.subset(name)
        if not len(subset.rows):
            continue
        spread = _spread_positions(subset, _SAMPLES).tolist()
        rows = subset.rows[spread].tolist()
        keys = [subset.data.names[row] if subset.data.names else str(row) for row in rows]
        targets = [_format_target(datamodule, subset.data.targets[row]) for row in rows]
        raw_samples = _render_samples(datamodule, subset, spread, tables.get(name))
        shown = {f"{name}, as they are": raw_samples}
        if name == "train" and any(sample.picture for sample in raw_samples):
            augmented = _render_samples(
                datamodule, datamodule.subset(name, "train"), spread, None, augment
            )
            if [sample.picture for sample in augmented] != [
                sample.picture for sample in raw_samples
            ]:
                title = f"train, after data.transform.train{' and augment' * bool(augment)}"
                shown[title] = augmented
        for title, samples in shown.items():
            pictures = [
                Picture(item.picture or b"", target, key, row=item.row)
                for key, target, item in zip(keys, targets, samples, strict=True)
            ]
            blocks += sample_blocks(title, "target", pictures)
    return blocks


def _render_samples(
    datamodule: DataModule,
    subset: Subset,
    positions: Sequence[int],
    raw: Any,
    augment: Any = None,
) -> list[RenderedSample]:
    """Samples of a subset, of which `raw` has the rows of a table."""
    pieces = getattr(datamodule.encoder, "pieces", None)
    if pieces is not None and subset.data.in_memory:
        texts = subset.data.inputs[subset.rows[list(positions)]].tolist()
        return [
            RenderedSample(None, {"text": "".join(pieces([token for token in text if token]))})
            for text in texts
        ]
    if augment is None:
        columns = getattr(subset.data, "columns", ())
        shown = show(subset, positions, datamodule.seed, raw, columns)
        if not task_of(datamodule.spec.task).has_masks:
            return shown
        return [
            sample._replace(picture=side_by_side(sample.picture, sample.target))
            if sample.picture is not None and sample.target is not None
            else sample
            for sample in shown
        ]

    def augmented(inputs: Tensor, targets: Tensor) -> Any:
        return augment(*datamodule.prepare_batch(inputs, targets, torch.float32))

    return show_augmented(subset, positions, datamodule.seed, augmented, datamodule.normalize)


def _format_target(datamodule: DataModule, target: Any) -> str:
    names = datamodule.spec.class_names
    task = task_of(datamodule.spec.task)
    if task.has_masks and target.ndim == 2:
        return ", ".join(names[label] for label in target.unique() if label < len(names))
    if target.ndim == 0 and task.by_class:
        if names:
            return names[int(target)]
        return str(int(target))
    if target.ndim == 1 and names and len(target) == len(names):
        return (
            ", ".join(name for name, has in zip(names, target.tolist(), strict=True) if has)
            or "none"
        )
    return ", ".join(format_number(value, 5) for value in target.flatten()[:5].tolist())


_INTROS = {"columns": "Of the training rows, as they stand in the file."}
_MOST_CLASSES = 1000


def data_page(survey: Survey, samples: Blocks, overrides: Sequence[str]) -> Page:
    """The page of a survey."""
    notes = [*(Note(warning, "warn") for warning in survey.warnings), *map(Note, survey.notes)]
    sections = [
        Section("warnings", "Likely problems", notes or [Note("No problems found.", "good")]),
        *(
            Section(name, name.capitalize(), [table] if table.rows else [], _INTROS.get(name, ""))
            for name, table in _tables(survey).items()
        ),
        Section("samples", "Samples", samples),
    ]
    facts = [*_facts(survey), " ".join(overrides)]
    return Page("Data", survey.name, sections, facts=[fact for fact in facts if fact])


def print_survey(console: Console, survey: Survey) -> None:
    """Print a survey on a terminal, with the first rows of each table."""
    console.print(f"[bold]{escape(survey.name)}[/bold]  {', '.join(_facts(survey))}")
    for table in _tables(survey).values():
        if table.rows:
            _print(console, table)
    for label, sentences in (("note", survey.notes), ("warning", survey.warnings)):
        for sentence in sentences:
            console.print(f"[yellow]{label}:[/yellow] {escape(sentence)}")


def _facts(survey: Survey) -> list[str]:
    return [survey.task, survey.in_words, f"inputs {'×'.join(map(str, survey.input_shape))}"]


def _print(console: Console, table: Table) -> None:
    rows = [[single_line(cell.text) for cell in row] for row in table.cells]
    used = [index for index in range(len(table.columns)) if any(row[index] for row in rows)]
    head = [table.columns[index] for index in used]
    printed = make_table(head, {*table.numeric, "distribution"})
    for row in rows[:_MOST_PRINTED]:
        printed.add_row(*(escape(row[index]) for index in used))
    console.print(printed)
    if len(rows) > _MOST_PRINTED:
        console.print(f"{len(rows) - _MOST_PRINTED} more")
    console.print()


_VALUES = ("values", "distribution")


def _tables(survey: Survey) -> dict[str, Table]:
    subsets = [
        [
            subset.name,
            f"{subset.num_samples:,}",
            _count(subset.num_equal),
            "" if subset.name == "train" else _count(subset.in_training),
            str(len(subset.unreadable) or ""),
            *_values(subset.values),
        ]
        for subset in survey.subsets
    ]
    names = dict(enumerate(survey.target_names))
    targets = [
        [names.get(index, f"target {index}"), subset.name, *_values(values)]
        for subset in survey.subsets
        for index, values in enumerate(subset.targets)
    ]
    columns = [_column(subset) for subset in survey.columns]
    counts = ("samples", "duplicates", "in training", "unreadable")
    return {
        "subsets": Table(
            ("subset", *counts, *_VALUES),
            subsets,
            "duplicates: samples that equal an earlier one of the subset. in training: samples that training "
            "has, too. ?: they would have to be read. Values of inputs before the transforms, or tokens of a "
            "text, of up to 2,000 samples.",
            numeric=frozenset(counts),
        ),
        "classes": _classes(survey),
        "targets": Table(("target", "subset", *_VALUES), targets),
        "columns": Table(
            ("column", "kind", "missing", "unique", *_VALUES),
            columns,
            numeric=frozenset(("missing", "unique")),
            filtered=len(columns) > 20,
        ),
    }


def _count(number: int | None) -> str:
    if number is None:
        return "?"
    return f"{number:,}"


def _values(values: Values | None) -> list[str]:
    if values is None:
        return ["", ""]
    low, mean, high = (format_number(number) for number in (values.low, values.mean, values.high))
    return [f"{low} to {high}, mean {mean}", histogram(values.histogram)]


def _classes(survey: Survey) -> Table:
    names = [subset.name for subset in survey.subsets]
    counts = [subset.class_counts for subset in survey.subsets]
    largest = max(counts[0], default=0) or 1
    rows: list[list[Cell | str]] = [
        [
            single_line(name),
            *(Cell(f"{count:,}", count) for count in of_class),
            "█" * round(20 * of_class[0] / largest),
        ]
        for name, *of_class in zip(survey.class_names[:_MOST_CLASSES], *counts, strict=False)
    ]
    num_hidden = len(survey.class_names) - len(rows)
    caption = ""
    if num_hidden:
        caption = f"{num_hidden:,} more classes are not shown."
    columns = ("class", *names, "in training")
    return Table(columns, rows, caption, numeric=frozenset(names), filtered=len(rows) > 20)


def _column(column: ColumnSurvey) -> list[Cell | str]:
    values, drawn = _values(column.values)
    frequent = ", ".join(
        f"{single_line(value)} ({count:,})" for value, count in column.frequent.items()
    )
    missing = column.num_missing
    different = column.num_different
    return [
        single_line(column.name),
        column.kind,
        Cell(f"{missing:,}", missing, "warn" if missing else ""),
        Cell(f"{different:,}", different, "warn" if different < 2 else ""),
        " to ".join(column.span) or values or frequent,
        drawn,
    ]
