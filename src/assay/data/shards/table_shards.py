"""Rows of a table that is too large for memory, in shards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd
import torch
from typing_extensions import override

from assay.data.core.samples import Samples
from assay.data.shards.shard_stream import ShardSource
from assay.data.table.features import choose_features
from assay.data.table.table_encoder import TableEncoder
from assay.data.table.table_file import FILE_OPTIONS, from_arrow, settle
from assay.data.table.table_source import (
    column_options,
    learned_features,
    may_be_real,
    read_columns,
)
from assay.data.table.table_targets import (
    TableTargets,
    choose_task,
    class_columns,
    parse_targets,
)
from assay.errors import DataError
from assay.task.task_of import infer_task, task_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from assay.data.core.types import Frame, Pair, Rows


_MOST_CATEGORIES = 1000


@final
class TableShards(ShardSource):
    """Rows of Parquet files, of which a window at a time is in memory.

    Columns become numbers as in `assay.data.table.table.Table`; what that needs to know is learned from a
    sample of the training rows; missing values are filled in. Classes are counted over all rows.

    Args:
        path: A folder of .parquet files (also of Hugging Face's `to_parquet`), one such file, or
            a URL of either. Names such as train-00000.parquet or test/0.parquet say which subset a shard is.
        target: As in `Table`.
        features: As in `Table`.
        exclude: As in `Table`.
        keep: As in `Table`.
        categories: As in `Table`.
        day_first: As in `Table`.
        task: As in `Table`.
        val: Share of the rows for validation, where shards do not say.
        test: As `val`.
        seed: Of the division.
        eval_rows: At most so many rows of validation and test each; None: as the shares say. They are in
            memory.
        window: Rows among which the order is drawn; None: by their size, 64 MiB.

    Attributes:
        targets: Columns to predict.
        file_options: How `predict` reads files.
        fitted: As in `Table`.
    """

    def __init__(
        self,
        path: str,
        target: str | Sequence[str] | None,
        *,
        features: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        keep: Sequence[str] = (),
        categories: Sequence[str] = (),
        day_first: bool | None = None,
        task: str = "auto",
        val: float = 0.1,
        test: float = 0.1,
        seed: int = 0,
        eval_rows: int | None = 20_000,
        window: int | None = None,
    ) -> None:
        super().__init__(path, {"val": val, "test": test}, seed, eval_rows, window)
        if task != "auto":
            task_of(task)
        columns = column_options(target, features, exclude, keep, categories)
        self._options = replace(
            columns, streamed=True, day_first=day_first, max_categories=_MOST_CATEGORIES
        )
        self.targets = self._options.targets
        self._asked = task
        self.file_options: dict[str, Any] = FILE_OPTIONS

    @override
    def _choose_columns(self) -> tuple[list[str], list[str]]:
        options = self._options
        names = options.features
        if names is None:
            names = self._reader.schema.names
        if self.fitted is not None:
            names = [column.name for column in self.fitted.columns]
        asked = {"target": self.targets, "features": names, "exclude": options.exclude}
        for option, columns in asked.items():
            self._check_names(columns, option)
        chosen = [
            name for name in dict.fromkeys([*names, *self.targets]) if name not in options.exclude
        ]
        return chosen, chosen

    @override
    def _make_subsets(self, sampled: Mapping[str, Any]) -> Mapping[str, Samples]:
        self._target_forms: dict[str, str] = getattr(self.fitted, "target_forms", {})
        train = self._frame(*sampled["train"])
        if may_be_real(self._asked):
            self.notes += tuple(parse_targets(train, self.targets, self._target_forms))
        frames = {
            name: train if name == "train" else self._frame(*rows)
            for name, rows in sampled.items()
        }
        self.task = choose_task(self._asked, train, self.targets)[0]
        classes = class_columns(self.task, self.targets, train)
        counts = {name: self._count_classes(name, sampled) for name in classes}
        if task_of(self.task).by_class and self._asked == "auto":
            self.task = infer_task(
                is_real=False, num_columns=1, num_classes=len(counts[classes[0]])
            )
        self._encoded = TableTargets(self.task, self.targets, counts)
        self.class_names = self._encoded.class_names
        if task_of(self.task).by_class:
            by_name = {str(value): number for value, number in counts[classes[0]].items()}
            self.stream.class_counts = tuple(by_name[name] for name in self.class_names)
        else:
            self._reader.count(f"{self.task} of {self.targets}", self._check_targets)
        encoder = self.fitted
        if encoder is None:
            options = replace(self._options, split=self.split_columns)
            self._features = choose_features(train, options, self._path)
            self.notes += tuple(self._features.notes)
            encoder = TableEncoder(
                impute=True, max_categories=_MOST_CATEGORIES, features=self._features
            )
            encoder.target_forms = self._target_forms
        else:
            self._features = learned_features(encoder, self._options)
        self._encoder = encoder
        self.stream.columns = [*self._features.names, *self.targets]
        subsets = {}
        for name, frame in frames.items():
            read_columns(frame, self._features)
            targets = self._encode_targets(frame)
            if name == "train" and task_of(self.task).has_real_targets:
                self._encoded.encode(frame)  # refuses numbers that 32 bits cannot tell apart
            raw = frame[self._features.names].reset_index(drop=True)
            subsets[name] = Samples(raw, targets, names=[*map(str, frame.index)], encoder=encoder)
        return subsets

    def _frame(self, table: Any, numbers: Rows) -> Frame:
        frame = settle(from_arrow(table, plain=self.targets)).set_axis(pd.Index(numbers), axis=0)
        parse_targets(frame, [*self._target_forms], self._target_forms)
        return frame

    def _check_targets(self, block: int) -> list[int]:
        """Refuse targets of a block before training, not once their window comes."""
        rows = np.arange(self._reader.rows[block])
        table = self._reader.read(block, rows, self.targets)
        frame = self._frame(table, self._reader.starts[block] + rows)
        for name in self.targets:
            is_lost = frame[name].isna() | frame[name].isin((np.inf, -np.inf))
            if len(missing := frame.index[is_lost]):
                raise DataError(
                    f"data.source.target={name}: no value, or infinity, in row {missing[0]} (rows "
                    "count from 0, over all shards)",
                    hint="write the shards without such rows",
                )
        self._encode_targets(frame)
        return []

    def _encode_targets(self, frame: Frame) -> Tensor:
        # a window's numbers may be alike without any harm
        if task_of(self.task).has_real_targets:
            return torch.from_numpy(frame[self.targets].to_numpy(np.float32, copy=True))
        return self._encoded.encode(frame)

    @override
    def _decode(self, table: Any, numbers: Rows) -> Pair:
        frame = self._frame(table, numbers)
        read_columns(frame, self._features)
        return self._encoder.transform(frame[self._features.names]), self._encode_targets(frame)
