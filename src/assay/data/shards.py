"""Samples of shards: how they are divided, a sample of each subset, and the training rows as a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pandas as pd
import torch

from assay.data.shard_files import ShardReader
from assay.data.subset import parse_subsets
from assay.data.tabular.column_kind import check_columns
from assay.data.transforms import stack
from assay.errors import DataError, check_numbers
from assay.quoting import pluralize
from assay.splitmix import mix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.data.batch_order import BatchOrder
    from assay.data.samples import Stream, Unfitted
    from assay.data.transforms import Transforms

    Rows = NDArray[np.int64]

SUBSETS: Final = ("train", "val", "test")
_FOLDERS: Final = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "test": 2, "testing": 2}
_WINDOW_BYTES: Final = 1 << 26
_KEPT: Final = 64
"""Blocks for which it is kept which subset each row is in."""
_WINDOW_ROWS: Final = 1 << 16
_SAMPLE_ROWS: Final = 20_000
"""Of the training rows, from which columns, encoder and statistics are learned."""


@final
class Division:
    """Which subset each row is in: by its shard's name, by a column, or drawn from some blocks.

    Attributes:
        layout: Of each block, by the name of its shard.
        counts: Rows of each block in training, validation and test, int64 `[blocks, 3]`.
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
        self._reader, self._shares, self._seed, self._most = reader, shares, seed, most
        names = [reader.shard_of(block).name for block in range(len(reader.rows))]
        self.layout = np.array([_subset_of_name(name) for name in names])
        self.key, self.column = next(iter(columns.items()), ("", ""))
        self._drawn: dict[int, dict[int, int]] = {}
        self._kept: dict[int, NDArray[np.int8]] = {}
        self.counts = np.zeros((len(reader.rows), 3), np.int64)
        if self.column:
            keyed = reader.count(self.name, [self.column], lambda block, _: self.keyed(block))
            for block, tally in enumerate(keyed.blocks):
                for place, number in tally.items():
                    self.counts[block, int(keyed.values[place])] = number
        else:
            self.counts[np.arange(len(reader.rows)), self.layout] = reader.rows
        by_group = self.key.endswith(".group")
        self.cut = [] if by_group else [name for name in ("test", "val") if not self._rows(name)]
        total = self._rows("train")
        for name in self.cut:
            number = int(total * shares[name])
            self._cut(SUBSETS.index(name), number if most is None else min(most, number))
        self._kept.clear()

    @property
    def name(self) -> str:
        """What a count by subset is called in the index."""
        shares = f", {self._shares}, seed {self._seed}" if self.key.endswith(".group") else ""
        return f"{self.key}={self.column}{shares}"

    def _rows(self, name: str) -> int:
        return int(self.counts[:, SUBSETS.index(name)].sum())

    def _cut(self, code: int, number: int) -> None:
        if not number:
            return
        blocks = self._reader.spread(number, self.counts[:, 0])
        for block, some in zip(blocks, _quotas(self.counts[blocks, 0], number), strict=True):
            self._drawn.setdefault(block, {})[code] = some
            self.counts[block, 0] -= some
            self.counts[block, code] += some

    def codes(self, block: int) -> NDArray[np.int8]:
        """The subset of each row of a block, by its place in `SUBSETS`."""
        if block not in self._kept:
            if len(self._kept) == _KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[block] = self._find_codes(block)
        return self._kept[block]

    def _find_codes(self, block: int) -> NDArray[np.int8]:
        codes = self.keyed(block)
        if drawn := self._drawn.get(block):
            rows = np.random.default_rng(mix(self._seed, block)).permutation(np.flatnonzero(codes == 0))
            for code, number in drawn.items():
                codes[rows[:number]], rows = code, rows[number:]
        return codes

    def keyed(self, block: int) -> NDArray[np.int8]:
        """The same, before any are drawn."""
        codes = np.full(self._reader.rows[block], self.layout[block], np.int8)
        if not self.column:
            return codes
        values = self._reader.read(block, np.arange(len(codes)), [self.column]).column(0).to_pandas()
        if missing := int(values.isna().sum()):
            shard = self._reader.shard_of(block).name
            raise DataError(f"{self.key}={self.column}: {missing:,} rows of {shard} have no value")
        return self._codes_of(values)

    def _codes_of(self, values: pd.Series[Any]) -> NDArray[np.int8]:
        if self.key.endswith(".column"):
            subsets = parse_subsets(values, self.key, self.column)
            return np.array([SUBSETS.index(name) for name in subsets], np.int8)
        texts = values.astype(str).to_numpy(object)
        shares = pd.util.hash_array(texts, hash_key=f"{mix(self._seed):016x}"[:16]) / 2.0**64
        test, val = self._shares["test"], self._shares["val"]
        return np.where(shares < test, 2, np.where(shares < test + val, 1, 0)).astype(np.int8)

    def draw(self, name: str, most: int | None) -> dict[int, Rows]:
        """Rows of a subset by block, spread over all blocks; all of them where there are no more."""
        code = SUBSETS.index(name)
        available = self.counts[:, code]
        number = int(available.sum()) if most is None else min(most, int(available.sum()))
        blocks = self._reader.spread(number, available) if number else []
        drawn = {}
        for block, some in zip(blocks, _quotas(available[blocks], number), strict=True):
            rows = np.flatnonzero(self.codes(block) == code)
            drawn[block] = np.sort(
                np.random.default_rng(mix(self._seed, block, code)).permutation(rows)[:some]
            )
        return drawn


def _quotas(available: Rows, number: int) -> list[int]:
    """How many of each block make up a number, in proportion."""
    shares = np.cumsum(available) * (min(number, int(available.sum())) / max(1, available.sum()))
    quotas: list[int] = np.diff(np.round(shares).astype(int), prepend=0).tolist()
    return quotas


def _subset_of_name(name: str) -> int:
    """Of a shard such as train/0.parquet or test-00000-of-00002.arrow."""
    words = [*PurePosixPath(name).parts[:-1], PurePosixPath(name).name.split("-")[0]]
    return next((_FOLDERS[word] for word in words if word in _FOLDERS), 0)


@final
class ShardStream:
    """The training rows of a data set in shards, never more than a window of which is in memory.

    Attributes:
        num_samples: How many.
        class_counts: Of each class; empty where there are none.
        digest: SHA-256 over those of the shards.
        window: Rows among which the order is drawn.
        columns: That are read.
    """

    # Blocks follow each other in an order that is drawn for each epoch, and so do the rows of each window of
    # as many batches as fit. All of it is a function of (seed, epoch) and of how many samples a step has.

    def __init__(
        self,
        reader: ShardReader,
        division: Division,
        columns: Sequence[str],
        decode: Callable[[Any, Rows], tuple[Any, Tensor]],
        window: int,
    ) -> None:
        self._reader, self._division, self._decode = reader, division, decode
        self.columns = list(columns)
        self.window, self.digest = window, reader.digest
        self.class_counts: tuple[int, ...] = ()
        self._counts = division.counts[:, 0]
        self.num_samples = int(self._counts.sum())
        self._last_window: tuple[Any, Any] = (None, None)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last_window": (None, None)}

    def _order_blocks(self, order: BatchOrder, epoch: int) -> tuple[Rows, Rows]:
        """Blocks in the order of an epoch, and the position at which each one ends."""
        blocks = np.flatnonzero(self._counts)
        if order.shuffle:
            blocks = np.random.default_rng(mix(order.seed, epoch)).permutation(blocks)
        return blocks, np.cumsum(self._counts[blocks])

    def steps_per_window(self, order: BatchOrder) -> int:
        """Batches of all ranks together whose samples are drawn from one window."""
        return max(1, self.window // (order.batch_size * order.world_size))

    def _positions(self, order: BatchOrder, epoch: int, first: int, count: int) -> tuple[int, int, Rows]:
        """Where a window starts and ends, and which positions within it make up batches of this rank."""
        step, steps = order.batch_size * order.world_size, self.steps_per_window(order)
        start = first // steps * steps * step
        end = min(start + steps * step, len(order) * step)
        drawn = np.arange(end - start)
        if order.shuffle:
            drawn = np.random.default_rng(mix(order.seed, epoch, start + 1)).permutation(drawn)
        mine = slice(first * step - start + order.rank, (first + count) * step - start, order.world_size)
        return start, end, drawn[mine]

    def rows(self, order: BatchOrder, epoch: int, first: int, count: int = 1) -> Rows:
        """Numbers of the rows that make up batches, counted over all shards."""
        start, _, mine = self._positions(order, epoch, first, count)
        return self._number(order, epoch, start + mine)

    def _number(self, order: BatchOrder, epoch: int, positions: Rows) -> Rows:
        numbers = np.empty(len(positions), np.int64)
        for block, at, rows in self._by_block(order, epoch, positions):
            numbers[at] = self._reader.starts[block] + rows
        return numbers

    def _by_block(self, order: BatchOrder, epoch: int, positions: Rows) -> Iterator[tuple[int, Rows, Rows]]:
        """For each block: which of the positions lie in it, and at which of its rows, ascending."""
        blocks, ends = self._order_blocks(order, epoch)
        places = np.searchsorted(ends, positions, side="right")
        by_position = np.argsort(positions)
        for place in np.unique(places):
            block = int(blocks[place])
            at = by_position[places[by_position] == place]
            rows = positions[at] - (ends[place] - self._counts[block])
            if self._counts[block] < self._reader.rows[block]:
                rows = np.flatnonzero(self._division.codes(block) == 0)[rows]
            yield block, at, rows

    def _table(self, order: BatchOrder, epoch: int, positions: Rows) -> Any:
        """The rows at some positions, in their order."""
        import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types

        found = [*self._by_block(order, epoch, positions)]
        table = pa.concat_tables([self._reader.read(block, rows, self.columns) for block, _, rows in found])
        back = np.argsort(np.concatenate([at for _, at, _ in found]))
        return table.take(pa.array(back))

    def _window(self, order: BatchOrder, epoch: int, start: int, end: int) -> Any:
        key = order, epoch, start
        if self._last_window[0] != key:
            self._last_window = (None, None)  # before the next one is read
            self._last_window = key, self._table(order, epoch, np.arange(start, end))
        return self._last_window[1]

    def batches(
        self, order: BatchOrder, epoch: int, first: int, count: int, transforms: Transforms
    ) -> list[tuple[Tensor, Tensor]]:
        """Batches of this rank that lie in one window."""
        start, end, mine = self._positions(order, epoch, first, count)
        if self._reader.is_random:
            table = self._table(order, epoch, start + mine)
        else:  # read from its beginning, so the next batches need not be found again
            table = self._window(order, epoch, start, end).take(mine)
        numbers = self._number(order, epoch, start + mine)
        inputs, targets = self._decode(table, numbers)
        if isinstance(inputs, torch.Tensor):
            inputs, targets = transforms.pairs(inputs, targets, order.seed, epoch, torch.from_numpy(numbers))
        else:
            keyed = zip(inputs, targets, numbers.tolist(), strict=True)
            pairs = [transforms.pair(one, target, (order.seed, epoch, key)) for one, target, key in keyed]
            inputs, targets = stack([one for one, _ in pairs]), torch.stack([target for _, target in pairs])
        size = order.batch_size
        return [(inputs[at : at + size], targets[at : at + size]) for at in range(0, len(inputs), size)]


class ShardSource(ABC):
    """Reads the index, and a sample of each subset; the training rows come as a stream.

    Attributes:
        notes: What was decided, a sentence each; there after `read()`.
        split_columns: As in `assay.data.table.Table`: `data.split.group` divides by the hash of a column's
            values, `data.split.column` by what it says.
        stream: The training rows; there after `read()`.
    """

    stream: ShardStream

    def __init__(
        self, path: str, shares: Mapping[str, float], seed: int, eval_rows: int | None, window: int | None
    ) -> None:
        check_numbers("[1, inf)", eval_rows=eval_rows or 1, window=window or 1)
        self._path, self._shares, self._seed = path, shares, seed
        self._eval_rows, self._window_rows = eval_rows, window
        self.task: str = "multiclass"
        self.class_names: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()
        self.split_columns: Mapping[str, str] = {}

    @abstractmethod
    def _choose_columns(self, reader: ShardReader) -> dict[str, list[str]]:
        """The columns that are read of training rows, and of those that are evaluated on."""

    @abstractmethod
    def _make_subsets(self, sampled: Mapping[str, tuple[Any, Rows]]) -> Mapping[str, Stream | Unfitted]:
        """The subsets, given rows of each and their numbers."""

    @abstractmethod
    def _decode(self, table: Any, numbers: Rows) -> tuple[Any, Tensor]:
        """Inputs, as one tensor or as a list, and targets of rows."""

    def read(self) -> Mapping[str, Stream | Unfitted]:
        """A sample of the training rows, which stand for them all, and the subsets that are evaluated on."""
        self._reader = reader = ShardReader(self._path)
        self.notes = (reader.note,) if reader.note else ()
        for key, name in self.split_columns.items():
            if key == "data.split.time":
                raise DataError(
                    f"{key}={name}: a stream is not in order of time", hint="data.split.column=COLUMN"
                )
            check_names(reader.columns, [name], self._path, key)
        self._division = Division(reader, self._shares, self._seed, self._eval_rows, self.split_columns)
        columns = self._choose_columns(reader)
        sampled = {name: self._sample(name, columns[name]) for name in SUBSETS}
        subsets = self._make_subsets({name: one for name, one in sampled.items() if len(one[1])})
        self._note_sizes({name: len(numbers) for name, (_, numbers) in sampled.items()})
        return subsets

    def _sample(self, name: str, columns: Sequence[str]) -> tuple[Any, Rows]:
        import pyarrow as pa

        most = self._eval_rows
        if name == "train":
            each = max(
                1, sum(shard.num_bytes for shard in self._reader.shards) // int(self._reader.rows.sum())
            )
            most = min(_SAMPLE_ROWS, max(256, _WINDOW_BYTES // each))
            window = self._window_rows or min(_WINDOW_ROWS, max(1024, _WINDOW_BYTES // each))
            self.stream = ShardStream(self._reader, self._division, columns, self._decode, window)
        drawn = self._division.draw(name, most)
        tables = [self._reader.read(block, rows, columns) for block, rows in drawn.items() if len(rows)]
        numbers = [self._reader.starts[block] + rows for block, rows in drawn.items()]
        return pa.concat_tables(tables) if tables else None, np.concatenate([np.empty(0, np.int64), *numbers])

    def _count_classes(self, name: str, sampled: Mapping[str, tuple[Any, Rows]]) -> dict[Any, int]:
        """How many training rows each value of a column has; of others, which are in samples alone, 0."""
        division = self._division
        if division.column:
            where = f" of training by {division.name}"
            choose = lambda block: division.keyed(block) == 0  # noqa: E731 - one line of two branches
            counted = self._reader.count_classes(name, [division.column], where, choose)
        else:
            counted = self._reader.count_classes(name)
        totals = dict.fromkeys(counted.values, 0)
        for block, tally in enumerate(counted.blocks):
            if division.column or not division.layout[block]:
                for place, number in tally.items():
                    totals[counted.values[place]] += number
        for subset in ("val", "test"):
            if subset in sampled:
                counts = sampled[subset][0].column(name).to_pandas().value_counts()
                for value, number in counts.items():
                    totals[value] = totals.get(value, 0) - (int(number) if subset in division.cut else 0)
        return totals

    def _note_sizes(self, sampled: Mapping[str, int]) -> None:
        counts = dict(zip(SUBSETS, self._division.counts.sum(0).tolist(), strict=True))
        shards = pluralize(len(self._reader.shards), "shard")
        self.notes += (
            f"data: {counts['train']:,} training samples are streamed from {shards}, shuffled within windows "
            f"of {self.stream.window:,}; statistics of them are of {sampled['train']:,}",
        )
        for name in ("val", "test"):
            if counts[name] > sampled[name]:
                self.notes += (
                    f"data.source.eval_rows={self._eval_rows}: {sampled[name]:,} of {counts[name]:,} samples "
                    f"in {name} are used; data.source.eval_rows=null takes them all",
                )


def check_names(known: Sequence[str], names: Sequence[str], path: str, option: str) -> None:
    """Refuse names of columns that shards do not have."""
    check_columns(pd.DataFrame(columns=list(known)), names, path, option)
