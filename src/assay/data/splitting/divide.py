"""Which samples are in which subset, as `data.split` asks for it, and what there is to say about that."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd

from assay.data.samples import Unfitted
from assay.data.splitting.folds import cut_fold
from assay.data.splitting.hold_out_by import hold_out_groups, hold_out_latest
from assay.data.splitting.split_rows import hold_out
from assay.data.splitting.split_values import groups_of, subsets_of, times_of, values_of
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from assay.data.samples import Samples, Stream
    from assay.data.splitting.split_rows import Split

    Rows = NDArray[np.int64]
    Data = Samples | Stream | Unfitted


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
    """Divide samples into train, val and test.

    Args:
        whole: What is divided.
        given: Subsets of its own that the source has.
        split: How.
        labels: Class of each sample of `whole`; None for other tasks.
        class_names: For messages.

    Returns:
        Rows of `whole`, or of the subsets given, in each subset, ascending; and a sentence for each choice.

    Raises:
        DataError: The samples cannot be divided so.
    """
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
