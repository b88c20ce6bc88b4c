"""How samples are divided into train, val and test: at random, by group, time or column, or in folds."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd
from sklearn.model_selection import (  # type: ignore[import-untyped]  # scikit-learn ships no types
    GroupShuffleSplit,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    train_test_split,
)

from assay.data.core.copies import leave_out_copies
from assay.data.core.source_files import SUBSET_WORDS, SUBSETS
from assay.errors import DataError
from assay.quoting import join_first

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from assay.data.core.samples import Samples
    from assay.data.core.types import Rows, Strings, Values

    Subsets = Mapping[str, Samples]
    Cut = tuple[Rows, Rows]
    Cuts = Mapping[str, Rows]


def values_of(data: Samples, key: str, name: str) -> Values:
    """A value for each sample."""
    if name in data.split_values:
        values = pd.Series(data.split_values[name])
        if len(values) != len(data.targets):
            raise DataError(
                f"{key}={name}: expected a value for each of {len(data.targets)} samples, got {len(values)}"
            )
    elif data.encoder is None and data.names:
        values = _values_of_names(data.names, key, name)
    else:
        raise DataError(
            f"{key}={name}: this data has neither columns beside its inputs nor file names to split by",
            hint=f"{key}=null draws samples at random",
        )
    if (missing := values.isna().to_numpy()).any():
        row = values.index[int(missing.argmax())]
        raise DataError(
            f"{key}={name}: no value in row {row} (rows count from 0; {missing.sum()} of {len(values)} rows)",
            hint="fill them in, or leave such rows out of the file",
        )
    return values


def _values_of_names(names: Strings, key: str, pattern: str) -> Values:
    hint = f"such as {key}='\"([^/_]+)_[^/]*$\"', for what stands before a _ in {names[0]!r}"
    try:
        values = pd.Series(names, dtype=object).str.extract(pattern)
    except (re.error, ValueError) as error:
        raise DataError(
            f"{key}={pattern}: not a regular expression: {error}", hint=hint
        ) from error
    if values.shape[1] != 1:
        raise DataError(
            f"{key}={pattern}: this data has no columns; expected a regular expression over its file names, "
            f"with one group in parentheses, got {values.shape[1]}",
            hint=hint,
        )
    matches: Values = values[0]
    if (missing := matches.isna()).any():
        raise DataError(
            f"{key}={pattern}: matches nothing in {names[int(missing.argmax())]!r} ({missing.sum()} of "
            f"{len(names)} files)",
            hint=hint,
        )
    return matches


def parse_times(values: Values, key: str, name: str) -> Values:
    """Times that can be ordered: numbers as they are, texts as dates."""
    if values.dtype.kind in "iufM":
        return values
    texts = values.astype(str).str.strip()
    times: Values = pd.to_datetime(
        texts, format="ISO8601", utc=True, errors="coerce"
    ).dt.tz_localize(None)
    if texts.str.fullmatch(r"\d{1,15}").all():  # years, or 20240131
        times = pd.to_numeric(texts)
    if (wrong := times.isna().to_numpy()).any():
        row = int(wrong.argmax())
        raise DataError(
            f"{key}={name}: {texts.iloc[row]!r} in row {values.index[row]} is neither a number nor a date "
            f"written as 2024-12-31 ({int(wrong.sum())} of {len(wrong)} rows)"
        )
    return times


def parse_subsets(values: Values, key: str, name: str) -> NDArray[np.str_]:
    """`train`, `val` or `test` for each sample."""
    subsets = values.astype(str).str.strip().str.casefold().map(SUBSET_WORDS)
    if (wrong := subsets.isna().to_numpy()).any():
        unknown = values[wrong].astype(str).unique()
        ellipsis = ""
        if len(unknown) > 5:
            ellipsis = ", …"
        raise DataError(
            f"{key}={name}: expected train, val and test, got {', '.join(map(repr, unknown[:5]))}{ellipsis}",
            hint="rename these values, or name another column",
        )
    return subsets.to_numpy(dtype=np.str_)


@final
@dataclass(frozen=True)
class Split:
    """How samples are divided where the source does not divide them."""

    val: float
    test: float
    seed: int = 0
    group: str | None = None
    time: str | None = None
    column: str | None = None
    folds: int | None = None
    fold: int | None = None
    dedup: bool = False

    @property
    def columns(self) -> dict[str, str]:
        """The columns that samples are divided by, by the key that names each."""
        named = {
            "data.split.group": self.group,
            "data.split.time": self.time,
            "data.split.column": self.column,
        }
        return {key: name for key, name in named.items() if name is not None}

    def share_of_rest(self, subset: str, given: Collection[str]) -> float:
        """Share of what is left to take for `subset`; the test subset is taken before validation."""
        if subset == "test":
            return self.test
        if self.folds:
            return self.val / (1 - 1 / self.folds)
        if "test" in given:
            return self.val
        return self.val / (1 - self.test)


def divide(
    whole: Samples, given: Subsets, split: Split, labels: Rows | None
) -> tuple[dict[str, Rows], list[str]]:
    """Divide samples into train, val and test."""
    notes: list[str] = []
    rows = {subset: np.arange(len(data)) for subset, data in {**given, "train": whole}.items()}
    groups = None
    times = None
    if split.column is not None:
        rows |= _rows_by_column(whole, given, split.column)
    if split.group is not None:
        groups = _find_groups(whole, given, split.group)
    if split.time is not None:
        key = "data.split.time"
        times = parse_times(values_of(whole, key, split.time), key, split.time)
    own = {subset: data for subset, data in given.items() if subset != "test" or not split.folds}
    if split.folds:
        notes += _take_fold(rows, split, labels, groups)
    divided = set(rows)

    def take(train: Rows, share: float, subset: str) -> Cut:
        if not share:
            return train, train[:0]
        if groups is not None:
            return hold_out_groups(train, share, labels, groups, seed=split.seed, subset=subset)
        if times is not None:
            return hold_out_latest(train, share, times, subset)
        return hold_out(train, share, labels, split.seed, subset)

    # The test subset is taken first, so that changing the share for validation leaves it as it is.
    for subset in ("test", "val"):
        if subset not in divided:
            share = split.share_of_rest(subset, divided)
            rows["train"], rows[subset] = take(rows["train"], share, subset)
    if split.dedup:
        notes.append(leave_out_copies({"train": whole, **own}, rows))
    cut_here = {
        subset: chosen for subset, chosen in rows.items() if subset not in own and len(chosen)
    }
    if groups is not None:
        notes.append(_describe_groups(split, groups, cut_here))
    if times is not None:
        notes.append(_describe_times(split, times, cut_here))
    if split.column is not None:
        drawn = [
            subset for subset in ("val", "test") if subset not in divided and len(rows[subset])
        ]
        notes.append(_describe_column(split, rows, drawn))
    return rows, notes


def _take_fold(
    rows: dict[str, Rows], split: Split, labels: Rows | None, groups: Rows | None
) -> list[str]:
    """Make a fold of the training samples the test subset."""
    notes = []
    if "test" in rows:
        notes.append(
            f"data.split.folds={split.folds}: the folds are of the training samples; the source's own "
            f"test subset ({len(rows['test']):,} samples) is left out"
        )
    total = len(rows["train"])
    rows["train"], rows["test"] = cut_fold(rows["train"], split, labels, groups)
    stratified = ", classes in proportion"
    if labels is None:
        stratified = ""
    if stratified and groups is not None:
        stratified += " as far as groups allow"
    notes.append(
        f"fold {split.fold} of {split.folds} is tested: {len(rows['test']):,} of {total:,} "
        f"samples{stratified} (data.split.test is not used)"
    )
    return notes


def _describe_groups(split: Split, groups: Rows, rows: Cuts) -> str:
    total = sum(map(len, rows.values()))
    shares = [
        f"{len(np.unique(groups[own]))} in {subset} ({100 * len(own) / total:.1f} % of the samples)"
        for subset, own in rows.items()
    ]
    return (
        f"data.split.group={split.group}: each group is whole in one subset: {', '.join(shares)}"
    )


def _describe_times(split: Split, times: Values, rows: Cuts) -> str:
    spans = [
        f"{subset} from {_format_time(own.min())} to {_format_time(own.max())} ({len(own):,})"
        for subset, own in ((name, times.iloc[rows[name]]) for name in SUBSETS if name in rows)
    ]
    return f"data.split.time={split.time}: {', '.join(spans)}; not stratified"


def _describe_column(split: Split, rows: Cuts, drawn: Strings) -> str:
    sizes = [f"{len(own):,} {subset}" for subset, own in sorted(rows.items())]
    note = f"data.split.column={split.column}: {', '.join(sizes)}"
    if drawn:
        note += f"; it names no {' and no '.join(drawn)} samples, which are drawn from train"
    return note


def _rows_by_column(whole: Samples, given: Subsets, name: str) -> dict[str, Rows]:
    key = "data.split.column"
    subsets = parse_subsets(values_of(whole, key, name), key, name)
    rows = {subset: np.flatnonzero(subsets == subset) for subset in SUBSETS}
    if not len(rows["train"]):
        raise DataError(
            f"{key}={name}: no row of the column is train", hint="name another column"
        )
    if both := [subset for subset in given if len(rows[subset])]:
        raise DataError(
            f"{key}={name}: the column names {len(rows[both[0]])} {both[0]} samples, but the source has its "
            "own as well",
            hint=f"{key}=null, or leave the source's own {both[0]} subset out",
        )
    return {subset: indices for subset, indices in rows.items() if len(indices)}


def _find_groups(whole: Samples, given: Subsets, name: str) -> Rows:
    """Number the groups; those of subsets that the source has of its own may not be among them."""
    key = "data.split.group"
    values = values_of(whole, key, name)
    for subset, data in given.items():
        if name in whole.split_values and name not in data.split_values:
            continue
        if shared := sorted(set(map(str, values)) & set(map(str, values_of(data, key, name)))):
            raise DataError(
                f"{key}={name}: {len(shared)} groups are in the source's {subset} subset and in its training "
                f"subset, such as {shared[0]!r}",
                hint=f"give all samples as one file and no {subset} subset, or {key}=null",
            )
    return np.asarray(pd.factorize(values)[0], dtype=np.int64)


def _format_time(time: Any) -> str:
    if isinstance(time, float):
        return f"{time:g}"
    return str(time).removesuffix(" 00:00:00")


def cut_fold(indices: Rows, split: Split, labels: Rows | None, groups: Rows | None) -> Cut:
    """The samples without fold `split.fold` of `split.folds`, and that fold."""
    key = f"data.split.folds={split.folds}"
    folds = split.folds or 0
    number = split.fold or 0
    classes = _classes(indices, labels)
    divisible, smallest = _divisible(classes)
    units = len(divisible)
    what = "samples"
    if groups is not None:
        units = len(np.unique(groups[indices]))
        what = "groups"
    if units < folds:
        raise DataError(
            f"{key}: expected at most the number of {what} that can be divided, {units:,}",
            hint="lower data.split.folds",
        )
    seeded = {"n_splits": folds, "shuffle": True, "random_state": split.seed}
    if groups is not None:
        if np.bincount(classes).max() < folds:
            classes = np.zeros_like(classes)  # scikit-learn refuses to stratify them
        with warnings.catch_warnings():
            # about a class in fewer groups than folds
            warnings.simplefilter("ignore", UserWarning)
            cuts = list(StratifiedGroupKFold(**seeded).split(classes, classes, groups[indices]))
        fold = cuts[number][1]
    elif smallest < folds:
        fold = _order_by_class(classes, divisible, split.seed)[number::folds]
    else:
        splitter = StratifiedKFold
        if labels is None or labels.ndim > 1:
            splitter = KFold
        cuts = list(splitter(**seeded).split(divisible, classes[divisible]))
        fold = divisible[cuts[number][1]]
    remaining, taken = _keep_classes(indices, fold, labels, groups)
    if not len(taken) or not len(remaining):
        raise DataError(
            f"{key}: fold {split.fold} is empty: there are too few groups, or some are too large",
            hint="lower data.split.folds",
        )
    return remaining, taken


def _classes(indices: Rows, labels: Rows | None) -> Rows:
    """A number from 0 for the class of each sample; labels beside each other are not stratified."""
    if labels is None or labels.ndim > 1:
        return np.zeros(len(indices), np.int64)
    return np.unique(labels[indices], return_inverse=True)[1]


def _divisible(classes: Rows) -> tuple[Rows, int]:
    """The places of samples whose class has another one, and the size of the smallest such class."""
    sizes = np.bincount(classes)[classes]
    divisible = np.flatnonzero(sizes > 1)
    return divisible, int(sizes[divisible].min(initial=len(classes)))


def _order_by_class(classes: Rows, places: Rows, seed: int) -> Rows:
    """Places at random, but class by class, so that each n-th one has them in proportion."""
    generator = np.random.default_rng(seed)
    ranks = generator.permutation(classes.max(initial=0) + 1)
    return places[np.lexsort((generator.random(len(places)), ranks[classes[places]]))]


def _keep_classes(indices: Rows, places: Rows, labels: Rows | None, groups: Rows | None) -> Cut:
    """Divide samples into what remains, and those at some places that are not the only ones of a class.

    These, and the rest of their group, remain.
    """
    taken = indices[np.sort(places)]
    remaining = np.setdiff1d(indices, taken, assume_unique=True)
    if labels is None or not len(taken):
        return remaining, taken
    rows, classes = _members(labels, taken)
    names, first = np.unique(classes, return_index=True)
    owners: Rows = np.arange(len(labels))
    if groups is not None:
        owners = groups
    lacking = ~np.isin(names, _members(labels, remaining)[1])
    is_back = np.isin(owners[taken], owners[rows[first[lacking]]])
    return np.sort(np.concatenate([remaining, taken[is_back]])), taken[~is_back]


def _members(labels: Rows, rows: Rows) -> Cut:
    """Rows, and a class of each; a row with several labels as often."""
    if labels.ndim == 1:
        return rows, labels[rows]
    places, classes = np.nonzero(labels[rows])
    return rows[places], classes


_DRAWS = 50
"""Random choices of groups, of which the best one is taken."""


def hold_out_groups(
    indices: Rows, fraction: float, labels: Rows | None, groups: Rows, *, seed: int, subset: str
) -> Cut:
    """Take whole groups away, so that the subset has the share that was asked for, of each class too."""
    owners = groups[indices]
    hint = f"data.split.{subset}=0, or data.split.group=null"
    if (number := len(np.unique(owners))) < 2:
        raise DataError(
            f"data.split.{subset}: all of the {len(indices):,} samples left are in one group",
            hint=hint,
        )
    size = min(math.ceil(fraction * number), number - 1)
    draws = GroupShuffleSplit(n_splits=_DRAWS, test_size=size, random_state=seed)
    classes = _classes(indices, labels)
    # Each class counts alike, and so does the subset's size.
    members = np.column_stack([np.ones(len(indices)), classes[:, None] == np.unique(classes)])
    cuts = sorted(
        (taken for _, taken in draws.split(indices, groups=owners)),
        key=lambda places: np.square(members[places].sum(0) / members.sum(0) - fraction).sum(),
    )
    singles = (np.flatnonzero(owners == owner) for owner in np.unique(owners))
    # the first, unless it only has what training cannot spare
    for places in itertools.chain(cuts, singles):
        remaining, taken = _keep_classes(indices, places, labels, groups)
        if len(taken):
            return remaining, taken
    raise DataError(
        f"data.split.{subset}: each group has the only training samples of a class", hint=hint
    )


def hold_out_latest(indices: Rows, fraction: float, times: Values, subset: str) -> Cut:
    """Take the latest samples away; samples of one time stay together."""
    values = times.iloc[indices].to_numpy()
    order = np.argsort(values, kind="stable")
    cuts = np.flatnonzero(values[order][1:] != values[order][:-1]) + 1
    if not len(cuts):
        raise DataError(
            f"data.split.{subset}: {len(indices)} sample(s), all of one time, are left to cut it from",
            hint=f"data.split.{subset}=0, or another column: data.split.time=COLUMN",
        )
    cut = cuts[np.abs(cuts - (1 - fraction) * len(indices)).argmin()]
    return np.sort(indices[order[:cut]]), np.sort(indices[order[cut:]])


def hold_out(indices: Rows, fraction: float, labels: Rows | None, seed: int, subset: str) -> Cut:
    """Take a subset away, of each class in proportion; a class of one sample remains in training."""
    if labels is None or labels.ndim > 1:
        stratify = None
    else:
        stratify = labels[indices]
    places = np.arange(len(indices))
    try:
        places = train_test_split(
            places, test_size=fraction, random_state=seed, stratify=stratify
        )[1]
    except (
        ValueError
    ):  # there is a class of one sample, or there are more classes than samples to take
        classes = _classes(indices, labels)
        order = _order_by_class(classes, _divisible(classes)[0], seed)
        size = min(math.ceil(fraction * len(order)), len(order) - 1)
        places = order[(2 * np.arange(size) + 1) * len(order) // (2 * max(1, size))]
    remaining, taken = _keep_classes(indices, places, labels, None)
    if not len(taken):
        message = (
            f"data.split.{subset}: {len(indices):,} training sample(s) are left to cut it from"
        )
        why = ""
        if len(indices) > 1:
            why = ", each the only one of its class"
        raise DataError(
            message + why, hint=f"add samples, or take no such subset: data.split.{subset}=0"
        )
    return remaining, taken


def long_tail(indices: Rows, labels: Rows, num_classes: int, ratio: float, seed: int) -> Rows:
    """Thin classes out exponentially: class j keeps ⌊n_max · ratio^(j / (C - 1))⌋ samples.

    The protocol of Cui et al., "Class-Balanced Loss Based on Effective Number of Samples" (CVPR 2019), as
    LDAM uses it.
    """
    generator = np.random.default_rng(seed)
    counts = np.bincount(labels[indices], minlength=num_classes)
    sizes = counts.max() * ratio ** (np.arange(num_classes) / max(1, num_classes - 1))
    members = [
        generator.permutation(indices[labels[indices] == label]) for label in range(num_classes)
    ]
    kept = [rows[: max(1, int(size))] for rows, size in zip(members, sizes, strict=True)]
    return np.sort(np.concatenate(kept))


def note_small_classes(
    labels: Rows, class_names: Strings, rows: Cuts, given: Collection[str], split: Split
) -> list[str]:
    """Note which classes of the training data a subset lacks that was drawn from it."""
    drawn = [subset for subset in ("val", "test") if subset not in given and len(rows[subset])]
    if split.time is not None or split.column is not None:
        return []
    counts = {
        subset: np.bincount(_members(labels, rows[subset])[1], minlength=len(class_names))
        for subset in ("train", *drawn)
    }
    lacking: dict[tuple[int, ...], list[str]] = {}
    for subset in drawn:
        absent = np.flatnonzero((counts["train"] > 0) & (counts[subset] == 0))
        lacking.setdefault(tuple(absent), []).append(subset)
    kind = "labels"
    if labels.ndim == 1:
        kind = "classes"
    why = "samples in too few groups"
    if split.group is None:
        why = "too few samples"
    total = np.sum(list(counts.values()), 0)
    return [
        f"data.split: {kind} with {why} to be in {' and '.join(subsets)}: "
        f"{len(absent)} of {len(class_names)}, "
        + join_first([f"{class_names[number]!r} ({total[number]:,})" for number in absent])
        for absent, subsets in lacking.items()
        if absent
    ]
