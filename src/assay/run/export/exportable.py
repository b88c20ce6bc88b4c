"""A run's model as it leaves assay: raw input in, rows of a table included; probabilities or values out."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import warnings
from typing import TYPE_CHECKING, Any, Final, Literal, final

import numpy as np
import torch
import torch.nn.functional as F
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.config.unread_keys import OUR_DATA
from assay.data.normalize import Normalize
from assay.data.tabular.amount import is_amount, parse_amounts
from assay.data.tabular.column_kind import date_parts, days_since_1970, parse_dates
from assay.data.tabular.table_encoder import TableEncoder
from assay.data.tokenizer import TextEncoder
from assay.data.transforms import Transforms
from assay.errors import AssayError, first_line
from assay.record.run_record import RunRecord
from assay.run.predictor import read_predictor, source_info
from assay.run.saved_config import read_config
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray
    from torch.export import ExportedProgram

    from assay.data.tabular.table_encoder import Column
    from assay.run.predictor import Predictor


MISSING: Final = -2
"""Code of a missing category, where training learned no value for it."""
UNKNOWN: Final = -1
"""Code of a category that training lacks, where it counts as none."""


@final
class Original:
    """A run, read for export."""

    def __init__(
        self, run_dir: Path, checkpoint: Literal["best", "last"] = "best", trusted: Sequence[str] = ()
    ) -> None:
        self.run_dir, self.checkpoint = run_dir, checkpoint
        self.record = RunRecord.load(run_dir)
        predictor = read_predictor(run_dir, checkpoint, "cpu", trusted).requires_grad_(False)
        self.config: DictConfig = read_config(run_dir, trusted)
        self.stored = predictor.model
        self.dtypes = {
            tensor.dtype for tensor in self.stored.state_dict().values() if tensor.is_floating_point()
        }
        self.predictor = predictor if self.dtypes <= {torch.float32} else copy.deepcopy(predictor).float()
        self.spec = predictor.spec
        self.codec: Any = predictor.codec
        self.task = task_of(self.spec["task"]) if self.spec else None
        self.kind = predictor.kind or "scores"
        preprocess = self.predictor.preprocess
        encoder = None if preprocess is None else preprocess.encoder
        self.encoder = encoder if isinstance(encoder, TableEncoder) else None
        self.texts = encoder if isinstance(encoder, TextEncoder) else None
        self.normalize, self.transforms = Normalize(), Transforms()
        if preprocess is not None and OmegaConf.select(self.config, "data._target_") == OUR_DATA:
            self.normalize = preprocess.normalize
            self.transforms = Transforms([*self._scaling(), *preprocess.transforms.transforms])
        first = next(iter(self.transforms.transforms), nn.Identity())
        self.takes_any_size = isinstance(traceable(first), _Resize)

    def _scaling(self) -> list[v2.Resize]:
        """What the source does to pictures while it decodes them."""
        if source_info(self.config).raw_input != "pictures":
            return []
        size = OmegaConf.select(self.config, "data.source.image_size")
        return [] if size is None else [v2.Resize(list(size), antialias=True)]

    def exportable(self, *, with_transforms: bool = True) -> Exportable:
        """The module to be traced."""
        return Exportable(
            self.predictor,
            normalize=self.normalize,
            transforms=self.transforms if with_transforms else Transforms(),
            encode=None if self.encoder is None else Encode(self.encoder.columns),
        ).eval()

    def transformed(self, raw: Tensor) -> Tensor:
        """A batch after the transforms of evaluation."""
        return self.transforms.transform_inputs(raw)

    def outputs(self, raw: Any) -> NDArray[np.float32]:
        """What the run's own model says of a batch, prepared as in evaluation."""
        tensor = raw if self.encoder is None else self.encoder.transform(raw)
        with torch.no_grad():
            inputs = self.normalize(self.transformed(tensor), torch.float32)
            outputs: NDArray[np.float32] = self.predictor.predicted(inputs).numpy()
        return outputs


def table_inputs(frame: pd.DataFrame, columns: Sequence[Column]) -> dict[str, NDArray[Any]]:
    """`numbers`, float32 or float64 `[B, N]`, and `categories`, text `[B, C]`."""
    numbers: list[Any] = []
    texts: list[Any] = []
    for column in columns:
        values = frame[column.name]
        if column.kind == "number":
            values = parse_amounts(values, column.form) if is_amount(column.form) else values
            numbers.append(values.to_numpy("float64", na_value=np.nan))
        elif column.kind == "date":
            days = days_since_1970(parse_dates(values, column.form))
            numbers.append(date_parts(days, column.parts or ("elapsed",), column.start))
        else:
            texts.append(values.astype("string").fillna(""))
    inputs = {"numbers": np.column_stack(numbers).astype(input_type(columns))} if numbers else {}
    return inputs | ({"categories": np.column_stack(texts).astype(object)} if texts else {})


def input_type(columns: Sequence[Column]) -> str:
    """Of the numbers that a file takes: double where 32 bits would lose what the model goes by."""
    return "float64" if any(column.shift for column in columns) else "float32"


def text_codes(column: Column) -> dict[str, int]:
    """The texts that stand for something, and their codes."""
    floats = {f"{text}.0": code for text, code in column.codes.items() if text.lstrip("-").isdigit()}
    filled = MISSING if column.fill is None else column.codes.get(str(column.fill), unknown_code(column))
    return {"": filled, **floats, **column.codes}


def unknown_code(column: Column) -> int:
    """What stands for a category that training lacks."""
    return UNKNOWN if column.other is None else column.other


@final
class Exportable(nn.Module):
    """What a run's data does to raw input, the model, and what its outputs mean, as one traceable module."""

    def __init__(
        self,
        predictor: Predictor,
        *,
        normalize: Normalize,
        transforms: Transforms,
        encode: Encode | None = None,
    ) -> None:
        super().__init__()
        self.predictor, self.encode, self._normalize = predictor, encode, normalize
        self._transforms = [traceable(transform) for transform in transforms.transforms]

    def forward(self, *inputs: Tensor) -> Tensor:
        """Outputs `[B, ...]` for raw input."""
        raw = self.encode(*inputs) if self.encode is not None else inputs[0]
        for transform in self._transforms:
            raw = transform(raw)
        outputs = self.predictor.predicted(self._normalize(raw, torch.float32))
        return outputs if self.encode is None else self.encode.mark_missing(outputs, *inputs)


def traceable(transform: Any) -> Any:
    """The same without branches on the picture's size, where there is such a thing."""
    if type(transform) is not v2.Resize or len(transform.size or ()) != 2:
        return transform
    mode = str(getattr(transform.interpolation, "value", transform.interpolation))
    if mode not in ("bilinear", "bicubic"):
        return transform
    return _Resize(tuple(transform.size), mode, bool(transform.antialias))


@final
class _Resize:
    """`v2.Resize` to a height and width, without its branch for pictures that already have them."""

    def __init__(self, size: tuple[int, int], mode: str, antialias: bool) -> None:
        self._size, self._mode, self._antialias = size, mode, antialias

    def __call__(self, pictures: Tensor) -> Tensor:
        """Pictures `[B, C, height, width]` in the type that they have."""
        resized = F.interpolate(
            pictures.float(), self._size, mode=self._mode, antialias=self._antialias, align_corners=False
        )
        if pictures.is_floating_point():
            return resized
        return resized.round().clamp(0, 255).to(pictures.dtype)


@final
class Encode(nn.Module):
    """A fitted table encoder as tensor operations: numbers imputed, categories as one column each."""

    fill: Tensor
    shift: Tensor

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.numbers = tuple(column for column in columns if column.kind in ("number", "date"))
        self.categories = tuple(column for column in columns if column.kind == "category")
        fill = [value for column in self.numbers for value in column.fills]
        ends = np.cumsum([column.width for column in self.numbers])  # one, or of a date one for each part
        self._marked = [
            int(end) - 1 for end, column in zip(ends, self.numbers, strict=True) if column.marks_gaps
        ]
        self._of_codes = int(bool(self.numbers))
        dtype = getattr(torch, input_type(columns))
        shift = [column.shift for column in self.numbers for _ in range(column.width)]
        self.register_buffer("fill", torch.tensor([fill], dtype=dtype))
        self.register_buffer("shift", torch.tensor([shift], dtype=dtype))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Float32 `[B, F]`, as `TableEncoder.transform` gives them."""
        encoded = []
        if self.numbers:
            is_there = torch.isfinite(inputs[0])
            numbers = torch.where(is_there, inputs[0], self.fill)
            if self.shift.dtype == torch.float64:
                numbers = (numbers - self.shift).to(torch.float32)
            encoded.append(numbers)
            encoded.append((~is_there[:, self._marked]).to(torch.float32))
        for position, column in enumerate(self.categories):
            code = inputs[self._of_codes][:, position : position + 1]
            encoded.append((code == torch.arange(column.width, device=code.device)).to(torch.float32))
        return torch.cat(encoded, dim=1)

    def mark_missing(self, outputs: Tensor, *inputs: Tensor) -> Tensor:
        """Outputs, NaN in rows that lack a value for which training has learned none."""
        missing = []
        fills = [column.fill for column in self.numbers for _ in range(column.width)]
        for_good = [position for position, fill in enumerate(fills) if fill is None]
        if for_good:
            missing.append(~torch.isfinite(inputs[0][:, for_good]).all(dim=1))
        if any(column.fill is None for column in self.categories):
            missing.append((inputs[self._of_codes] == MISSING).any(dim=1))
        for rows in missing:
            outputs = torch.where(rows.view(-1, *[1] * (outputs.ndim - 1)), torch.nan, outputs)
        return outputs


def trace(
    exportable: Exportable, example: tuple[Tensor, ...], sizes: Mapping[int, Any] | None = None
) -> ExportedProgram:
    """Trace what a module does to a batch; `sizes` names further dimensions that may differ."""
    dims = {0: torch.export.Dim("batch"), **(sizes or {})}
    try:
        with quiet(), torch.no_grad():
            exportable(*example)  # statistics are brought to the inputs' type before the trace
            return torch.export.export(exportable, example, dynamic_shapes=(tuple(dims for _ in example),))
    except AssayError:
        raise
    except Exception as error:  # whatever the model's own code raises, or torch of it
        raise AssayError(
            f"the model cannot be traced: {type(error).__name__}: {first_line(error)}",
            hint="branches on tensors' values and sizes fixed in forward() cannot be exported; --format "
            "safetensors keeps the weights alone",
        ) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what exporters print and warn of off the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    nowhere = io.StringIO()  # torch prints the graph as far as it came
    try:
        with (
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
            warnings.catch_warnings(action="ignore"),
        ):
            yield
    finally:
        logging.disable(before)
