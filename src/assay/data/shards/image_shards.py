"""Images that are too many for memory, in shards."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import torch
from typing_extensions import override

from assay.data.core.samples import LazyDataset, Samples
from assay.data.image.decode import ImageSize, MaxValue, decode, largest_value, verify
from assay.data.image.image_source import DecodedImages
from assay.data.shards.shard_files import USUAL_IMAGES, USUAL_TARGETS, find_column
from assay.data.shards.shard_stream import ShardSource
from assay.errors import DataError
from assay.task.task_of import infer_task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from assay.data.core.types import Pair, Rows


@final
class ImageShards(ShardSource, DecodedImages):
    """Images and their classes in tars of WebDataset or Parquet files; a window at a time is read.

    Args:
        path: A folder of .tar or .parquet files (also of Hugging Face's `to_parquet`), one such
            file, or a URL of either. In a tar, an image such as 0017.jpg has a 0017.cls or 0017.json beside
            it. Names such as train-00000.tar or test/0.tar say which subset a shard is.
        image: The column of encoded images; `auto`: by its usual names.
        target: The column of classes, in a tar `cls` or a key of its JSON; `auto`: by its usual names.
        image_size: As in `assay.data.image.image_folder.ImageFolder`.
        mode: As in `ImageFolder`.
        max_value: As in `ImageFolder`; `auto` looks at a sample of the training images.
        val: As in `assay.data.shards.table_shards.TableShards`.
        test: As in `TableShards`.
        seed: As in `TableShards`.
        eval_rows: As in `TableShards`; these images are read when they are needed.
        window: As in `TableShards`.

    Attributes:
        mode: As given.
        image_size: As given; what `auto` came to after `read()`.
        max_value: As `image_size`.
        auto_size: Whether that was asked for.
    """

    def __init__(
        self,
        path: str,
        image: str = "auto",
        target: str = "auto",
        *,
        image_size: ImageSize = None,
        mode: Literal["RGB", "GRAY"] = "RGB",
        max_value: MaxValue = None,
        val: float = 0.1,
        test: float = 0.1,
        seed: int = 0,
        eval_rows: int | None = 20_000,
        window: int | None = None,
    ) -> None:
        super().__init__(path, {"val": val, "test": test}, seed, eval_rows, window)
        self._set_decoding(mode, image_size, max_value)
        self._image = image
        self._target = target

    @override
    def _choose_columns(self) -> tuple[list[str], list[str]]:
        self._column = find_column(self._reader, "image", self._image, USUAL_IMAGES)
        self._label = find_column(self._reader, "target", self._target, USUAL_TARGETS)
        return [self._column, self._label], [self._label]

    @override
    def _make_subsets(self, sampled: Mapping[str, Any]) -> Mapping[str, Samples]:
        counts = self._count_classes(self._label, sampled)
        values = sorted(counts, key=str if len({*map(type, counts)}) > 1 else None)
        self.class_names = self._name_classes(values)
        self.stream.class_counts = tuple(counts[value] for value in values)
        self._codes = {value: code for code, value in enumerate(values)}
        self.task = infer_task(is_real=False, num_columns=1, num_classes=len(values))
        contents = self._contents(sampled["train"][0])
        numbered = zip(sampled["train"][1].tolist(), contents, strict=True)
        sizes = (self._look(verify, *one) for one in numbered)
        self._choose_decoding(sizes, map(largest_value, contents))
        subsets = {}
        for name, (table, numbers) in sampled.items():
            targets = self._targets(table)
            reader = partial(
                self._read_sample, numbers, contents if name == "train" else None, targets
            )
            names = [*map(str, numbers)]
            subsets[name] = Samples(LazyDataset(len(names), reader), targets, names=names)
        return subsets

    def _name_classes(self, values: Sequence[Any]) -> tuple[str, ...]:
        """Classes by their names where Hugging Face's data sets keep these; else as they stand there."""
        with suppress(KeyError, TypeError, ValueError, IndexError):
            features = json.loads(self._reader.schema.metadata[b"huggingface"])["info"][
                "features"
            ]
            return tuple(str(features[self._label]["names"][value]) for value in values)
        return tuple(map(str, values))

    def _targets(self, table: Any) -> Tensor:
        return torch.tensor(
            [self._codes[value] for value in table.column(self._label).to_pylist()]
        )

    def _contents(self, table: Any) -> list[bytes]:
        values = table.column(self._column).to_pylist()
        return [value["bytes"] if isinstance(value, dict) else value for value in values]

    def _look(self, read: Any, number: int, content: bytes | None = None) -> Any:
        """What a function makes of a row's image, which is read unless it is given."""
        block = int(np.searchsorted(self._reader.starts, number, side="right")) - 1
        row = number - self._reader.starts[block]
        if content is None:
            content = self._contents(self._reader.read(block, np.array([row]), [self._column]))[0]
        try:
            return read(content)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"data.source.path={self._path}: row {number} (rows count from 0, over all shards) of "
                f"{self._reader.shard_of(block).name}, cannot be read as an image: {error}",
                hint="write the shards without it",
            ) from error

    def _read_sample(
        self, numbers: Rows, contents: Sequence[bytes] | None, targets: Tensor, index: int
    ) -> Pair:
        return self.image(int(numbers[index]), contents[index] if contents else None), targets[
            index
        ]

    def image(self, number: int, content: bytes | None = None) -> Tensor:
        """A row's image, uint8 `[C, H, W]`."""
        image: Tensor = self._look(lambda one: decode(one, *self.decoding), number, content)
        return image

    @override
    def _decode(self, table: Any, numbers: Rows) -> tuple[list[Tensor], Tensor]:
        pairs = zip(numbers.tolist(), self._contents(table), strict=True)
        return [self.image(*pair) for pair in pairs], self._targets(table)
