"""Which samples are in which subset, as `data.split` asks for it: by folds, groups, times or a column."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pandas as pd
from sklearn.model_selection import (  # type: ignore[import-untyped]  # scikit-learn ships no types
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


def cut_fold(
    indices: Rows,
    split: Split,
    labels: Rows | None,
    groups: Rows | None,
    class_names: Sequence[str],
    *,
    key: str = "data.split.folds",
) -> tuple[Rows, Rows]:
    """The samples without fold `split.fold` of `split.folds`, and that fold."""
    folds = int(split.folds or 0)
    told = f"{key}={folds}"
    what, there = (
        ("group", len(np.unique(groups[indices]))) if groups is not None else ("sample", len(indices))
    )
    if there < folds:
        raise DataError(f"{told}: there are only {there} {what}s, fewer than folds", hint=_fewer(key, there))
    own = None if labels is None else labels[indices]
    if own is not None and groups is None:
        present, counts = np.unique(own, return_counts=True)
        if (least := int(counts.min())) < folds:
            name = class_names[int(present[counts.argmin()])]
            raise DataError(
                f"{told}: the class {name!r} has only {least} sample(s), fewer than folds",
                hint=f"{_fewer(key, least)}, or add samples of it, or leave the class out",
            )
    seeded = {"n_splits": folds, "shuffle": True, "random_state": split.seed}
    classes = np.zeros(len(indices), np.int64) if own is None else own
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a class in fewer groups than folds, which is said
        if groups is not None:
            cuts = StratifiedGroupKFold(**seeded).split(classes, classes, groups[indices])
        else:
            cuts = (KFold if own is None else StratifiedKFold)(**seeded).split(classes, classes)
        try:
            rest, fold = list(cuts)[int(split.fold or 0)]
        except ValueError as error:  # groups of classes each of which has fewer samples than folds
            raise DataError(
                f"{told}: each class has fewer samples than folds", hint=_fewer(key, folds - 1)
            ) from error
    if not len(fold) or not len(rest):
        raise DataError(
            f"{told}: fold {split.fold} is empty, as some groups are too large", hint=_fewer(key, folds - 1)
        )
    return indices[rest], indices[fold]


def _fewer(key: str, most: int) -> str:
    fold = key.rpartition(".")[2].removesuffix("s")
    return f"{key}={most}" if most > 1 else f"{key}=null {fold}=null"


_ORDERS: Final = 10
"""Random orders of groups that are tried."""


def hold_out_groups(
    indices: Rows, fraction: float, labels: Rows | None, groups: Rows, *, seed: int, subset: str
) -> tuple[Rows, Rows]:
    """Take whole groups away, so that the subset has the share that was asked for, of each class too."""
    if fraction == 0:
        return indices, indices[:0]
    names, group = np.unique(groups[indices], return_inverse=True)
    if len(names) < 2:
        raise DataError(
            f"data.split.{subset}: {len(names)} group(s) are left to cut it from; at least two were expected",
            hint=f"data.split.{subset}=0, or data.split.group=null",
        )
    classes = np.zeros(len(indices), np.int64) if labels is None else labels[indices]
    table = np.zeros((len(names), int(classes.max()) + 1))
    np.add.at(table, (group, classes), 1)
    # Each class counts alike, and so does the subset's size.
    table = np.column_stack([table, table.sum(1)])
    table = table[:, table.any(0)] / table.sum(0)[table.any(0)]
    generator = np.random.default_rng(seed)
    drawn = [_drawn(table, fraction, generator.permutation(len(names))) for _ in range(_ORDERS)]
    taken = min(drawn, key=lambda one: one[0])[1][group]
    return indices[~taken], indices[taken]


def _drawn(table: NDArray[np.float64], fraction: float, order: Rows) -> tuple[float, NDArray[np.bool_]]:
    """How far a subset is from its share of each class, and which groups are in it."""
    missing = np.full(table.shape[1], fraction)
    taken = np.zeros(len(table), dtype=bool)
    for group in order:
        after = missing - table[group]
        if after @ after < missing @ missing:
            missing, taken[group] = after, True
    if not taken.any():  # each is larger than the share
        smallest = order[table[order, -1].argmin()]
        missing, taken[smallest] = missing - table[smallest], True
    if taken.all():
        missing, taken[order[-1]] = missing + table[order[-1]], False
    return float(missing @ missing), taken


def hold_out_latest(indices: Rows, fraction: float, times: pd.Series[Any], subset: str) -> tuple[Rows, Rows]:
    """Take the latest samples away; samples of one time stay together."""
    if fraction == 0:
        return indices, indices[:0]
    own = times.iloc[indices].to_numpy()
    order = np.argsort(own, kind="stable")
    cuts = np.flatnonzero(own[order][1:] != own[order][:-1]) + 1
    if not len(cuts):
        raise DataError(
            f"data.split.{subset}: {len(indices)} sample(s), all of one time, are left to cut it from",
            hint=f"data.split.{subset}=0, or another column: data.split.time=COLUMN",
        )
    cut = cuts[np.abs(cuts - (1 - fraction) * len(indices)).argmin()]
    return np.sort(indices[order[:cut]]), np.sort(indices[order[cut:]])


_SUBSETS: Final = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "val": "val",
    "valid": "val",
    "validation": "val",
}


def values_of(data: Samples | Stream | Unfitted, key: str, name: str) -> pd.Series[Any]:
    """A value for each sample."""
    if name in data.split_values:
        values = pd.Series(data.split_values[name])
        if len(values) != len(data.targets):
            raise DataError(
                f"{key}={name}: {len(values)} values for {len(data.targets)} samples; one each was expected",
                hint=f"{key}=null, or one value per sample",
            )
    elif not isinstance(data, Unfitted) and data.names:
        values = pd.Series(_found_in(data.names, key, name))
    else:
        raise DataError(
            f"{key}={name}: this data has neither columns beside its inputs nor file names to split by",
            hint=f"{key}=null: samples are drawn at random then",
        )
    if (missing := values.isna().to_numpy()).any():
        raise DataError(
            f"{key}={name}: no value in row {values.index[int(missing.argmax())]} (rows count from 0; "
            f"{int(missing.sum())} of {len(values)} rows)",
            hint="fill them in, or leave such rows out of the file",
        )
    return values


def _found_in(names: Sequence[str], key: str, pattern: str) -> list[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise DataError(
            f"{key}={pattern}: not a regular expression: {error}", hint=_pattern(key, names)
        ) from error
    if compiled.groups != 1:
        raise DataError(
            f"{key}={pattern}: this data has no columns; a regular expression over the paths of its files "
            f"was expected, with one group in parentheses, not with {compiled.groups}",
            hint=_pattern(key, names),
        )
    matches = [compiled.search(name) for name in names]
    for name, match in zip(names, matches, strict=True):
        if match is None or match[1] is None:
            raise DataError(
                f"{key}={pattern}: finds nothing in {name!r} ({sum(not one for one in matches)} of "
                f"{len(names)} files)",
                hint=_pattern(key, names),
            )
    return [match[1] for match in matches if match is not None]


def _pattern(key: str, names: Sequence[str]) -> str:
    return f"such as {key}='\"([^/_]+)_[^/]*$\"', for what stands before a _ in {names[0]!r}"


def groups_of(values: pd.Series[Any]) -> NDArray[np.int64]:
    """Groups as numbers from 0, in the order in which they first occur."""
    return np.asarray(pd.factorize(values)[0], dtype=np.int64)


def times_of(values: pd.Series[Any], key: str, name: str) -> pd.Series[Any]:
    """Times that can be ordered: numbers as they are, texts as dates."""
    if values.dtype.kind in "iufM":
        return values
    if isinstance(values.dtype, pd.DatetimeTZDtype):
        plain: pd.Series[Any] = values.dt.tz_convert("UTC").dt.tz_localize(None)
        return plain
    texts = values.astype(str).str.strip()
    if texts.str.fullmatch(r"\d{1,15}").all():  # years, or 20240131
        numbers: pd.Series[Any] = pd.to_numeric(texts)
        return numbers
    dates: pd.Series[Any] = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce").dt.tz_localize(
        None
    )
    if (wrong := dates.isna().to_numpy()).any():
        row = int(wrong.argmax())
        raise DataError(
            f"{key}={name}: {texts.iloc[row]!r} in row {values.index[row]} is neither a number nor a date "
            f"written as 2024-12-31 ({int(wrong.sum())} of {len(wrong)} rows)",
            hint="rewrite such values: pandas.to_datetime(column, format=…), or name another column",
        )
    return dates


def subsets_of(values: pd.Series[Any], key: str, name: str) -> NDArray[np.str_]:
    """`train`, `val` or `test` for each sample."""
    texts = values.astype(str).str.strip().str.casefold()
    subsets = texts.map(_SUBSETS)
    if (wrong := subsets.isna().to_numpy()).any():
        unknown = values[wrong].astype(str).unique()
        more = ", …" if len(unknown) > 5 else ""
        raise DataError(
            f"{key}={name}: the column holds {', '.join(map(repr, unknown[:5]))}{more}; train, val and test "
            "were expected",
            hint="rename these values, or name another column",
        )
    return subsets.to_numpy(dtype=np.str_)


@final
@dataclass
class _Divided:
    """What is divided, and what has come of it so far."""

    whole: Data
    given: Mapping[str, Data]
    split: Split
    labels: Rows | None
    class_names: Sequence[str]
    rows: dict[str, Rows] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    groups: Rows | None = None
    times: pd.Series[Any] | None = None


def divide(
    whole: Data,
    given: Mapping[str, Data],
    split: Split,
    labels: Rows | None,
    class_names: Sequence[str] = (),
) -> tuple[dict[str, Rows], list[str]]:
    """Divide samples into train, val and test."""
    state = _Divided(whole, given, split, labels, class_names)
    state.rows = {subset: np.arange(len(data.targets)) for subset, data in given.items()}
    state.rows["train"] = np.arange(len(whole.targets))
    if split.column is not None:
        _by_column(state, split.column)
    if split.group is not None:
        _find_groups(state, split.group)
    if split.time is not None:
        _find_times(state, split.time)
    if split.folds:
        _cut_fold(state)
    if split.inner_folds:
        _cut_inner_fold(state)
    own = set(state.rows)
    # The test subset is taken first, so that changing the share for validation leaves it as it is.
    for subset in ("test", "val"):
        if subset not in own:
            _hold_out(state, subset, split.share_of_rest(subset, own))
    if state.groups is not None:
        _say_groups(state, state.groups)
    if state.times is not None:
        _say_times(state, state.times)
    if split.column is not None:
        sizes = ", ".join(f"{len(rows):,} {subset}" for subset, rows in sorted(state.rows.items()))
        drawn = [subset for subset in ("val", "test") if subset not in own and len(state.rows[subset])]
        more = f"; it names no {' and no '.join(drawn)} samples, which are drawn from train" if drawn else ""
        state.notes.append(f"data.split.column={split.column}: {sizes}{more}")
    return state.rows, state.notes


def _by_column(state: _Divided, name: str) -> None:
    key = "data.split.column"
    subsets = subsets_of(values_of(state.whole, key, name), key, name)
    for subset in ("train", "val", "test"):
        rows = np.flatnonzero(subsets == subset)
        if subset == "train" and not len(rows):
            raise DataError(f"{key}={name}: the column says train nowhere", hint="name another column")
        if subset in state.given and len(rows):
            raise DataError(
                f"{key}={name}: the column names {len(rows)} {subset} samples, and the source has such "
                "of its own",
                hint=f"{key}=null, or leave the source's own {subset} subset out",
            )
        if len(rows):
            state.rows[subset] = rows


def _find_groups(state: _Divided, name: str) -> None:
    """Number the groups; those of subsets that the source has of its own may not be among them."""
    key = "data.split.group"
    values = {"train": values_of(state.whole, key, name)}
    for subset, data in state.given.items():
        if _says(data, name):
            values[subset] = values_of(data, key, name)
        else:
            state.notes.append(f"{key}={name}: the source's own {subset} subset does not say its groups")
    for subset in [subset for subset in values if subset != "train"]:
        shared = sorted(set(map(str, values["train"])) & set(map(str, values[subset])))
        if shared:
            raise DataError(
                f"{key}={name}: {len(shared)} groups are in the source's {subset} subset and in its training "
                f"subset, such as {shared[0]!r}",
                hint=f"give all samples as one file and no {subset} subset, or {key}=null",
            )
    state.groups = groups_of(values["train"])


def _find_times(state: _Divided, name: str) -> None:
    key = "data.split.time"
    state.times = times_of(values_of(state.whole, key, name), key, name)
    for subset, data in state.given.items():
        if not _says(data, name):
            state.notes.append(f"{key}={name}: the source's own {subset} subset does not say its times")
        elif (begins := times_of(values_of(data, key, name), key, name).min()) <= state.times.max():
            state.notes.append(
                f"{key}={name}: the source's own {subset} subset begins at {_text(begins)}, before the "
                f"training subset ends ({_text(state.times.max())})"
            )


def _cut_fold(state: _Divided) -> None:
    split = state.split
    if "test" in state.rows:
        left_out = len(state.rows.pop("test"))
        state.notes.append(
            f"data.split.folds={split.folds}: the folds are of the training samples; the source's own test "
            f"subset ({left_out:,} samples) is left out, so that a run without folds can be tested on it"
        )
        state.given = {subset: data for subset, data in state.given.items() if subset != "test"}
    train = state.rows["train"]
    state.rows["train"], fold = cut_fold(train, split, state.labels, state.groups, state.class_names)
    state.rows["test"] = fold
    how = "" if state.labels is None else ", classes in proportion"
    if state.groups is not None and state.labels is not None:
        how = ", classes in proportion as far as groups allow"
        pairs = np.unique(np.column_stack([state.labels[train], state.groups[train]]), axis=0)
        classes, counts = np.unique(pairs[:, 0], return_counts=True)
        rare = [state.class_names[int(one)] for one in classes[counts < int(split.folds or 0)]]
        if rare:
            state.notes.append(
                f"data.split.folds={split.folds}: not every fold can have samples of each class, as fewer "
                f"groups than folds have: {', '.join(rare[:5])}"
            )
    state.notes.append(
        f"fold {split.fold} of {split.folds} is tested: {len(fold):,} of {len(train):,} samples{how} "
        f"(data.split.test is not used)"
    )


def _cut_inner_fold(state: _Divided) -> None:
    """The inner fold is validated; the outer one is left out, so that nothing is chosen by it."""
    split, train = state.split, state.rows["train"]
    inner = replace(split, folds=split.inner_folds, fold=split.inner_fold)
    state.rows["train"], state.rows["val"] = cut_fold(
        train, inner, state.labels, state.groups, state.class_names, key="data.split.inner_folds"
    )
    left_out = len(state.rows["test"])
    state.rows["test"] = train[:0]
    state.given = {}
    state.notes[-1] = (
        f"inner fold {split.inner_fold} of {split.inner_folds} is validated: {len(state.rows['val']):,} of "
        f"{len(train):,} samples (data.split.val is not used); the {left_out:,} samples of fold {split.fold} "
        "are left out, and nothing is tested"
    )


def _hold_out(state: _Divided, subset: str, share: float) -> None:
    split, train = state.split, state.rows["train"]
    if state.groups is not None:
        cut = hold_out_groups(train, share, state.labels, state.groups, seed=split.seed, subset=subset)
    elif state.times is not None:
        cut = hold_out_latest(train, share, state.times, subset)
    else:
        cut = hold_out(train, share, state.labels, split.seed, subset)
    state.rows["train"], state.rows[subset] = cut


def _say_groups(state: _Divided, groups: Rows) -> None:
    own = {subset: rows for subset, rows in state.rows.items() if subset not in state.given}
    total = sum(len(rows) for rows in own.values())
    shares = ", ".join(
        f"{len(np.unique(groups[rows]))} in {subset} ({100 * len(rows) / total:.1f} % of the samples)"
        for subset, rows in own.items()
        if len(rows)
    )
    state.notes.append(f"data.split.group={state.split.group}: each group is whole in one subset: {shares}")


def _say_times(state: _Divided, times: pd.Series[Any]) -> None:
    spans = []
    for subset in ("train", "val", "test"):
        if subset not in state.given and len(rows := state.rows[subset]):
            own = times.iloc[rows]
            spans.append(f"{subset} from {_text(own.min())} to {_text(own.max())} ({len(rows):,})")
    state.notes.append(f"data.split.time={state.split.time}: {', '.join(spans)}; not stratified")


def _says(data: Data, name: str) -> bool:
    return name in data.split_values or (not isinstance(data, Unfitted) and bool(data.names))


def _text(time: Any) -> str:
    if isinstance(time, pd.Timestamp):
        return time.isoformat(sep=" ").removesuffix(" 00:00:00")
    return f"{time:g}" if isinstance(time, float) else str(time)
