"""Samples for a model that is trained, divided as its run's were where they are those."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from assay.data.splitting.split_columns import ask_for_columns
from assay.data.splitting.splits import Splits, read_splits
from assay.errors import DataError

if TYPE_CHECKING:
    from assay.data.samples import Source
    from assay.data.splitting.split_rows import Split
    from assay.data.trained import Trained


def read_for_trained(
    source: Source,
    split: Split,
    thin_classes: float | None,
    trained: Trained,
    *,
    asked: str | None,
    digest: str,
    whole: bool,
) -> Splits:
    """Read a source and divide it as its run did, or take other samples as a whole.

    Args:
        source: Of the run's data, or of other data.
        split: Of the run.
        thin_classes: Of the run.
        trained: What the run knows of its data.
        asked: The task, where it is not the source's own.
        digest: Of the run's data.
        whole: Other samples are taken as a whole, where the source would cut them (its `divides`).

    Raises:
        DataError: The model does not take the samples.
    """

    def read(by: Split) -> Splits:
        return read_splits(source, by, thin_classes, trained, asked=asked)

    joins = whole and bool(getattr(source, "divides", False))
    ask_for_columns(source, split)
    try:
        splits = read(split)
        is_other = joins and splits.digest != digest
    except DataError:
        if not (split.columns or joins):
            raise
        ask_for_columns(source, replace(split, group=None, time=None, column=None))
        is_other = True
    if is_other:
        if hasattr(source, "divides"):
            source.divides = False
        splits = read(split)
    if split.folds and splits.digest != digest:  # folds of other samples are of no use
        splits = read(replace(split, folds=None, fold=None, inner_folds=None, inner_fold=None))
    return splits
