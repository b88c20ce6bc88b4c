"""Which columns of a table are features, how they are read, and what is said of that. No torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd

from assay.data.core.source_files import SUBSET_WORDS
from assay.data.table.category import share_ngrams
from assay.data.table.column import (
    FEW,
    MARKED,
    MISSING_WORDS,
    are_words,
    check_columns,
    has_few,
    is_category,
    is_nested,
    is_number,
    is_text,
    shorten,
)
from assay.data.table.column_kind import ENTITY_NAME, FORMED, ID_NAME, kind_of, most_are
from assay.data.table.date import (
    TIME,
    days_since_1970,
    find_format,
    find_stand_in,
    parse_dates,
    parse_times,
)
from assay.data.table.leak import find_hints, find_leak
from assay.data.table.number import (
    ROWS_OF_LEVEL,
    find_amount,
    find_sentinel,
    find_words,
    is_amount,
    parse_amounts,
)
from assay.data.table.table_targets import describe_amount, note_on_spelling
from assay.errors import DataError
from assay.quoting import format_override, join_first, reads_as_number

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from assay.data.core.types import Frame, Strings, Values

_MOST_EMBEDDED = 40
"""Different texts that are never too many for categories without a look at what they share."""
_ROWS_OF_CODE = 4
_FEWEST_TEXTS = 100
_ADDRESS = re.compile(r"\S+@\S+|https?://\S+")
_IMAGE_FILE = re.compile(r".+\.(jpe?g|png|bmp|tiff?|webp|gif)", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_ROWS_OF_TEXT = 20
"""Of a text on average, below which its n-grams may tell more than itself."""
_FEW_ROWS = 5
"""Of a text, from which nothing is learned of it alone."""
_SHARE_OF_RARE = 0.1
"""Of the rows that have such a text, above which n-grams tell more; below, each text has its code."""
_CODE_NAME = re.compile(r"(?i:(^|[_\W])(code|zip|postcode|plz)$)|[a-z]Code$")
_MEASURE = re.compile(r"[<>~≤≥]?\s*[-+]?\d+([.,]\d+)?\s*[^\d\s.,]")
_SAMPLE = 1000
_NAMED = 10
"""Words in a sentence."""


@final
@dataclass(frozen=True)
class ColumnOptions:
    """Column options of a config; see `assay.data.table.table.Table`."""

    targets: list[str]
    features: Strings | None = None
    exclude: Strings = ()
    keep: Strings = ()
    categories: Strings = ()
    na_values: Strings = ()
    day_first: bool | None = None
    max_categories: int | None = None
    split: Mapping[str, str] = field(default_factory=dict)
    """Columns that divide the samples, by the keys that name them."""
    streamed: bool = False
    """Whether the rows are those of shards, which have no `na_values` and no other source for texts."""


@final
@dataclass
class Features:
    """The chosen features, with the reasons."""

    names: list[str]
    forms: dict[str, str] = field(default_factory=dict)
    ngrams: list[str] = field(default_factory=list)
    """Texts that are encoded by their character n-grams."""
    marks: list[str] = field(default_factory=list)
    """Ids and texts of which only whether a row has one is a feature."""
    categories: Strings = ()
    """Columns to be read as categories, whatever they hold."""
    notes: list[str] = field(default_factory=list)
    kinds: dict[str, tuple[Any, str]] = field(default_factory=dict)

    def kind(self, name: str) -> str:
        """What a column holds."""
        return self.kinds.get(name, ("category",))[0]


def choose_features(
    frame: Frame, options: ColumnOptions, path: str, problems: Sequence[DataError] = ()
) -> Features:
    """Choose the feature columns by what each column holds; what is wrong is told beside other problems."""
    for option in ("features", "exclude", "keep", "categories"):
        names = getattr(options, option) or []
        if option != "exclude":  # of shards these are not read
            check_columns(frame, names, path, option)
        if both := [name for name in names if name in options.targets]:
            raise DataError(
                f"data.source.{option}: {both[0]!r} is the target",
                hint=f"leave it out of {option}",
            )
    chosen = Features([])
    left_out = {*options.targets, *options.exclude}
    named = options.features
    if named is None:
        left_out |= _leave_out_of_split(frame, options, chosen)
        named = list(frame.columns)
    chosen.names = [name for name in named if name not in left_out]
    chosen.categories = _find_categories(frame, options, chosen)
    chosen.kinds = {
        name: kind_of(frame[name])
        for name in chosen.names
        if name not in chosen.categories or is_nested(frame[name])
    }
    formed = [name for name, (kind, _) in chosen.kinds.items() if kind in FORMED]
    for name in formed:
        if is_text(frame[name]):
            words = are_words(frame[name], MISSING_WORDS)
            frame = frame.assign(**{name: frame[name].mask(words)})
    _find_texts(frame, options, chosen)
    if options.features is None:
        _leave_out_unfit(frame, options, chosen)
    problems = [*problems, *_find_forms(frame, options, chosen, bool(problems))]
    chosen.names = [name for name in chosen.names if chosen.kind(name) != "nested"]
    if not chosen.names and not problems:
        why = ""
        if chosen.notes:
            why = f" ({'; '.join(chosen.notes)})"
        raise DataError(
            f"data.source.features: no column is left to predict from{why}",
            hint="add a column, or keep one: data.source.keep=[NAME]",
        )
    numbers = {
        name: parse_amounts(frame[name], form)
        for name, form in chosen.forms.items()
        if is_amount(form)
    }
    parsed = frame.assign(**numbers)
    problems += _check_leaks(parsed, options, chosen)
    if problems:
        told = "; ".join(
            filter(None, [problem.message.removeprefix("data: ") for problem in problems])
        )
        prefix = "data: "
        if told.startswith("data."):
            prefix = ""
        hints = dict.fromkeys(problem.hint for problem in problems if problem.hint)
        raise DataError(prefix + told, hint="; ".join(hints))
    dates = {
        name: parse_dates(frame[name], form)
        for name, form in chosen.forms.items()
        if not is_amount(form) and form != TIME
    }
    _note_forms(frame, options, chosen, dates)
    _add_notes(parsed, options, chosen, dates)
    return chosen


def _leave_out_of_split(frame: Frame, asked: ColumnOptions, chosen: Features) -> set[str]:
    """Columns that divide the samples, or say train and test, which are not features."""
    left_out = set[str]()
    for key, name in asked.split.items():
        if name in asked.targets:
            raise DataError(f"{key}: {name!r} is the target", hint="name another column")
        if name in frame and name not in (*asked.keep, *asked.exclude):
            left_out.add(name)
            chosen.notes.append(
                f"{key}={name}: it divides the samples and is not a feature; to use it as one as well: "
                + format_override("data.source.keep", [name])
            )
    others = (*asked.targets, *asked.keep, *asked.exclude, *asked.split.values())
    for name in frame.columns:
        if name in others or not is_text(frame[name]):
            continue
        words = {str(value).strip().casefold() for value in frame[name].dropna().unique()[:10]}
        if len(words) > 1 and words <= SUBSET_WORDS.keys():
            left_out.add(name)
            use = format_override("data.split.column", name)
            chosen.notes.append(
                f"left out of the features: {name}, which says {join_first(sorted(words))}; to divide "
                f"the samples by it: {use}; as a feature: {_override(asked, 'keep', name)}"
            )
    return left_out


def _find_categories(frame: Frame, asked: ColumnOptions, chosen: Features) -> list[str]:
    """Columns that are typed as categories, that the file says are such, and integers that are codes."""
    declared = [name for name in chosen.names if is_category(frame[name])]
    typed = (*(asked.features or ()), *asked.keep, *asked.categories)
    named = [name for name in chosen.names if _CODE_NAME.search(name) or ID_NAME.search(name)]
    untyped = [name for name in named if name not in typed]
    repeated = [name for name in untyped if _comes_again(frame[name], asked.max_categories)]
    codes = [name for name in repeated if _CODE_NAME.search(name) and is_number(frame[name])]
    if codes:
        chosen.notes.append(
            f"integers taken as categories, by their names: {join_first(codes)}; as numbers: "
            + _override(asked, "keep", *codes)
        )
    ids = [name for name in repeated if ID_NAME.search(name)]
    if ids:
        counts = join_first([f"{name} ({frame[name].nunique():,} values)" for name in ids])
        chosen.notes.append(
            f"ids that come again in several rows are taken as categories: {counts}; without: "
            + _override(asked, "exclude", *ids)
        )
    return [*asked.categories, *declared, *codes, *ids]


def _comes_again(column: Values, most: int | None) -> bool:
    """Whether integers or texts come again often enough to learn something of each."""
    if not is_text(column) and not (is_number(column) and (column.dropna() % 1 == 0).all()):
        return False
    return FEW < column.nunique() <= min(len(column) / _ROWS_OF_CODE, most or np.inf)


def _find_form(column: Values, kind: str, day_first: bool | None = None) -> str:
    """How the values of a column are written, which is one of `FORMED`."""
    if kind == "nested":
        raise DataError(
            f"the column {column.name!r} cannot be predicted from: it holds {kind_of(column)[1]}"
        )
    if kind == "amount":
        return find_amount(column)
    if kind == "date":
        return find_format(column, day_first)
    if len(wrong := column[column.notna() & parse_times(column).isna()]):
        raise DataError(
            f"the column {column.name!r} holds times of day, but also {shorten(wrong.iloc[0])}",
            hint="write them as 13:08 or 1:08 PM",
        )
    return TIME


def _find_forms(
    frame: Frame, asked: ColumnOptions, chosen: Features, is_target_wrong: bool
) -> list[DataError]:
    """Learn how amounts, dates and times are written; the columns that are not written in one way."""
    failed: dict[str, DataError] = {}
    amounts: list[str] = []
    words: list[str] = []
    for name in asked.targets if is_target_wrong else ():
        if kind_of(frame[name])[0] == "amount":
            words += find_words(frame[name])
    for name in chosen.names:
        kind = chosen.kind(name)
        try:
            if kind in FORMED:
                chosen.forms[name] = _find_form(frame[name], kind, asked.day_first)
        except DataError as error:
            if kind == "amount":
                if name in asked.keep or asked.features is not None:
                    continue  # a category
                amounts.append(name)
            if kind != "nested":
                words += find_words(frame[name])
            failed[name] = error
    hints = []
    if words and not asked.streamed:
        missing = _override(asked, "na_values", *dict.fromkeys(words[:_NAMED]))
        hints.append(f"{missing} where that means a missing value")
    if failed:
        hints.append(f"{_override(asked, 'exclude', *failed)} leaves {_them(failed)} out")
    if amounts:
        hints[-1] += (
            f", {_override(asked, 'keep', *amounts)} takes {_them(amounts)} as categories"
        )
    return [*failed.values(), *(DataError("", hint=hint) for hint in hints)]


def _them(columns: Collection[str]) -> str:
    if len(columns) == 1:
        return "it"
    return "them"


def _find_texts(frame: Frame, asked: ColumnOptions, chosen: Features) -> None:
    """Choose the texts that are too many for categories, and share n-grams with one another."""
    for name, (kind, _) in chosen.kinds.items():
        names_rows = kind == "id" and (ID_NAME.search(name) or ENTITY_NAME.match(name))
        is_text_of_words = is_text(frame[name]) and kind in ("category", "id", "text")
        if name in asked.keep or names_rows or not is_text_of_words:
            continue
        column = frame[name].dropna()
        if len(column) < _FEWEST_TEXTS or has_few(column, _MOST_EMBEDDED):
            continue
        different = [str(text) for text in column.unique()]
        counts = column.value_counts()
        in_rare = counts[counts < _FEW_ROWS].sum() > _SHARE_OF_RARE * len(column)
        is_rare = len(column) < _ROWS_OF_TEXT * len(different) and (in_rare or kind == "text")
        if is_rare and not _are_numbered(different) and share_ngrams(different):
            chosen.ngrams.append(name)


def _name_images(column: Values) -> bool:
    return most_are(_IMAGE_FILE.fullmatch, column.dropna()[:_SAMPLE].astype(str).tolist())


def _are_numbered(texts: list[str]) -> bool:
    """Whether texts are addresses, or differ in their digits alone: they say who, not what."""
    if most_are(_ADDRESS.fullmatch, texts[:_SAMPLE]):
        return True
    return len({_DIGITS.sub("", text) for text in texts}) <= FEW


def _leave_out_unfit(frame: Frame, asked: ColumnOptions, chosen: Features) -> None:
    left_out: dict[str, str] = {}
    for name, (kind, why) in [*chosen.kinds.items()]:
        if name in asked.keep or kind == "nested" or name in chosen.ngrams:
            continue
        is_constant = len(frame) > 1 and kind != "empty" and has_few(frame[name], 1)
        if not is_constant and (not why or kind in FORMED):
            continue
        present = frame[name].notna().sum()
        absent = len(frame) - present
        if is_constant and absent >= MARKED:  # where it has none is learned from
            chosen.categories = [*chosen.categories, name]
            del chosen.kinds[name]
        elif is_constant and absent:
            left_out[name] = f"one value in {present:,} rows, none in the others"
        elif is_constant:
            left_out[name] = "one value in all rows"
        elif min(present, absent) >= MARKED:
            left_out[name] = f"{why}; whether a row has one is a feature"
            chosen.marks.append(name)
        else:
            left_out[name] = why
    if left_out:
        reasons = "; ".join(f"{name} ({why})" for name, why in left_out.items())
        keep = ""
        if able := [name for name in left_out if not frame[name].isna().all()]:
            keep = f"; to use one: {_override(asked, 'keep', able[0])}"
        texts = [name for name in left_out if chosen.kinds[name][0] == "text"]
        if texts and not asked.streamed:
            keep += f"; to learn from texts: data=text_table {format_override('data.source.text', texts[0])}"
        images = [name for name in left_out if _name_images(frame[name])]
        if images and not asked.streamed:
            option = format_override("data.source.image", images[0])
            keep += f"; to learn from the images that are named there: data=image_table {option}"
        chosen.notes.append(f"left out of the features: {reasons}{keep}")
        chosen.names = [
            name for name in chosen.names if name not in left_out or name in chosen.marks
        ]


def _note_forms(
    frame: Frame, asked: ColumnOptions, chosen: Features, dates: Mapping[str, Values]
) -> None:
    forms = chosen.forms
    if texts := [name for name in chosen.ngrams if name in chosen.names]:
        examples = join_first([_show_example(frame[name]) for name in texts])
        chosen.notes.append(
            f"texts become up to 30 numbers by their character n-grams, which an ONNX file cannot hold: "
            f"{examples}; without: {_override(asked, 'exclude', *texts)}"
        )
    if amounts := [name for name, form in forms.items() if is_amount(form)]:
        examples = join_first([describe_amount(frame[name], forms[name]) for name in amounts])
        other = _override(asked, "categories", amounts[0])
        chosen.notes.append(f"read as numbers: {examples}; as categories: {other}")
    if times := [name for name, form in forms.items() if form == TIME]:
        examples = join_first([_show_example(frame[name]) for name in times])
        chosen.notes.append(f"times of day become hours, their sine and their cosine: {examples}")
    if dates:
        examples = join_first([_show_example(frame[name], forms[name]) for name in dates])
        hour = ""
        if (np.concatenate([*map(days_since_1970, dates.values())]) % 1 > 0).any():
            hour = ", hour"
        chosen.notes.append(
            f"dates become year, month, day of the year, weekday{hour}, sine and cosine of the year and of "
            f"the week, and days since the first, those that vary: {examples}"
        )


def _show_example(column: Values, form: str = "") -> str:
    """A column and one of its cells, with the format of dates."""
    example = f"{column.name} such as {shorten(column.dropna().iloc[0])}"
    if "%" in form:
        return f"{example} ({form.replace('|', ' or ')})"
    return example


def _add_notes(
    frame: Frame, asked: ColumnOptions, chosen: Features, dates: Mapping[str, Values]
) -> None:
    texts = [name for name in chosen.names if chosen.kind(name) == "category"]
    distinct = {name: pd.Series(frame[name].unique()) for name in texts}
    chosen.notes += filter(
        None, [note_on_spelling(column, name, "categories") for name, column in distinct.items()]
    )
    numeric = [name for name in (*chosen.names, *asked.targets) if name not in chosen.categories]
    if padded := [name for name, column in distinct.items() if _has_zeros(column)]:
        chosen.notes.append(
            f"codes that begin with 0 are taken as categories: {join_first(padded)}"
        )
    if words := {
        name: found
        for name, column in distinct.items()
        if is_text(column) and (found := _words_beside_numbers(column))
    }:
        examples = join_first(
            [f"{name} ({join_first([*map(repr, words[name])])})" for name in words]
        )
        option = _suggest_missing(
            asked, "where the words mean missing", {*chain(*words.values())}
        )
        chosen.notes.append(f"numbers beside words are taken as categories: {examples}{option}")
    typed = (*asked.categories, *asked.keep)
    begun = [
        name
        for name, column in distinct.items()
        if name not in typed and _begin_with_numbers(column)
    ]
    if begun:
        examples = join_first([_show_example(frame[name]) for name in begun])
        chosen.notes.append(
            f"texts that begin with numbers are taken as categories: {examples}; written in one unit, they "
            "would be numbers"
        )
    codes = {name: find_sentinel(frame[name]) for name in numeric}
    codes |= {
        name: find_stand_in(frame[name], column)
        for name, column in dates.items()
        if name in chosen.names
    }
    if codes := {name: code for name, code in codes.items() if code}:
        counts = [
            f"{name} ({code}, {(frame[name].astype(str).str.removesuffix('.0') == code).sum():,} times)"
            for name, code in codes.items()
        ]
        option = _suggest_missing(asked, "where they mean that", {*codes.values()})
        option = re.sub(r'"(-?[\d.]+(e\+\d+)?)"', r"\1", option)  # numbers need no quotes
        chosen.notes.append(f"possible codes of missing values: {join_first(counts)}{option}")
    if few := [
        name
        for name in chosen.names
        if name in numeric
        and is_number(frame[name])
        and has_few(frame[name])
        and frame[name].nunique() > 2
        and (frame[name].dropna() % 1 == 0).all()
    ]:
        values = join_first([f"{name} ({frame[name].nunique()} values)" for name in few])
        chosen.notes.append(
            f"integers with few values are taken as numbers (and as categories, where each has "
            f"{ROWS_OF_LEVEL} rows): {values}; as categories alone: "
            f"{_override(asked, 'categories', few[0])}"
        )


def _suggest_missing(asked: ColumnOptions, condition: str, values: Collection[str]) -> str:
    """The option by which some values mean missing, where there is one."""
    if asked.streamed:
        return ""
    return f"; {condition}: {_override(asked, 'na_values', *sorted(values))}"


def _words_beside_numbers(column: Values) -> list[str]:
    """The words of a category, given its different values, that holds more numbers than words."""
    different = column.dropna().astype(str).tolist()
    words = [text for text in different if text.isalpha()]
    numbers = sum(map(reads_as_number, different))
    if len(words) < numbers == len(different) - len(words):
        return words
    return []


def _begin_with_numbers(column: Values) -> bool:
    """Whether a category holds many measures, such as 5'11" or 3h 20m, rather than codes."""
    texts = [str(value).strip() for value in column.dropna()]
    return len(texts) > FEW and most_are(_MEASURE.match, texts)


def _has_zeros(column: Values) -> bool:
    """Whether a category begins with 0 and another digit."""
    return any(re.fullmatch(r"0\d+", str(value)) for value in column)


def _check_leaks(frame: Frame, asked: ColumnOptions, chosen: Features) -> list[DataError]:
    """The columns that equal a target; notes on those that decide it in another way."""
    names = [name for name in chosen.names if name not in asked.keep]
    for target in asked.targets:
        if is_nested(frame[target]):
            continue
        name, how = find_leak(frame, names, target)
        given_away = f"the column {name!r} reveals the target {target!r}: {how}"
        if name and len(chosen.names) > 1:
            hint = f"{_override(asked, 'exclude', name)}; where it is known before the target: "
            return [DataError(given_away, hint=hint + _override(asked, "keep", name))]
        # nothing else to predict from: it cannot be a slip
        if name:
            chosen.notes += [given_away]
        elif hints := find_hints(frame, names, target):
            found = join_first([f"{name!r} ({how})" for name, how in hints.items()])
            chosen.notes.append(
                f"the target {target!r} can be read off {found}; where that is known only after the target: "
                + _override(asked, "exclude", *hints)
            )
    return []


def _override(asked: ColumnOptions, option: str, *columns: str) -> str:
    """The columns beside those that are named already: an override replaces the whole list."""
    return format_override(f"data.source.{option}", [*getattr(asked, option), *columns])
