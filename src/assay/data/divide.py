"""Which samples are in which subset, as `data.split` asks for it: by folds, groups, times or a column."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from sklearn.model_selection import (  # type: ignore[import-untyped]  # scikit-learn ships no types
    GroupShuffleSplit,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
)

from assay.data.samples import Unfitted
from assay.data.subset import hold_out
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from assay.data.samples import Samples, Stream
    from assay.data.subset import Split

    Rows = NDArray[np.int64]
    Data = Samples | Stream | Unfitted


def cut_fold(indices: Rows, split: Split, labels: Rows | None, groups: Rows | None) -> tuple[Rows, Rows]:
    """The samples without fold `split.fold` of `split.folds`, and that fold."""
    key, hint = f"data.split.folds={split.folds}", "lower data.split.folds"
    classes = np.zeros(len(indices), np.int64) if labels is None else labels[indices]
    seeded = {"n_splits": split.folds, "shuffle": True, "random_state": split.seed}
    with warnings.catch_warnings():
        try:
            if groups is not None:
                warnings.simplefilter("ignore", UserWarning)  # about a class in fewer groups than folds
                cuts = StratifiedGroupKFold(**seeded).split(classes, classes, groups[indices])
            else:
                warnings.simplefilter("error", UserWarning)  # about a class of fewer samples than folds
                cuts = (KFold if labels is None else StratifiedKFold)(**seeded).split(classes, classes)
            rest, fold = list(cuts)[int(split.fold or 0)]
        except (ValueError, UserWarning) as error:
            raise DataError(f"{key}: {error}", hint=hint) from error
    if not len(fold) or not len(rest):
        message = f"{key}: fold {split.fold} is empty: there are too few groups, or some are too large"
        raise DataError(message, hint=hint)
    return indices[rest], indices[fold]


_DRAWS: Final = 50
"""Random choices of groups, of which the best one is taken."""


def hold_out_groups(
    indices: Rows, fraction: float, labels: Rows | None, groups: Rows, *, seed: int, subset: str
) -> tuple[Rows, Rows]:
    """Take whole groups away, so that the subset has the share that was asked for, of each class too."""
    if fraction == 0:
        return indices, indices[:0]
    draws = GroupShuffleSplit(n_splits=_DRAWS, test_size=fraction, random_state=seed)
    try:
        cuts = list(draws.split(indices, groups=groups[indices]))
    except ValueError as error:
        hint = f"data.split.{subset}=0, or data.split.group=null"
        raise DataError(f"data.split.{subset}: {error}", hint=hint) from error
    classes = np.zeros(len(indices), np.int64) if labels is None else labels[indices]
    # Each class counts alike, and so does the subset's size.
    members = np.column_stack([np.ones(len(indices)), classes[:, None] == np.unique(classes)])

    def distance(cut: tuple[Rows, Rows]) -> float:
        return float(np.square(members[cut[1]].sum(0) / members.sum(0) - fraction).sum())

    rest, taken = min(cuts, key=distance)
    return indices[rest], indices[taken]


def hold_out_latest(indices: Rows, fraction: float, times: pd.Series[Any], subset: str) -> tuple[Rows, Rows]:
    """Take the latest samples away; samples of one time stay together."""
    if fraction == 0:
        return indices, indices[:0]
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


_SUBSETS: Final = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
}


def values_of(data: Data, key: str, name: str) -> pd.Series[Any]:
    """A value for each sample."""
    if name in data.split_values:
        values = pd.Series(data.split_values[name])
        if len(values) != len(data.targets):
            raise DataError(
                f"{key}={name}: expected a value for each of {len(data.targets)} samples, got {len(values)}"
            )
    elif not isinstance(data, Unfitted) and data.names:
        values = _values_of_names(data.names, key, name)
    else:
        raise DataError(
            f"{key}={name}: this data has neither columns beside its inputs nor file names to split by",
            hint=f"{key}=null draws samples at random",
        )
    if (missing := values.isna().to_numpy()).any():
        row, count = values.index[int(missing.argmax())], int(missing.sum())
        raise DataError(
            f"{key}={name}: no value in row {row} (rows count from 0; {count} of {len(values)} rows)",
            hint="fill them in, or leave such rows out of the file",
        )
    return values


def _values_of_names(names: Sequence[str], key: str, pattern: str) -> pd.Series[Any]:
    hint = f"such as {key}='\"([^/_]+)_[^/]*$\"', for what stands before a _ in {names[0]!r}"
    try:
        values = pd.Series(names, dtype=object).str.extract(pattern)
    except (re.error, ValueError) as error:
        raise DataError(f"{key}={pattern}: not a regular expression: {error}", hint=hint) from error
    if values.shape[1] != 1:
        raise DataError(
            f"{key}={pattern}: this data has no columns; expected a regular expression over its file names, "
            f"with one group in parentheses, got {values.shape[1]}",
            hint=hint,
        )
    if (missing := values[0].isna()).any():
        raise DataError(
            f"{key}={pattern}: finds nothing in {names[int(missing.argmax())]!r} ({int(missing.sum())} of "
            f"{len(names)} files)",
            hint=hint,
        )
    found: pd.Series[Any] = values[0]
    return found


def times_of(values: pd.Series[Any], key: str, name: str) -> pd.Series[Any]:
    """Times that can be ordered: numbers as they are, texts as dates."""
    if values.dtype.kind in "iufM":
        return values
    texts = values.astype(str).str.strip()
    if texts.str.fullmatch(r"\d{1,15}").all():  # years, or 20240131
        numbers: pd.Series[Any] = pd.to_numeric(texts)
        return numbers
    dates: pd.Series[Any] = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    if (wrong := dates.isna().to_numpy()).any():
        row = int(wrong.argmax())
        raise DataError(
            f"{key}={name}: {texts.iloc[row]!r} in row {values.index[row]} is neither a number nor a date "
            f"written as 2024-12-31 ({int(wrong.sum())} of {len(wrong)} rows)"
        )
    plain: pd.Series[Any] = dates.dt.tz_localize(None)
    return plain


def subsets_of(values: pd.Series[Any], key: str, name: str) -> NDArray[np.str_]:
    """`train`, `val` or `test` for each sample."""
    subsets = values.astype(str).str.strip().str.casefold().map(_SUBSETS)
    if (wrong := subsets.isna().to_numpy()).any():
        unknown = values[wrong].astype(str).unique()
        more = ", …" if len(unknown) > 5 else ""
        raise DataError(
            f"{key}={name}: expected train, val and test, got {', '.join(map(repr, unknown[:5]))}{more}",
            hint="rename these values, or name another column",
        )
    return subsets.to_numpy(dtype=np.str_)


def divide(  # noqa: PLR0912 - a branch for each key of data.split
    whole: Data, given: Mapping[str, Data], split: Split, labels: Rows | None
) -> tuple[dict[str, Rows], list[str]]:
    """Divide samples into train, val and test."""
    notes: list[str] = []
    rows = {subset: np.arange(len(data.targets)) for subset, data in {**given, "train": whole}.items()}
    if split.column is not None:
        rows |= _rows_by_column(whole, given, split.column)
    groups = None if split.group is None else _find_groups(whole, given, split.group)
    key, times = "data.split.time", None
    if split.time is not None:
        times = times_of(values_of(whole, key, split.time), key, split.time)
    fixed = set(given)  # subsets of the source's own
    if split.folds:
        if "test" in rows:
            notes.append(
                f"data.split.folds={split.folds}: the folds are of the training samples; the source's own "
                f"test subset ({len(rows['test']):,} samples) is left out"
            )
        fixed.discard("test")
        train, how = rows["train"], "" if labels is None else ", classes in proportion"
        rows["train"], rows["test"] = cut_fold(train, split, labels, groups)
        if groups is not None and labels is not None:
            how += " as far as groups allow"
        notes.append(
            f"fold {split.fold} of {split.folds} is tested: {len(rows['test']):,} of {len(train):,} "
            f"samples{how} (data.split.test is not used)"
        )
    known = set(rows)
    # The test subset is taken first, so that changing the share for validation leaves it as it is.
    for subset in ("test", "val"):
        if subset not in known:
            train, share = rows["train"], split.share_of_rest(subset, known)
            if groups is not None:
                cut = hold_out_groups(train, share, labels, groups, seed=split.seed, subset=subset)
            elif times is not None:
                cut = hold_out_latest(train, share, times, subset)
            else:
                cut = hold_out(train, share, labels, split.seed, subset)
            rows["train"], rows[subset] = cut
    cut_here = {subset: own for subset, own in rows.items() if subset not in fixed and len(own)}
    if groups is not None:
        total = sum(map(len, cut_here.values()))
        shares = ", ".join(
            f"{len(np.unique(groups[own]))} in {subset} ({100 * len(own) / total:.1f} % of the samples)"
            for subset, own in cut_here.items()
        )
        notes.append(f"data.split.group={split.group}: each group is whole in one subset: {shares}")
    if times is not None:
        spans = ", ".join(
            f"{subset} from {_time_text(own.min())} to {_time_text(own.max())} ({len(own):,})"
            for subset in ("train", "val", "test")
            if subset in cut_here
            for own in [times.iloc[cut_here[subset]]]
        )
        notes.append(f"data.split.time={split.time}: {spans}; not stratified")
    if split.column is not None:
        sizes = ", ".join(f"{len(own):,} {subset}" for subset, own in sorted(rows.items()))
        drawn = [subset for subset in ("val", "test") if subset not in known and len(rows[subset])]
        more = f"; it names no {' and no '.join(drawn)} samples, which are drawn from train" if drawn else ""
        notes.append(f"data.split.column={split.column}: {sizes}{more}")
    return rows, notes


def _rows_by_column(whole: Data, given: Mapping[str, Data], name: str) -> dict[str, Rows]:
    key = "data.split.column"
    subsets = subsets_of(values_of(whole, key, name), key, name)
    rows = {subset: np.flatnonzero(subsets == subset) for subset in ("train", "val", "test")}
    if not len(rows["train"]):
        raise DataError(f"{key}={name}: the column says train nowhere", hint="name another column")
    if both := [subset for subset in given if len(rows[subset])]:
        raise DataError(
            f"{key}={name}: the column names {len(rows[both[0]])} {both[0]} samples, and the source has such "
            "of its own",
            hint=f"{key}=null, or leave the source's own {both[0]} subset out",
        )
    return {subset: own for subset, own in rows.items() if len(own)}


def _find_groups(whole: Data, given: Mapping[str, Data], name: str) -> Rows:
    """Number the groups; those of subsets that the source has of its own may not be among them."""
    key = "data.split.group"
    values = values_of(whole, key, name)
    for subset, data in given.items():
        if name not in data.split_values and (isinstance(data, Unfitted) or not data.names):
            continue
        if shared := sorted(set(map(str, values)) & set(map(str, values_of(data, key, name)))):
            raise DataError(
                f"{key}={name}: {len(shared)} groups are in the source's {subset} subset and in its training "
                f"subset, such as {shared[0]!r}",
                hint=f"give all samples as one file and no {subset} subset, or {key}=null",
            )
    return np.asarray(pd.factorize(values)[0], dtype=np.int64)


def _time_text(time: Any) -> str:
    if isinstance(time, pd.Timestamp):
        return time.isoformat(sep=" ").removesuffix(" 00:00:00")
    return f"{time:g}" if isinstance(time, float) else str(time)
