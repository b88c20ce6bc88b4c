"""A trained model as it leaves assay: raw input in, probabilities (or values, embeddings) out."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from typing import TYPE_CHECKING, Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.errors import AssayError, first_line
from assay.run.export.table_inputs import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.export import ExportedProgram

    from assay.data.tabular.table_encoder import Column
    from assay.data.transform.normalize import Normalize
    from assay.data.transform.transforms import Transforms
    from assay.run.predict.predictor import Predictor


@final
class Exportable(nn.Module):
    """What a run's data does to raw input, the model, and what its outputs mean, as one traceable module.

    Args:
        predictor: Of the run; its model and `postprocess`.
        normalize: Of the run's data.
        transforms: Of evaluation; empty where they cannot be traced.
        encode: Of a table; None: the inputs are one tensor.
    """

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
        self._transforms = [_traceable(transform) for transform in transforms.transforms]

    def forward(self, *inputs: Tensor) -> Tensor:
        """Outputs `[B, ...]` for raw input.

        Args:
            inputs: One tensor `[B, ...]`; of a table what `Encode` takes.
        """
        raw = self.encode(*inputs) if self.encode is not None else inputs[0]
        for transform in self._transforms:
            raw = transform(raw)
        outputs = self.predictor.predicted(self._normalize(raw, torch.float32))
        return outputs if self.encode is None else self.encode.mark_missing(outputs, *inputs)


def takes_any_size(transforms: Transforms) -> bool:
    """Whether the first transform brings pictures of any size to a fixed one."""
    return isinstance(_traceable(next(iter(transforms.transforms), nn.Identity())), _Resize)


def _traceable(transform: Any) -> Any:
    """The same without branches on the picture's size, where there is such a thing."""
    if type(transform) is not v2.Resize or len(transform.size or ()) != 2:
        return transform
    mode = str(getattr(transform.interpolation, "value", transform.interpolation))
    if mode not in ("bilinear", "bicubic"):
        return transform
    return _Resize(tuple(transform.size), mode, bool(transform.antialias))


@final
class _Resize:
    """`v2.Resize` to a height and width, which leaves pictures alone that have them already: a branch."""

    def __init__(self, size: tuple[int, int], mode: str, antialias: bool) -> None:
        self._size, self._mode, self._antialias = size, mode, antialias

    def __call__(self, pictures: Tensor) -> Tensor:
        """Pictures `[B, C, height, width]` in the type that they have.

        Args:
            pictures: `[B, C, H, W]`, uint8 or floats.
        """
        resized = F.interpolate(
            pictures.float(), self._size, mode=self._mode, antialias=self._antialias, align_corners=False
        )
        if pictures.is_floating_point():
            return resized
        return resized.round().clamp(0, 255).to(pictures.dtype)


@final
class Encode(nn.Module):
    """A fitted table encoder as tensor operations: numbers imputed, categories as one column each.

    Args:
        columns: What the table's encoder has learned.
    """

    fill: Tensor

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.numbers = tuple(column for column in columns if column.kind in ("number", "date"))
        self.words = any(column.kind == "words" for column in columns)
        self.categories = tuple(column for column in columns if column.kind == "category")
        fill = [value for column in self.numbers for value in column.fills]
        self._of_codes = int(bool(self.numbers))
        self.register_buffer("fill", torch.tensor([fill], dtype=torch.float32))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Float32 `[B, F]`, as `TableEncoder.transform` gives them.

        Args:
            inputs: Numbers float32 `[B, N]`, not finite where missing, the parts of dates among them; codes
                int64 `[B, C]`: the position of a category among the column's, `UNKNOWN` or `MISSING`; hashed
                words float32 `[B, W]`. Each only where the table has such columns.
        """
        encoded = []
        if self.numbers:
            encoded.append(torch.where(torch.isfinite(inputs[0]), inputs[0], self.fill))
        for position, column in enumerate(self.categories):
            code = inputs[self._of_codes][:, position : position + 1]
            encoded.append((code == torch.arange(column.width, device=code.device)).to(torch.float32))
        if self.words:
            encoded.append(inputs[-1])
        return torch.cat(encoded, dim=1)

    def mark_missing(self, outputs: Tensor, *inputs: Tensor) -> Tensor:
        """Outputs, NaN in rows that lack a value for which training has learned none.

        A network may hide a NaN: `max(nan, 0)` is 0 in some runtimes.

        Args:
            outputs: `[B, ...]`.
            inputs: As for `forward`.
        """
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
    exportable: Exportable,
    example: tuple[Tensor, ...],
    *,
    any_size: bool = False,
    any_length: bool = False,
    longest: int = 0,
) -> ExportedProgram:
    """Trace what a module does to a batch.

    Args:
        exportable: In eval mode.
        example: Inputs of at least two samples.
        any_size: Height and width may differ from the example's, too.
        any_length: So may the number of tokens.
        longest: So may the number of tokens, up to this; 0: it may not.

    Raises:
        AssayError: It does what cannot be traced, or fixes the number of samples.
    """
    sizes: dict[int, Any] = {0: torch.export.Dim("batch")}
    if any_size:
        sizes |= {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}
    if any_length:
        sizes |= {1: torch.export.Dim.DYNAMIC}
    if longest > 1:
        sizes |= {1: torch.export.Dim("length", max=longest)}
    try:
        with quiet(), torch.no_grad():
            exportable(*example)  # statistics are brought to the inputs' type before the trace
            return torch.export.export(exportable, example, dynamic_shapes=(tuple(sizes for _ in example),))
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
    try:
        nowhere = io.StringIO()
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),  # torch prints the graph as far as it came
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
