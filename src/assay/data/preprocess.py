"""From what a user has to what a model takes: exactly what its run's data does when it evaluates."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.core.arrays import as_tensor
from assay.data.core.normalize import Normalize, one_hot_sizes, stored_shape
from assay.data.core.placement import padded_length
from assay.data.core.source_info import info_of
from assay.data.core.transforms import Transforms, stack
from assay.data.image.decode import as_tensor as picture_as_tensor
from assay.data.image.decode import read_image, size_of, upright_size
from assay.data.table.column import (
    check_trained_columns,
    describe_unusual,
    judge_rows,
)
from assay.data.table.table_file import AUTO, prepare_rows
from assay.data.text.tokenizer import TextEncoder
from assay.errors import DataError

if TYPE_CHECKING:
    from assay.data.image.decode import Decoding
    from assay.data.table.table_encoder import TableEncoder

_MODE_OF = {1: "GRAY", 3: "RGB"}
_PICTURES = (str, Path, Image.Image, np.ndarray, Tensor)


def to_training_dtype(samples: Tensor, name: str) -> Tensor:
    """Samples in the type that the data had, where that changes no value's meaning."""
    trained_on = getattr(torch, name, None)
    if not isinstance(trained_on, torch.dtype) or samples.dtype == trained_on:
        return samples
    is_float = samples.is_floating_point()
    if trained_on.is_floating_point and samples.dtype != torch.uint8:
        if is_float:
            return samples
        return samples.float()
    low, high = (0.0, 0.0)
    if samples.numel():
        low, high = (float(samples.min()), float(samples.max()))
    if trained_on == torch.uint8 and is_float and low >= 0 and high <= 1:
        return samples
    if not is_float and not trained_on.is_floating_point:
        least, most = (0, 1)
        if trained_on != torch.bool:
            limits = torch.iinfo(trained_on)
            least, most = (limits.min, limits.max)
        if least <= low and high <= most:
            return samples.to(trained_on)
    raise DataError(
        f"the input is {samples.dtype} from {low:.4g} to {high:.4g}; the model was trained on {trained_on}",
        hint="convert it as the training data was: inputs.float(), inputs / 255, inputs.to(torch.uint8)",
    )


def as_rows(raw: Any, column: str) -> Any:
    """Texts as rows of a table; anything else as it is."""
    if isinstance(raw, str):
        return {column: raw}
    of_texts = (isinstance(raw, pd.Series) and column not in raw.index) or (
        isinstance(raw, list | tuple | np.ndarray)
        and len(raw)
        and all(isinstance(value, str) for value in raw)
    )
    if of_texts:
        return pd.DataFrame({column: list(raw)})
    return raw


_SCALING = (
    nn.Identity,
    *(v2.Identity, v2.Resize, v2.RGB, v2.Grayscale, v2.Normalize),
    *(v2.ConvertImageDtype, v2.ToDtype, v2.ToImage),
)
"""Transforms that leave each part of a picture where it is."""

_FAR = 30.0
"""Standard deviations from the training data, on average, that no input of the same kind is away."""


@final
class Preprocess(nn.Module):
    """Everything that a run's data does to raw input before the model sees it."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        *,
        source: Any = None,
        transforms: Transforms | None = None,
        encoder: TableEncoder | TextEncoder | None = None,
        raw_shape: Sequence[int] = (),
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.spec = dict(spec)
        self.source = source
        self.encoder = encoder
        self.dtype = dtype
        self.transforms = transforms or Transforms()
        self.normalize = Normalize(
            tuple(spec.get("mean") or ()), tuple(spec.get("std") or ()), one_hot_sizes(spec)
        )
        self.input_shape = stored_shape(spec)
        self._decoding: Decoding | None = None
        """How the run's source decodes pictures; None where they are no pictures."""
        raw_input = info_of(source).raw_input
        if raw_input == "images":
            self._decoding = source.decoding
        elif (
            len(raw_shape) == 3
            and spec.get("input_dtype") == "uint8"
            and raw_shape[0] in _MODE_OF
        ):
            self._decoding = _MODE_OF[raw_shape[0]], None, None
        self.takes_pictures = self._decoding is not None
        self.takes_arrays = raw_input == "arrays"
        self.array_names: Sequence[str] = ("inputs",)
        if self.takes_arrays:
            self.array_names = source.input_names
        self.file_options = {"separator": AUTO, "decimal": "."}
        self.targets: tuple[str, ...] = ()
        if raw_input == "table":
            self.file_options = source.file_options
            self.targets = tuple(source.targets)
        self._here: Tensor
        # moves along with the model
        self.register_buffer("_here", torch.empty(0), persistent=False)

    def forward(self, raw: Any) -> Tensor:
        """What the model takes, on its device: `[N, *input_shape]`, also of a single sample."""
        samples, _ = self.samples(raw)
        if far := self.far_off(samples):
            warnings.warn(far, stacklevel=2)
        return self.normalized(samples)

    def normalized(self, samples: Tensor) -> Tensor:
        """Normalised samples, on the model's device."""
        # as the batches of its run are cut
        if isinstance(self.encoder, TextEncoder) and len(samples):
            samples = samples[:, : padded_length(int((samples != 0).sum(1).max()))]
        return self.normalize(samples.to(self._here.device), self.dtype)

    def far_off(self, samples: Tensor) -> str:
        """A sentence where the range or unit of samples seems to be another one than in training."""
        far = (
            float(self.normalized(samples).abs().mean())
            if self.normalize.mean and samples.numel()
            else 0
        )
        if not far > _FAR:
            return ""
        return (
            f"the inputs lie {far:.0f} standard deviations from the training data on average: check their "
            "range and unit"
        )

    def samples(self, raw: Any) -> tuple[Tensor, bool]:
        """Samples `[N, *input_shape]` before normalisation, and whether they are a single one."""
        if isinstance(self.encoder, TextEncoder):
            raw = as_rows(raw, self.encoder.column)
        if isinstance(raw, pd.DataFrame):
            return self.rows(raw), False
        if isinstance(raw, pd.Series | Mapping):
            return self.rows(pd.DataFrame([dict(raw)])), True
        if isinstance(raw, str | os.PathLike | Image.Image):
            return self.picture(raw), True
        if isinstance(raw, list | tuple) and raw:
            if all(isinstance(row, pd.Series | Mapping) for row in raw):
                return self.rows(pd.DataFrame([dict(row) for row in raw])), False
            if any(isinstance(row, _PICTURES) for row in raw):
                return self._stacked([self._picture_of(row) for row in raw]), False
        batch, single = self._as_batch(raw)
        return self._checked(self._transformed(batch)), single

    def rows(self, frame: pd.DataFrame) -> Tensor:
        """Rows of a table, encoded: `[N, F]`."""
        encoder = self.fitted_encoder()
        names = [str(name) for name in frame.columns]
        check_trained_columns(encoder.columns, names)
        decimal = self.file_options["decimal"]
        decimal = encoder.csv.get("decimal", ".") if decimal == AUTO else decimal
        samples, errors, odd = self.encoded(frame.set_axis(names, axis=1), decimal)
        if errors:
            row, error = min(errors.items())
            message = f"row {row} (rows count from 0): {error}"
            raise DataError(
                message, hint=f"clean or leave out such rows ({len(errors):,} of {len(frame):,})"
            )
        for sentence in describe_unusual(odd, range(len(frame))):
            warnings.warn(sentence, stacklevel=2)
        return samples

    def encoded(
        self, frame: pd.DataFrame, decimal: str
    ) -> tuple[Tensor, Mapping[int, str], Mapping[int, str]]:
        """Rows that can be encoded, `[N, F]`; errors of the others, and what is odd, by position."""
        encoder = self.fitted_encoder()
        rows = prepare_rows(frame, encoder.columns, self.file_options.get("na_values", AUTO))
        judged = judge_rows(rows, encoder.columns, decimal=decimal)
        good = judged.frame.drop(index=[*judged.errors])
        samples = self._checked(self._transformed(encoder.encode(good)))
        odd = dict(judged.warnings)
        if isinstance(encoder, TextEncoder):
            for index, problem in encoder.odd(samples).items():
                row = good.index[index]
                if row in odd:
                    odd[row] = f"{odd[row]}; {problem}"
                else:
                    odd[row] = problem
        return samples, judged.errors, odd

    def fitted_encoder(self) -> TableEncoder | TextEncoder:
        """What encodes rows of a table, or of texts."""
        if self.encoder is None:
            message = "the model was not trained on named columns"
            raise DataError(
                message, hint=f"give an array [B, {self._wanted}], such as frame.to_numpy()"
            )
        return self.encoder

    def picture(self, raw: Any) -> Tensor:
        """A picture as the run's data has them after the transforms, `[1, C, H, W]`."""
        return self._stacked([self._picture_of(raw)])

    def sizes(self, raw: Any) -> list[tuple[int, int]]:
        """Height and width of each picture as it is given; masks are scaled back to them."""
        for transform, key in zip(self.transforms.transforms, self.transforms.keys, strict=True):
            if type(transform) not in _SCALING:
                raise DataError(
                    f"{key}: a mask cannot be scaled back to the size of a picture after "
                    f"{type(transform).__name__}",
                    hint="train with data/transform=resize, or take the model's own: assay.load(run).outputs",
                )
        if isinstance(raw, str | os.PathLike):
            return [size_of(str(raw)) or (0, 0)]
        if isinstance(raw, Image.Image):
            return [upright_size(raw)]
        if isinstance(raw, list | tuple) and any(isinstance(sample, _PICTURES) for sample in raw):
            return [size for sample in raw for size in self.sizes(sample)]
        batch = self._as_batch(raw)[0]
        return [(int(batch.shape[-2]), int(batch.shape[-1]))] * len(batch)

    # -- what comes in which form ----------------------------------------------------------------------------

    def _picture_of(self, raw: Any) -> Tensor:
        """A picture, or an array of one, before the transforms."""
        if isinstance(raw, np.ndarray | Tensor):
            batch: Tensor = self._as_batch(raw)[0][0]
            return batch
        if self._decoding is None:
            raise DataError(
                f"{'the input' if isinstance(raw, Image.Image) else raw}: the model was not trained on files "
                "of pictures",
                hint=f"give an array [B, {self._wanted}]"
                if self.encoder is None
                else "give its rows, such as pandas.read_csv(FILE); assay predict RUN FILE reads files",
            )
        if isinstance(raw, Image.Image):
            try:
                picture = picture_as_tensor(raw, *self._decoding)
            except (OSError, ValueError) as error:
                raise DataError(f"the picture cannot be used: {error}") from error
        else:
            picture = read_image(str(raw), *self._decoding)
        return picture

    def _as_batch(self, raw: Any) -> tuple[Tensor, bool]:
        """Samples of an array as the run's source has them, `[N, …]`, and whether they are a single one."""
        tensor = raw
        if not isinstance(raw, Tensor):
            try:
                array = np.asarray(raw)
            except ValueError as error:
                raise DataError(f"the input cannot become an array: {error}") from error
            if array.dtype.kind not in "biuf":
                message = f"the input is a {type(raw).__name__} of {array.dtype} that cannot become a tensor"
                raise DataError(message, hint=f"give numbers [B, {self._wanted}]")
            # torch warns of what it must not change
            tensor = as_tensor(array if array.flags.writeable else array.copy(), "the input")
        single = self.is_single(tensor.ndim)
        if single:
            tensor = tensor[None]
        return self.source.in_layout(tensor) if self.takes_arrays else tensor, single

    def is_single(self, ndim: int) -> bool:
        """Whether an array of so many dimensions is one sample."""
        without_channels = self.takes_arrays and self.source.layout == "NHW"
        return 0 < ndim == len(self.input_shape) - without_channels

    # -- what every form goes through ------------------------------------------------------------------------

    def _stacked(self, samples: Sequence[Tensor]) -> Tensor:
        """One batch of samples that may differ in shape before the transforms."""
        if len({sample.shape for sample in samples}) == 1:
            return self._checked(self._transformed(torch.stack(list(samples))))
        return self._checked(stack([self._transformed(sample[None])[0] for sample in samples]))

    def _transformed(self, batch: Tensor) -> Tensor:
        if batch.ndim:
            return self.transforms.transform_inputs(batch)
        return batch

    def _checked(self, samples: Tensor) -> Tensor:
        expected = self.input_shape
        if not expected or (samples.ndim and tuple(samples.shape[1:]) == expected):
            return to_training_dtype(samples, str(self.spec.get("input_dtype") or ""))
        hint = f"give [B, {self._wanted}]"
        if self.takes_pictures and len(expected) == 3:
            size = str(list(expected[1:])).replace(" ", "")
            hint += f"; of pictures of any size: train with data.source.image_size={size}, which scales them"
        message = f"the input has shape {tuple(samples.shape)}; the model was trained on [B, {self._wanted}]"
        raise DataError(message, hint=hint)

    @property
    def _wanted(self) -> str:
        return ", ".join(str(size) for size in self.input_shape)
