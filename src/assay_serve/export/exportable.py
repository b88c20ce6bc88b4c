"""A run's model as it leaves assay: raw input in, rows of a table included; probabilities or values out."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import warnings
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import torch
import torch.nn.functional as F
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.config.unread_keys import OUR_DATA
from assay.data.core.normalize import Normalize
from assay.data.core.transforms import Transforms
from assay.data.table.category import Category, Text
from assay.data.table.column import judge_rows
from assay.data.table.date import Date
from assay.data.table.number import Number, missing_numbers
from assay.data.table.table_encoder import TableEncoder
from assay.data.text.tokenizer import TextEncoder
from assay.errors import AssayError, first_line
from assay.quoting import format_override
from assay.record.run_record import RunRecord
from assay.run.predictor import checkpoint_path, source_info
from assay.run.saved_config import read_config
from assay.task.predictions import ClassPredictions, Scored, labels_on
from assay.task.task_of import task_of
from assay_serve.ensemble import MeanOfRuns, read
from assay_serve.members import find_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray
    from torch.export import ExportedProgram

    from assay.data.table.column import Column
    from assay.figure import Array
    from assay.run.predictor import Predictor


MISSING = -2
"""Code of a missing category, where training learned no value for it."""
UNKNOWN = -1
"""Code of a category that training lacks, where it counts as none."""
NO_CLASS = -1
"""What is predicted of a row that lacks a value."""
_LARGEST = float(torch.finfo(torch.float32).max)


@final
class Original:
    """A run, read for export."""

    def __init__(
        self, run_dir: Path, checkpoint: Literal["best", "last"], trusted: Sequence[str] = ()
    ) -> None:
        members = find_members(run_dir)
        self.members = (run_dir,) if members is None else members.run_dirs
        self.record = RunRecord.load(self.members[0])
        self.is_mean = members is not None
        file = checkpoint_path(self.members[0], checkpoint).name
        roles = (role for role, name in self.record.checkpoints.items() if name == file)
        self.checkpoint = next(roles, checkpoint)  # the last one where none was kept as the best
        predictor = read(run_dir, checkpoint, "cpu", trusted).requires_grad_(False)
        self.config: DictConfig = read_config(self.members[0], trusted)
        self.stored = predictor.model
        tensors = self.stored.state_dict().values()
        self.dtypes = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
        self.predictor = predictor
        if not self.dtypes <= {torch.float32}:
            self.predictor = copy.deepcopy(predictor).float()
            for own in getattr(self.predictor.model, "predictors", ()):
                own.preprocess.dtype = torch.float32
        self.spec = predictor.spec
        self.codec: Any = predictor.codec
        self.task = task_of(self.spec["task"]) if self.spec else None
        self.kind = predictor.kind or "scores"
        typed: Any = None
        if self.task is not None and self.kind == "probabilities" and not self.task.has_masks:
            names = predictor.names
            typed = self.task.typed(np.zeros((1, len(names)), np.float32), self.kind, names)
        self.by_class = isinstance(typed, ClassPredictions)
        self.gives_logits = isinstance(typed, Scored)
        preprocess = self.predictor.preprocess
        self.encoder: TableEncoder | None = None
        self.texts: TextEncoder | None = None
        self.na_values: tuple[str, ...] = ()
        self.normalize = Normalize()
        self.transforms = Transforms()
        if preprocess is not None:
            if isinstance(preprocess.encoder, TableEncoder):
                self.encoder = preprocess.encoder
            elif isinstance(preprocess.encoder, TextEncoder):
                self.texts = preprocess.encoder
                if self.is_mean:
                    raise AssayError(
                        "each of several runs has a vocabulary of its own, which one file cannot hold",
                        hint=f"export one run, such as {self.members[0]}",
                    )
            na_values: Any = preprocess.file_options.get("na_values", ())
            if not isinstance(na_values, str):
                self.na_values = tuple(map(str, na_values))
            if OmegaConf.select(self.config, "data._target_") == OUR_DATA:
                self.normalize = preprocess.normalize
                self.transforms = Transforms(
                    [*self._scaling(), *preprocess.transforms.transforms]
                )
        first = next(iter(self.transforms.transforms), nn.Identity())
        self.takes_any_size = isinstance(traceable(first), _Resize)

    @property
    def _columns(self) -> list[Sequence[Column]]:
        """Of each run."""
        predictors: Any = getattr(self.predictor.model, "predictors", [self.predictor])
        return [own.preprocess.encoder.columns for own in predictors]

    @property
    def lookups(self) -> dict[str, list[Category]]:
        """The columns whose texts become each of the inputs of codes."""
        return {
            f"codes_{number}": [column for column in columns if isinstance(column, Category)]
            for number, columns in enumerate(self._columns)
        }

    def normalized(self, samples: Tensor, dtype: torch.dtype) -> Tensor:
        """Normalised samples; those of several runs are left to each."""
        if self.is_mean:
            return samples
        return self.normalize(samples, dtype)

    def _scaling(self) -> list[v2.Resize]:
        """What the source does to pictures while it decodes them."""
        if source_info(self.config).raw_input != "images":
            return []
        size = OmegaConf.select(self.config, "data.source.image_size")
        if size is None:
            return []
        return [v2.Resize(list(size), antialias=True)]

    def exportable(self, *, with_transforms: bool) -> Exportable:
        """The module to be traced."""
        return Exportable(
            self.predictor,
            normalize=self.normalized,
            transforms=self.transforms if with_transforms else Transforms(),
            encode=None if self.encoder is None else EncodeOfRuns(self._columns, self.na_values),
            gives_logits=self.gives_logits,
        ).eval()

    def outputs(self, raw: Any) -> dict[str, Array]:
        """Outputs of the run's own model by name, for a batch that is prepared as by `assay predict`."""
        if self.encoder is None:
            return self._outputs(self.transforms.transform_inputs(raw))
        samples, errors, _ = self.predictor.preprocess.encoded(raw.copy(), ".")  # type: ignore[union-attr]  # it holds the encoder
        good = [position for position in range(len(raw)) if position not in errors]
        # Of rows that `assay predict` refuses the file says that they have no value.
        outputs = self._outputs(samples if good else samples.new_zeros(1, samples.shape[1]))
        whole = {}
        for name, values in outputs.items():
            missing = np.nan if values.dtype.kind == "f" else NO_CLASS
            whole[name] = np.full((len(raw), *values.shape[1:]), missing, values.dtype)
            whole[name][good] = values[: len(good)]
        return whole

    def _outputs(self, samples: Tensor) -> dict[str, Array]:
        with torch.no_grad():
            inputs = self.normalized(samples, torch.float32)
            model_outputs = self.predictor.model_outputs(inputs)
            outputs = self.predictor.read_outputs(inputs, model_outputs)
        named: dict[str, Array] = {self.kind: outputs.numpy()}
        if self.gives_logits:
            named["prediction"] = self.decide(outputs.numpy())
            named["logits"] = model_outputs.flatten(1).numpy()
        return {name: named[name] for name in self.output_names}

    def decide(self, probabilities: NDArray[np.float32]) -> NDArray[np.int64]:
        """What is predicted, as the file says it: the class, or of each label whether it is on."""
        there = np.isfinite(probabilities)
        typed: Any = self.predictor.typed(torch.from_numpy(np.nan_to_num(probabilities)))
        if self.by_class:
            return np.where(there.all(1), typed.indices, NO_CLASS)
        return np.where(there, labels_on(typed.scores), NO_CLASS)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Of the file."""
        names: list[str] = [self.kind]
        if self.gives_logits and not self.is_mean:  # of several runs there are no logits
            names.append("logits")
        if self.gives_logits:
            names.append("prediction")
        return tuple(names)


def table_inputs(frame: pd.DataFrame, columns: Sequence[Column]) -> dict[str, Array]:
    """`numbers`, float64 `[B, N]`, and `categories`, text `[B, C]`."""
    if encoded := [column.name for column in columns if isinstance(column, Text)]:
        raise AssayError(
            f"the n-grams of the column {encoded[0]!r} cannot be part of an ONNX file",
            hint="--format safetensors keeps the weights alone; "
            f"{format_override('data.source.exclude', encoded)} trains without it",
        )
    judged = judge_rows(frame, columns).frame
    inputs: dict[str, list[Any]] = {"numbers": [], "categories": []}
    for column in columns:
        name = "categories" if isinstance(column, Category) else "numbers"
        inputs[name].append(column.export_inputs(judged[column.name]))
    return {name: np.column_stack(parts) for name, parts in inputs.items() if parts}


def text_codes(column: Category, na_values: Sequence[str] = ()) -> dict[str, int]:
    """The texts that stand for something, and their codes."""
    filled = MISSING
    if column.fill is not None:
        filled = column.codes.get(str(column.fill), unknown_code(column))
    words = sorted(column.missing_words)
    padded = [form.format(word) for word in words for form in (" {}", "{} ")]
    known = dict.fromkeys((*words, *padded, *na_values), filled) | column.codes
    # A column of integers with a gap is one of floats in pandas.
    return {
        f"{text}.0": code for text, code in known.items() if text.lstrip("-").isdigit()
    } | known


def unknown_code(column: Category) -> int:
    """What stands for a category that training lacks."""
    if column.other is None:
        return UNKNOWN
    return column.other


@final
class Exportable(nn.Module):
    """What a run's data does to raw input, the model, and what its outputs mean, as one traceable module."""

    def __init__(
        self,
        predictor: Predictor,
        *,
        normalize: Callable[[Tensor, torch.dtype], Tensor],
        transforms: Transforms,
        encode: EncodeOfRuns | None = None,
        gives_logits: bool = False,
    ) -> None:
        super().__init__()
        self.predictor = predictor
        self.encode = encode
        self._normalize = normalize
        self._gives_logits = gives_logits
        self._transforms = [traceable(transform) for transform in transforms.transforms]

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Outputs `[B, ...]` for raw input; with logits and predictions where it gives them."""
        raw = inputs[0]
        if self.encode is not None:
            raw = self.encode(*inputs)
        for transform in self._transforms:
            raw = transform(raw)
        normalized = self._normalize(raw, torch.float32)
        model_outputs = self.predictor.model_outputs(normalized)
        outputs = self.predictor.read_outputs(normalized, model_outputs)
        if self.encode is not None:
            outputs = self.encode.mark_missing(outputs, *inputs)
        if not self._gives_logits:
            return outputs
        predicted = self._predict(outputs)
        if isinstance(self.predictor.model, MeanOfRuns):
            return outputs, predicted
        logits = model_outputs.flatten(1)
        if self.encode is not None:
            logits = self.encode.mark_missing(logits, *inputs)
        return outputs, logits, predicted

    def _predict(self, outputs: Tensor) -> Tensor:
        """Index of the class, int64 `[B]`, or of each label whether it is on, `[B, L]`; -1 for none."""
        task = self.predictor.task
        threshold = self.predictor.threshold
        if task is None or not task.by_class:
            predicted = (outputs > 0.5).long()
        elif outputs.shape[1] == 2 and threshold != 0.5:
            predicted = (outputs[:, 1] >= threshold).long()
        else:
            predicted = outputs.argmax(1)
        there = torch.isfinite(outputs)
        return torch.where(there if predicted.ndim == 2 else there.all(1), predicted, NO_CLASS)


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
        self._size = size
        self._mode = mode
        self._antialias = antialias

    def __call__(self, pictures: Tensor) -> Tensor:
        """Pictures `[B, C, height, width]` in the type that they have."""
        resized = F.interpolate(
            pictures.float(),
            self._size,
            mode=self._mode,
            antialias=self._antialias,
            align_corners=False,
        )
        if pictures.is_floating_point():
            return resized
        return resized.round().clamp(0, 255).to(pictures.dtype)


@final
class Encode(nn.Module):
    """A fitted table encoder as tensor operations: numbers imputed, categories as codes."""

    fill: Tensor
    shift: Tensor
    _is_number: Tensor

    def __init__(self, columns: Sequence[Column], na_values: Sequence[str] = ()) -> None:
        super().__init__()
        self.numbers = tuple(column for column in columns if not isinstance(column, Category))
        self.categories = tuple(column for column in columns if isinstance(column, Category))
        fill = [value for column in self.numbers for value in column.fills]
        # one, or of a date one for each part
        ends = np.cumsum([len(column.fills) for column in self.numbers])
        self._marked = [
            int(end) - 1
            for end, column in zip(ends, self.numbers, strict=True)
            if column.marks_gaps
        ]
        self._for_good = [position for position, value in enumerate(fill) if np.isnan(value)]
        self._of_codes = int(bool(self.numbers))
        self._missing = missing_numbers(na_values)
        is_number = [isinstance(column, Number) for column in self.numbers for _ in column.fills]
        shift = [column.shift for column in self.numbers for _ in column.fills]
        self.register_buffer("shift", torch.tensor([shift], dtype=torch.float64))
        self.register_buffer("fill", torch.tensor([fill], dtype=torch.float64))
        self.register_buffer("_is_number", torch.tensor([is_number]), persistent=False)

    def _is_there(self, numbers: Tensor) -> Tensor:
        """Which numbers are neither missing nor a code of it."""
        there = torch.isfinite(numbers)
        for code in self._missing:
            there = there & ~((numbers == code) & self._is_number)
        return there

    def forward(self, *inputs: Tensor) -> Tensor:
        """Float32 `[B, F]`, as `TableEncoder.transform` gives them."""
        encoded: list[Tensor] = []
        codes: list[Tensor] = []
        if self.numbers:
            is_there = self._is_there(inputs[0])
            filled = torch.where(is_there, inputs[0], self.fill)
            shifted = (filled - self.shift).to(torch.float32)
            first = 0
            for column in self.numbers:
                place = slice(first, first + len(column.fills))
                encoded += column.trace(filled[:, place], shifted[:, place])
                codes += column.trace_codes(filled[:, place])
                first = place.stop
            encoded.append((~is_there[:, self._marked]).to(torch.float32))
        for position, column in enumerate(self.categories):
            code = inputs[self._of_codes][:, position : position + 1]
            known = torch.where(code < 0, column.width, code)
            encoded.append(known.to(torch.float32))
        return torch.cat([*encoded, *codes], dim=1)

    def mark_missing(self, outputs: Tensor, *inputs: Tensor) -> Tensor:
        """Outputs, NaN in rows with a value too large, or without one for which training has learned one."""
        missing = []
        if self.numbers:
            missing.append((torch.isfinite(inputs[0]) & (inputs[0].abs() > _LARGEST)).any(dim=1))
        if self._for_good:
            missing.append(~self._is_there(inputs[0])[:, self._for_good].all(dim=1))
        if any(column.fill is None for column in self.categories):
            missing.append((inputs[self._of_codes] == MISSING).any(dim=1))
        for rows in missing:
            outputs = torch.where(rows.view(-1, *[1] * (outputs.ndim - 1)), torch.nan, outputs)
        return outputs


@final
class EncodeOfRuns(nn.Module):
    """Columns as each of several runs encodes them, side by side; each has codes of its own."""

    def __init__(self, columns: Sequence[Sequence[Column]], na_values: Sequence[str]) -> None:
        super().__init__()
        self._each = nn.ModuleList([Encode(own, na_values) for own in columns])
        self._shifts = [_shift_dates(columns[0], own) for own in columns]
        self._has_numbers = bool(self._shifts[0].numel())

    def _own(self, inputs: tuple[Tensor, ...]) -> Iterator[tuple[Any, tuple[Tensor, ...]]]:
        """What encodes the columns of each run, and the inputs that it takes."""
        for number, encode in enumerate(self._each):
            own = inputs[self._has_numbers :][number : number + 1]
            if self._has_numbers:
                own = (inputs[0] + self._shifts[number], *own)
            yield encode, own

    def forward(self, *inputs: Tensor) -> Tensor:
        """See `Encode.forward`."""
        return torch.cat([encode(*own) for encode, own in self._own(inputs)], 1)

    def mark_missing(self, outputs: Tensor, *inputs: Tensor) -> Tensor:
        """See `Encode.mark_missing`."""
        for encode, own in self._own(inputs):
            outputs = encode.mark_missing(outputs, *own)
        return outputs


def _shift_dates(first: Sequence[Column], columns: Sequence[Column]) -> Tensor:
    """What is added to the numbers of a file for another run: days since its own first date."""
    shifts: list[float] = []
    for expected, column in zip(first, columns, strict=True):
        if isinstance(expected, Date) and isinstance(column, Date):
            if expected.parts != column.parts:
                raise AssayError(
                    f"the runs see other parts of the dates in {column.name!r}: "
                    f"{', '.join(expected.parts)} against {', '.join(column.parts)}",
                    hint="export one run; "
                    f"{format_override('data.source.exclude', [column.name])} trains without it",
                )
            days = expected.start - column.start
            shifts += [days if part == "elapsed" else 0.0 for part in column.parts]
        elif not isinstance(column, Category):
            shifts += [0.0] * len(column.fills)
    return torch.tensor(shifts, dtype=torch.float64)


def trace(
    exportable: Exportable, example: tuple[Tensor, ...], sizes: Mapping[int, Any] | None = None
) -> ExportedProgram:
    """Trace what a module does to a batch; `sizes` names further dimensions that may differ."""
    dims = {0: torch.export.Dim("batch"), **(sizes or {})}
    try:
        with quiet(), torch.no_grad():
            exportable(*example)  # statistics are brought to the inputs' type before the trace
            return torch.export.export(
                exportable, example, dynamic_shapes=(tuple(dims for _ in example),)
            )
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
