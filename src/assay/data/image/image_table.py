"""A file of a table with a column that names images, and what is to be predicted of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import pandas as pd
import torch
from typing_extensions import override

from assay.data.image.decode import ImageSize, MaxValue  # noqa: TC001 - of values that are checked
from assay.data.image.image_source import IMAGE_SUFFIXES, ImageFile, ImageSource
from assay.data.table.category import Text
from assay.data.table.table_file import AUTO, find_options, table_chunks
from assay.data.table.table_source import TableSource, column_options
from assay.quoting import join_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from assay.data.core.samples import Samples


_ROWS = 1 << 15


@final
class ImageTable(ImageSource):
    """Images that the rows of a table name, each with a class, labels, numbers or several of these.

    Images are read as by `assay.data.image.image_folder.ImageFolder`, targets as by
    `assay.data.table.table.Table`. Rows that name no image are left out, as are those without a target.

    Args:
        path: As for `Table`.
        image: Column of file names, relative to `root` or absolute; the suffix may be missing.
        target: Column to predict, or several, as for `Table`.
        root: Folder of the images; None: the folder of the table.
        test_path: As for `Table`, and so are the options of files.
        task: As for `Table`.
        image_size: As for `ImageFolder`.
        mode: As for `ImageFolder`.
        in_memory: As for `ImageFolder`.
        on_bad: As for `ImageFolder`; files that do not exist are among them.
        max_value: As for `ImageFolder`.
        separator: As for `Table`.
        decimal: As for `Table`.
        encoding: As for `Table`.
        na_values: As for `Table`.
        sheet: As for `Table`.
        header: As for `Table`.
        skip_rows: As for `Table`.
        label_separator: As for `Table`.
        positive: As for `Table`.

    Raises:
        ValueError: An argument is not one of its choices.
    """

    def __init__(
        self,
        path: str,
        image: str,
        target: str | Sequence[str],
        *,
        root: str | None = None,
        test_path: str | None = None,
        task: str = "auto",
        image_size: ImageSize = None,
        mode: Literal["RGB", "GRAY"] = "RGB",
        in_memory: bool | Literal["auto"] = "auto",
        on_bad: Literal["auto", "error", "skip"] = "error",
        max_value: MaxValue = None,
        separator: str = AUTO,
        decimal: str = AUTO,
        encoding: str = "utf-8",
        na_values: str | float | Sequence[str | float] = AUTO,
        sheet: str | None = None,
        header: bool | Literal["auto"] = AUTO,
        skip_rows: int = 0,
        label_separator: str | None = None,
        positive: str | float | bool | None = None,
    ) -> None:
        if root is None:
            root = str(Path(path).parent)
        super().__init__(root, image_size, mode, in_memory, on_bad, max_value=max_value)
        columns = column_options(target, categories=image)
        if image in columns.targets:
            raise ValueError(
                f"image={image!r}: expected a column other than the target, {target}"
            )
        self._column = image
        self._suffixes: list[str] = ["", *IMAGE_SUFFIXES, *map(str.upper, IMAGE_SUFFIXES)]
        self._table = TableSource(
            path,
            test_path,
            columns,
            {
                "separator": separator,
                "decimal": decimal,
                "encoding": encoding,
                "na_values": na_values,
                "sheet": sheet,
                "header": header,
                "skip_rows": skip_rows,
            },
            task=task,
            label_separator=label_separator,
            positive=positive,
        )
        self._table.input_option = "image"
        self._table.text_encoder = _FileNames((Text(image),))
        self.task: str = self._table.task

    @override
    def _list(self) -> dict[str, list[ImageFile]]:
        # what has brackets is a regular expression of file names
        self._table.split_columns = {
            key: name for key, name in self.split_columns.items() if "(" not in name
        }
        self._table.known_labels = self.known_labels
        if self.known_labels:
            self._table.fitted = self._table.text_encoder
        subsets = self._table.read()
        self.notes += tuple(self._table.notes)
        self.task = self._table.task
        self.targets = self._table.targets
        self.class_names = self._table.class_names
        self.is_reversed = self._table.is_reversed
        tables = list(subsets.values())
        self._row_targets = torch.cat([table.targets for table in tables])
        self._split_hints: Mapping[str, str] = {}
        if not self.split_columns:
            self._split_hints = tables[0].split_hints
        self._split_names = {subset: [*table.split_values] for subset, table in subsets.items()}
        self._split_values = pd.concat(
            [pd.DataFrame(table.split_values, index=table.inputs.index) for table in tables]
        )
        self._unusable = []
        rows = count()
        return {
            subset: self._find_images(_as_names(table.inputs[self._column]), rows)
            for subset, table in subsets.items()
        }

    def paths_in(self, table: Path) -> list[str]:
        """What the rows of another table name: paths below its folder or `root`, or nothing."""
        options = find_options(table, self._table.file_options)
        chunks = table_chunks(table, self._table.text_encoder, _ROWS, **options)
        names = [name for chunk in chunks for name in _as_names(chunk[self._column])]
        return [
            name
            and (
                self._find(table.parent, name)
                or self._find(self._root, name)
                or str(table.parent / name)
            )
            for name in names
        ]

    def _find_images(self, names: Iterable[str], rows: Iterator[int]) -> list[ImageFile]:
        """The images that exist, each with its row among all tables."""
        files = []
        for name, row in zip(names, rows, strict=False):
            if path := self._find(self._root, name):
                files.append(ImageFile(name, path, row))
            else:
                self._unusable.append((name, "no such file"))
        if not files:
            missing = join_first(list(dict(self._unusable)), 3)
            message = (
                f"none of the images that column {self._column!r} names lies there: {missing}"
            )
            raise self._error(message, "data.source.root=FOLDER, which the names are relative to")
        return files

    def _find(self, root: Path, name: str) -> str:
        """The path of a named image, empty where there is none; the suffix that fits comes first then."""
        path = str(root / name.replace("\\", "/"))
        for place, suffix in enumerate(self._suffixes):
            if Path(path + suffix).is_file():
                self._suffixes.insert(0, self._suffixes.pop(place))
                return path + suffix
        return ""

    @override
    def _subset(self, subset: str, files: Sequence[ImageFile], *read: Any) -> Samples:
        rows = [file.label for file in files]
        values = {name: self._split_values[name].iloc[rows] for name in self._split_names[subset]}
        samples = super()._subset(subset, files, *read)
        return replace(samples, split_values=values, split_hints=self._split_hints)

    @override
    def _targets(self, subset: str, files: Sequence[ImageFile], images: Tensor | None) -> Tensor:
        return self._row_targets[[file.label for file in files]]

    @override
    def _target_reader(self) -> Callable[[ImageFile], Tensor]:
        return partial(_read_target, self._row_targets)


def _as_names(column: pd.Series[Any]) -> pd.Series[str]:
    """Names of files, also of numbers such as 7.0, and empty where there is none."""
    whole = column.convert_dtypes()
    return whole.astype(str).where(whole.notna(), "").str.strip()


def _read_target(targets: Tensor, file: ImageFile) -> Tensor:
    return targets[file.label]


@final
@dataclass
class _FileNames:
    """Stands where a table has an encoder: the one column that is read, as it is."""

    columns: tuple[Text]
    target_forms: dict[str, str] = field(default_factory=dict)
