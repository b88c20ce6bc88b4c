"""Samples of shards: how they are divided, a sample of each subset, and the training rows as a stream."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd
import torch

from assay.data.core.source import Source, TrainStream
from assay.data.core.source_files import SUBSET_WORDS, SUBSETS
from assay.data.core.split import parse_subsets
from assay.data.core.transforms import stack
from assay.data.shards.shard_files import ShardReader
from assay.data.table.column import check_columns
from assay.errors import DataError, check_numbers
from assay.quoting import pluralize
from assay.splitmix import mix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.data.core.batch_order import BatchOrder
    from assay.data.core.samples import Samples
    from assay.data.core.transforms import Transforms
    from assay.data.core.types import Pair, Rows, Size, Strings


_WINDOW_BYTES = 1 << 26
_KEPT = 512
"""Blocks for which it is kept which subset each row is in."""
_WINDOW_ROWS = 1 << 16
_SAMPLE_ROWS = 20_000
_SAMPLE_BYTES = 1 << 25
"""Of the training rows, from which columns, encoder and statistics are learned."""


@final
class Division:
    """Which subset each row is in: by its shard's name, by a column, or drawn from some blocks.

    Attributes:
        counts: Rows of each block in training, validation and test, int64 `[blocks, 3]`.
        name: Of the column and how it divides; empty where none does.
        note: How names divide the shards; empty where they do not.
        cut: Subsets that are drawn from the training rows.
    """

    def __init__(
        self,
        reader: ShardReader,
        shares: Mapping[str, float],
        seed: int,
        most: int | None,
        columns: Mapping[str, str],
    ) -> None:
        self._reader = reader
        self._shares = shares
        self._seed = seed
        self._key, self._column = next(iter(columns.items()), ("", ""))
        by_group = self._key.endswith(".group")
        self.name = ""
        if self._column:
            self.name = f"{self._key}={self._column}"
        if by_group:
            self.name += f", {shares}, seed {seed}"
        by_shard = {
            one.name: _subset_of_name(one.name) for one in reader.shards if len(reader.shards) > 1
        }
        names = [reader.shard_of(block).name for block in range(len(reader.rows))]
        self._layout = np.array([by_shard.get(name, 0) for name in names], np.int64)
        self.note = ""
        if self._layout.any():
            if by_group:
                raise DataError(
                    f"{self._key}={self._column}: the names of shards say which subset each is in",
                    hint=f"{self._key}=null",
                )
            tally = np.bincount([*by_shard.values()], minlength=3)
            said = ", ".join(
                f"{number} {name}" for name, number in zip(SUBSETS, tally, strict=True) if number
            )
            self.note = f"data: the names of shards divide them: {said}"
        self._drawn: dict[int, dict[int, int]] = {}
        self._kept: dict[int, NDArray[np.int8]] = {}
        self.counts = np.where(self._layout[:, None] == np.arange(3), reader.rows[:, None], 0)
        if self._column:
            tallies = reader.count(self.name, self.keyed)
            self.counts = np.array(
                [[tally.get(code, 0) for code in range(3)] for tally in tallies]
            )
        totals = self.counts.sum(0)
        self.cut = [code for code in (2, 1) if not (by_group or totals[code])]
        for code in self.cut:
            number = int(totals[0] * shares[SUBSETS[code]])
            for block, some in self._spread(0, number if most is None else min(most, number)):
                self._drawn.setdefault(block, {})[code] = some
                self.counts[block, [0, code]] += [-some, some]

    def _spread(self, code: int, number: float) -> list[Size]:
        """Blocks over all, and how many rows of each make up a number, in proportion to those of a subset."""
        blocks = self._reader.spread(number, self.counts[:, code])
        available = self.counts[blocks, code]
        ends = np.cumsum(available) * (
            min(number, int(available.sum())) / max(1, available.sum())
        )
        return [
            *zip(blocks, np.diff(np.round(ends).astype(int), prepend=0).tolist(), strict=True)
        ]

    def draw(self, name: str, most: int | None) -> dict[int, Rows]:
        """Rows of a subset by block, spread over all blocks; all of them where there are no more."""
        drawn: dict[int, Rows] = {}
        code = SUBSETS.index(name)
        for block, some in self._spread(code, np.inf if most is None else most):
            rows = np.flatnonzero(self.codes(block) == code)
            draws = np.random.default_rng(mix(self._seed, block, code))
            drawn[block] = np.sort(draws.permutation(rows)[:some])
        return {block: rows for block, rows in drawn.items() if len(rows)}

    def codes(self, block: int) -> NDArray[np.int8]:
        """The subset of each row of a block, by its place in `SUBSETS`."""
        if block not in self._kept:
            if len(self._kept) == _KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[block] = codes = self.keyed(block)
            rows = np.random.default_rng(mix(self._seed, block)).permutation(
                np.flatnonzero(codes == 0)
            )
            for code, number in self._drawn.get(block, {}).items():
                codes[rows[:number]] = code
                rows = rows[number:]
        return self._kept[block]

    def keyed(self, block: int) -> NDArray[np.int8]:
        """The same, before any are drawn."""
        if not self._column or self._layout[block]:
            return np.full(self._reader.rows[block], self._layout[block], np.int8)
        values = self._reader.read_column(block, self._column, self._key)
        if self._key.endswith(".column"):
            subsets = parse_subsets(values, self._key, self._column)
            return np.array([SUBSETS.index(name) for name in subsets], np.int8)
        texts = values.astype(str).to_numpy(object)
        places = pd.util.hash_array(texts, hash_key=f"{mix(self._seed):016x}"[:16]) / 2.0**64
        test = self._shares["test"]
        return np.select([places < test, places < test + self._shares["val"]], [2, 1]).astype(
            np.int8
        )


def _subset_of_name(name: str) -> int:
    """Of a shard such as train/0.parquet, my_test-00000-of-00002.parquet or val.parquet; else training."""
    words = re.split(r"[-_./]", name.casefold())
    return next((SUBSETS.index(SUBSET_WORDS[word]) for word in words if word in SUBSET_WORDS), 0)


@final
class ShardStream(TrainStream):
    """The training rows of a data set in shards, never more than a window of which is in memory.

    Attributes:
        num_samples: How many.
        class_counts: Of each class; empty where there are none.
        digest: SHA-256 over those of the shards.
        window: Rows among which the order is drawn.
        columns: That are read.
        row_bytes: Of a row before it is decoded.
    """

    # Blocks follow each other in an order that is drawn for each epoch, and so do the rows of each window of
    # as many batches as fit. All of it is a function of (seed, epoch) and of how many samples a step has.

    def __init__(
        self,
        reader: ShardReader,
        division: Division,
        columns: Sequence[str],
        decode: Callable[[Any, Rows], tuple[Any, Tensor]],
        *,
        window: int,
        row_bytes: int,
    ) -> None:
        self._reader = reader
        self._division = division
        self._decode = decode
        self.row_bytes = row_bytes
        self.columns = list(columns)
        self.window = window
        self.digest = reader.digest
        self.class_counts: tuple[int, ...] = ()
        self._counts = division.counts[:, 0]
        self.num_samples = int(self._counts.sum())
        self._last_window: tuple[Any, Any] = (None, None)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last_window": (None, None)}

    def steps_per_window(self, order: BatchOrder) -> int:
        """Batches of all ranks together whose samples are drawn from one window."""
        return max(1, self.window // (order.batch_size * order.world_size))

    def _positions(
        self, order: BatchOrder, epoch: int, first: int, count: int
    ) -> tuple[int, int, Rows]:
        """Where a window starts and ends, and which positions within it make up batches of this rank."""
        step = order.batch_size * order.world_size
        steps = self.steps_per_window(order)
        start = first // steps * steps * step
        end = min(start + steps * step, len(order) * step, order.num_samples)
        drawn = np.arange(end - start)
        if order.shuffle:
            drawn = np.random.default_rng(mix(order.seed, epoch, start + 1)).permutation(drawn)
        mine = slice(
            first * step - start + order.rank, (first + count) * step - start, order.world_size
        )
        return start, end, drawn[mine]

    def rows(self, order: BatchOrder, epoch: int, first: int, count: int = 1) -> Rows:
        """Numbers of the rows that make up batches, counted over all shards."""
        start, _, mine = self._positions(order, epoch, first, count)
        numbers = np.empty(len(mine), np.int64)
        for block, at, rows in self._by_block(order, epoch, start + mine):
            numbers[at] = self._reader.starts[block] + rows
        return numbers

    def _by_block(
        self, order: BatchOrder, epoch: int, positions: Rows
    ) -> Iterator[tuple[int, Rows, Rows]]:
        """For each block: which of the positions lie in it, and at which of its rows, ascending."""
        blocks = np.flatnonzero(self._counts)
        if order.shuffle:
            blocks = np.random.default_rng(mix(order.seed, epoch)).permutation(blocks)
        ends = np.cumsum(self._counts[blocks])
        places = np.searchsorted(ends, positions, side="right")
        by_position = np.argsort(positions)
        for place in np.unique(places):
            block = int(blocks[place])
            at = by_position[places[by_position] == place]
            rows = positions[at] - (ends[place] - self._counts[block])
            if self._counts[block] < self._reader.rows[block]:
                rows = np.flatnonzero(self._division.codes(block) == 0)[rows]
            yield block, at, rows

    def _table(self, order: BatchOrder, epoch: int, positions: Rows) -> tuple[Any, Rows]:
        """The rows at some positions, in their order, and their numbers."""
        import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types

        found = [*self._by_block(order, epoch, positions)]
        table = self._reader.read_all([(block, rows) for block, _, rows in found], self.columns)
        back = np.argsort(np.concatenate([at for _, at, _ in found]))
        numbers = np.concatenate([self._reader.starts[block] + rows for block, _, rows in found])
        return table.take(pa.array(back)), numbers[back]

    def batches(
        self, order: BatchOrder, epoch: int, first: int, count: int, transforms: Transforms
    ) -> list[Pair]:
        """Batches of this rank that lie in one window."""
        start, end, mine = self._positions(order, epoch, first, count)
        if self._reader.is_random:
            table, numbers = self._table(order, epoch, start + mine)
        else:  # read from its beginning, so the next batches need not be found again
            if self._last_window[0] != (key := (order, epoch, start)):
                self._last_window = (None, None)  # before the next one is read
                self._last_window = key, self._table(order, epoch, np.arange(start, end))
            table, numbers = self._last_window[1]
            table = table.take(mine)
            numbers = numbers[mine]
        inputs, targets = self._decode(table, numbers)
        if isinstance(inputs, torch.Tensor):
            inputs, targets = transforms.pairs(
                inputs, targets, order.seed, epoch, torch.from_numpy(numbers)
            )
        else:
            keyed = zip(inputs, targets, numbers.tolist(), strict=True)
            pairs = [
                transforms.pair(one, target, (order.seed, epoch, row))
                for one, target, row in keyed
            ]
            inputs, targets = map(stack, map(list, zip(*pairs, strict=True)))
        size = order.batch_size
        return [
            (inputs[at : at + size], targets[at : at + size])
            for at in range(0, len(inputs), size)
        ]


class ShardSource(Source):
    """Reads the index, and a sample of each subset; the training rows come as a stream.

    Attributes:
        notes: What was decided, a sentence each; there after `read()`.
        split_columns: As in `assay.data.table.table.Table`: `data.split.group` divides by the hash of a
            column's values, `data.split.column` by what it says.
        stream: The training rows; there after `read()`.
    """

    notes: tuple[str, ...] = ()
    stream: ShardStream

    def __init__(
        self,
        path: str,
        shares: Mapping[str, float],
        seed: int,
        eval_rows: int | None,
        window: int | None,
    ) -> None:
        check_numbers("[1, inf)", eval_rows=eval_rows, window=window)
        check_numbers("[0, 1)", **shares)
        self._path = path
        self._shares = shares
        self._seed = seed
        self._eval_rows = eval_rows
        self._window = window
        self.task: str = "multiclass"

    @abstractmethod
    def _choose_columns(self) -> tuple[list[str], list[str]]:
        """The columns that are read of training rows, and of those that are evaluated on."""

    @abstractmethod
    def _make_subsets(self, sampled: Mapping[str, tuple[Any, Rows]]) -> Mapping[str, Samples]:
        """The subsets, given rows of each and their numbers."""

    @abstractmethod
    def _decode(self, table: Any, numbers: Rows) -> tuple[Any, Tensor]:
        """Inputs, as one tensor or as a list, and targets of rows."""

    def read(self) -> Mapping[str, Samples]:
        """A sample of the training rows, which stand for them all, and the subsets that are evaluated on."""
        self._reader = reader = ShardReader(self._path)
        for key, name in self.split_columns.items():
            if key == "data.split.time":
                raise DataError(
                    f"{key}={name}: shards are not in order of time", hint=f"{key}=null"
                )
            self._check_names([name], key)
        division = Division(reader, self._shares, self._seed, self._eval_rows, self.split_columns)
        self._division = division
        self.notes = tuple(filter(None, (reader.note, division.note)))
        trained, evaluated = self._choose_columns()
        size = max(1, sum(shard.num_bytes for shard in reader.shards) // int(reader.rows.sum()))
        window = self._window or _WINDOW_ROWS
        if not (self._window or reader.is_random):
            window = min(window, max(64, _WINDOW_BYTES // size))
        self.stream = ShardStream(
            reader, division, trained, self._decode, window=window, row_bytes=size
        )
        sampled = {}
        counts = dict(zip(SUBSETS, division.counts.sum(0).tolist(), strict=True))
        asked = dict.fromkeys(SUBSETS, (self._eval_rows, evaluated))
        asked["train"] = min(_SAMPLE_ROWS, max(32, _SAMPLE_BYTES // size)), trained
        for name, (most, columns) in asked.items() if counts["train"] else ():
            if drawn := division.draw(name, most):
                table = reader.read_all(drawn.items(), columns)
                numbers = np.concatenate(
                    [reader.starts[block] + rows for block, rows in drawn.items()]
                )
                sampled[name] = table, numbers
                if name != "train" and len(numbers) < counts[name]:
                    self.notes += (
                        f"data.source.eval_rows={self._eval_rows}: {len(numbers):,} of {counts[name]:,} in "
                        f"{name} are used; data.source.eval_rows=null takes them all",
                    )
        if not sampled:
            raise DataError(
                f"data.source.path={self._path}: no row is for training",
                hint="lower data.source.val and data.source.test",
            )
        self.notes += (
            f"data: {counts['train']:,} training samples are streamed from "
            f"{pluralize(len(reader.shards), 'shard')}, shuffled within windows of {window:,}; statistics of "
            f"them are of {len(sampled['train'][1]):,}",
        )
        subsets = self._make_subsets(sampled)
        if not reader.is_random:  # samples of tars may differ in what is said of them
            reader.check_columns(self.stream.columns)
        return subsets

    def _count_classes(
        self, name: str, sampled: Mapping[str, tuple[Any, Rows]]
    ) -> dict[Any, int]:
        """How many training rows each value of a column has; of others, which are in samples alone, 0."""
        division = self._division
        totals = self._reader.count_classes(
            name, f" in train by {division.name}", lambda block: division.keyed(block) == 0
        )
        for code in (1, 2):
            if SUBSETS[code] in sampled:
                values = sampled[SUBSETS[code]][0].column(name).to_pylist()
                for value, number in Counter(values).items():
                    totals[value] -= number * (code in division.cut)
        return totals

    def _check_names(self, names: Strings, option: str) -> None:
        """Refuse names of columns that shards do not have."""
        check_columns(self._reader.schema.names, names, self._path, option)
