"""From what a user has to what a model takes: exactly what its run's data does when it evaluates."""

from __future__ import annotations

import codecs
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

from assay.data.array_file import read_inputs
from assay.data.arrays import as_tensor
from assay.data.images import as_tensor as picture_as_tensor
from assay.data.images import read_image, size_of, upright_size
from assay.data.normalize import Normalize
from assay.data.picture_folder import images_below
from assay.data.placement import padded_length
from assay.data.source_info import info_of
from assay.data.tabular.table_encoder import describe_odd, judge_rows
from assay.data.tabular.table_file import AUTO, found_options, table_chunks
from assay.data.text_encoder import TextEncoder
from assay.data.transforms import Transforms, stack
from assay.errors import ConfigError, DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.data.tabular.table_encoder import TableEncoder

_MODE_OF = {1: "GRAY", 3: "RGB"}
_PICTURES = (str, Path, Image.Image, np.ndarray, Tensor)


def of_type(samples: Tensor, name: str) -> Tensor:
    """Samples in the type that the data had, where that changes no value's meaning."""
    trained_on = getattr(torch, name, None)
    if not isinstance(trained_on, torch.dtype) or samples.dtype == trained_on:
        return samples
    is_float = samples.is_floating_point()
    if trained_on.is_floating_point and samples.dtype != torch.uint8:
        return samples if is_float else samples.float()
    low, high = (float(samples.min()), float(samples.max())) if samples.numel() else (0.0, 0.0)
    hint = "convert it as the training data was, for example inputs.float()"
    if trained_on == torch.uint8 and is_float:
        if low >= 0 and high <= 1:
            return samples
        hint = "floats from 0 to 1 may stand for it: inputs / 255; or inputs.to(torch.uint8)"
    elif not is_float and not trained_on.is_floating_point:
        least, most = (
            (0, 1) if trained_on == torch.bool else (torch.iinfo(trained_on).min, torch.iinfo(trained_on).max)
        )
        if least <= low and high <= most:
            return samples.to(trained_on)
    raise DataError(
        f"the input is {samples.dtype} from {low:.4g} to {high:.4g}; the model was trained on {trained_on}",
        hint=hint,
    )


_LONGEST_PATH = 200


def as_rows(raw: Any, column: str) -> Any:
    """Texts as rows of a table; anything else as it is."""
    if isinstance(raw, str):
        if len(raw) < _LONGEST_PATH and "\n" not in raw and Path(raw).is_file():
            raise DataError(
                f"{raw!r} is a text for this model, and there is a file of this name",
                hint=f"for the texts in the file: pathlib.Path({raw!r})",
            )
        return {column: raw}
    of_texts = (isinstance(raw, pd.Series) and column not in raw.index) or (
        isinstance(raw, list | tuple | np.ndarray) and len(raw) and all(isinstance(one, str) for one in raw)
    )
    return pd.DataFrame({column: list(raw)}) if of_texts else raw


def as_frame(raw: Sequence[Any]) -> pd.DataFrame:
    """One table of rows; a single mapping may be one of columns."""
    if len(raw) == 1 and isinstance(raw[0], Mapping):
        row = dict(raw[0])
        is_table = any(isinstance(value, list | np.ndarray | pd.Series) for value in row.values())
        return pd.DataFrame(row if is_table else [row])
    frames = [one if isinstance(one, pd.DataFrame) else pd.DataFrame([dict(one)]) for one in raw]
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


_SCALING = (
    nn.Identity,
    *(v2.Identity, v2.Resize, v2.RGB, v2.Grayscale, v2.Normalize),
    *(v2.ConvertImageDtype, v2.ToDtype, v2.ToImage),
)
"""Transforms that leave each part of a picture where it is."""

_ROWS = 8192
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
        self.spec, self.source, self.encoder, self.dtype = dict(spec), source, encoder, dtype
        self.transforms = transforms or Transforms()
        self.normalize = Normalize(tuple(spec.get("mean") or ()), tuple(spec.get("std") or ()))
        self.input_shape = tuple(spec.get("input_shape") or ())
        self._raw_shape = tuple(raw_shape)
        self._decoding: tuple[str, tuple[int, int] | None] | None = None
        """Mode and size of pictures as the run's source decodes them; None where they are no pictures."""
        raw_input = info_of(source).raw_input
        if raw_input == "pictures":
            self._decoding = source.mode, source.image_size
        elif len(self._raw_shape) == 3 and spec.get("input_dtype") == "uint8" and raw_shape[0] in _MODE_OF:
            self._decoding = _MODE_OF[self._raw_shape[0]], None
        self.takes_pictures = self._decoding is not None
        self.takes_arrays = raw_input == "arrays"
        self.array_names = source.input_names if self.takes_arrays else ("inputs",)
        table = source if raw_input == "table" else None
        self.file_options = {"separator": AUTO, "decimal": "."} if table is None else table.file_options
        self.targets = () if table is None else tuple(table.targets)
        self._here: Tensor
        self.register_buffer("_here", torch.empty(0), persistent=False)  # moves along with the model

    def forward(self, raw: Any) -> Tensor:
        """What the model takes, on its device: `[N, *input_shape]`, also of a single sample."""
        samples, _ = self.samples(raw)
        if far := self.far_off(samples):
            warnings.warn(far, stacklevel=2)
        return self.normalized(samples)

    def normalized(self, samples: Tensor) -> Tensor:
        """Normalised samples, on the model's device."""
        if isinstance(self.encoder, TextEncoder) and len(samples):  # as the batches of its run are cut
            samples = samples[:, : padded_length(int((samples != 0).sum(1).max()))]
        return self.normalize(samples.to(self._here.device), self.dtype)

    def far_off(self, samples: Tensor) -> str:
        """A sentence where the range or unit of samples seems to be another one than in training."""
        far = float(self.normalized(samples).abs().mean()) if self.normalize.mean and samples.numel() else 0
        if not far > _FAR:
            return ""
        return (
            f"the inputs lie {far:.0f} standard deviations from the training data on average: is their range "
            "or unit another one?"
        )

    def samples(self, raw: Any) -> tuple[Tensor, bool]:
        """Samples `[N, *input_shape]` before normalisation, and whether they are a single one."""
        if isinstance(self.encoder, TextEncoder):
            raw = as_rows(raw, self.encoder.column)
        if isinstance(raw, str | os.PathLike):
            raw = self._opened(Path(raw))
        if isinstance(raw, Image.Image | Path):
            return self._stacked([self._picture_of(raw)]), True
        if isinstance(raw, pd.DataFrame | pd.Series | Mapping):
            frame = as_frame([raw])
            return self.rows(frame), not isinstance(raw, pd.DataFrame) and len(frame) == 1
        if isinstance(raw, list | tuple) and raw:
            if all(isinstance(one, pd.DataFrame | pd.Series | Mapping) for one in raw):
                return self.rows(as_frame(raw)), False
            if any(isinstance(one, _PICTURES) for one in raw):
                return self._stacked([sample for one in raw for sample in self._each(one)]), False
        batch, single = self._as_batch(raw)
        return self._checked(self._transformed(batch)), single

    def rows(self, frame: pd.DataFrame) -> Tensor:
        """Rows of a table, encoded: `[N, F]`."""
        encoder = self.fitted_encoder()
        names = [str(name) for name in frame.columns]
        encoder.check_columns(names)
        decimal = self.file_options["decimal"]
        decimal = encoder.csv.get("decimal", ".") if decimal == AUTO else decimal
        judged = judge_rows(frame.set_axis(names, axis=1), encoder.columns, decimal=decimal)
        if judged.errors:
            row, error = min(judged.errors.items())
            raise DataError(
                f"row {row} (rows count from 0): {error}",
                hint=f"clean or leave out such rows ({len(judged.errors):,} of {len(frame):,})",
            )
        samples, odd = self.encoded(judged.frame), dict(judged.warnings)
        if isinstance(encoder, TextEncoder):
            odd |= encoder.odd(samples)
        for sentence in describe_odd(odd, range(len(frame))):
            warnings.warn(sentence, stacklevel=2)
        return samples

    def encoded(self, frame: pd.DataFrame) -> Tensor:
        """Rows of a table that were judged already, encoded: `[N, F]`."""
        return self._checked(self._transformed(self.fitted_encoder().encode(frame)))

    def fitted_encoder(self) -> TableEncoder | TextEncoder:
        """What encodes rows of a table, or of texts."""
        if self.encoder is None:
            raise DataError(
                "the model was not trained on named columns",
                hint=f"give an array [B, {self._wanted}], such as frame.to_numpy()",
            )
        return self.encoder

    def read_as(self, encoding: str) -> None:
        """Read CSV and .txt files in an encoding that is not the one of the run's own data."""
        if self.encoder is None:
            raise ConfigError("the model reads no tables", key="--encoding", hint="leave it out")
        try:
            codecs.lookup(encoding)
        except LookupError as error:
            raise ConfigError(str(error), key="--encoding", hint="--encoding latin-1") from error
        self.file_options = {**self.file_options, "encoding": encoding}

    def no_samples(self) -> Tensor:
        """`[0, *input_shape]`, in the data's own type."""
        known = getattr(torch, str(self.spec.get("input_dtype") or ""), None)
        return torch.empty(0, *self.input_shape, dtype=known if isinstance(known, torch.dtype) else None)

    def array_batch(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array with a dimension for samples, also of a single one."""
        return array[None] if self._is_single(array.ndim) else array

    def picture(self, raw: str | Path | Image.Image) -> Tensor:
        """A picture as the run's data has them after the transforms, `[1, C, H, W]`."""
        return self._stacked([self._picture_of(raw)])

    def sizes(self, raw: Any) -> list[tuple[int, int]]:
        """Height and width of each picture as it is given; masks are scaled back to them."""
        for transform, key in zip(self.transforms.transforms, self.transforms.keys, strict=True):
            if type(transform) not in _SCALING:
                raise DataError(
                    f"{key}: a mask cannot be brought back to the size of a picture after "
                    f"{type(transform).__name__}",
                    hint="train with data/transform=resize, or take the model's own: assay.load(run).outputs",
                )
        if isinstance(raw, str | os.PathLike):
            raw = self._opened(Path(raw))
        if isinstance(raw, Path):
            return [size_of(str(raw)) or (0, 0)]
        if isinstance(raw, Image.Image):
            return [upright_size(raw)]
        if isinstance(raw, list | tuple) and any(isinstance(one, _PICTURES) for one in raw):
            return [size for one in raw for size in self.sizes(one)]
        batch = self._as_batch(raw)[0]
        return [(int(batch.shape[-2]), int(batch.shape[-1]))] * len(batch)

    def extra_repr(self) -> str:
        """What goes in."""
        forms = [f"input: {self.spec.get('input_dtype', 'float32')} [B, {self._wanted}]"]
        if self.encoder is not None:
            forms.append(f"a DataFrame of {[column.name for column in self.encoder.columns]}")
        return " or ".join([*forms, *(["pictures"] if self.takes_pictures else [])])

    # -- what comes in which form ----------------------------------------------------------------------------

    def _opened(self, path: Path) -> Any:
        """What a file or folder holds: a frame, an array, pictures; a single picture stays a path."""
        name = path.name.lower()
        if path.is_dir():
            return [Path(found) for found in images_below(path)[0]]
        if self.encoder is not None:
            options = found_options(path, self.file_options)
            return pd.concat(list(table_chunks(path, self.encoder, _ROWS, **options)), ignore_index=True)
        if name.endswith((".npy", ".npz")):
            return read_inputs(path, self.array_names)
        return path

    def _each(self, raw: Any) -> list[Tensor]:
        """Samples before the transforms, perhaps of several shapes."""
        if isinstance(raw, str | os.PathLike):
            raw = self._opened(Path(raw))
            if isinstance(raw, list):
                return [self._picture_of(path) for path in raw]
        if isinstance(raw, Image.Image | Path):
            return [self._picture_of(raw)]
        return list(self._as_batch(raw)[0])

    def _picture_of(self, raw: str | Path | Image.Image) -> Tensor:
        if self._decoding is None:
            raise DataError(
                f"{'the input' if isinstance(raw, Image.Image) else raw}: the model was not trained on files "
                "of pictures",
                hint=f"give an array [B, {self._wanted}]",
            )
        if isinstance(raw, Image.Image):
            try:
                picture, name = picture_as_tensor(raw, *self._decoding), "the picture"
            except (OSError, ValueError) as error:
                raise DataError(f"the picture cannot be used: {error}") from error
        else:
            picture, name = read_image(str(raw), *self._decoding), str(raw)
        if self._raw_shape and tuple(picture.shape) != self._raw_shape:
            sizes = ["×".join(map(str, shape[1:])) for shape in (picture.shape, self._raw_shape)]
            raise DataError(
                f"{name} has {sizes[0]} pixels; the model was trained on pictures of {sizes[1]}",
                hint=f"scale it to {sizes[1]} first",
            )
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
                raise DataError(
                    f"the input is a {type(raw).__name__} of {array.dtype} that cannot become a tensor",
                    hint=f"give numbers [B, {self._wanted}]",
                )
            # torch warns of what it must not change
            tensor = as_tensor(array if array.flags.writeable else array.copy(), "the input")
        single = self._is_single(tensor.ndim)
        batch = tensor[None] if single else tensor
        return self.source.in_layout(batch) if self.takes_arrays else batch, single

    def _is_single(self, ndim: int) -> bool:
        without_channels = self.takes_arrays and self.source.layout == "NHW"
        return 0 < ndim == len(self.input_shape) - without_channels

    # -- what every form goes through ------------------------------------------------------------------------

    def _stacked(self, samples: Sequence[Tensor]) -> Tensor:
        """One batch of samples that may differ in shape before the transforms."""
        if not samples:
            return torch.empty(0, *self.input_shape)
        if len({sample.shape for sample in samples}) == 1:
            return self._checked(self._transformed(torch.stack(list(samples))))
        return self._checked(stack([self._transformed(sample[None])[0] for sample in samples]))

    def _transformed(self, batch: Tensor) -> Tensor:
        return self.transforms.batch(batch, 0, 0, torch.arange(len(batch))) if batch.ndim else batch

    def _checked(self, samples: Tensor) -> Tensor:
        self._check_shape(samples)
        return of_type(samples, str(self.spec.get("input_dtype") or ""))

    def _check_shape(self, samples: Tensor) -> None:
        wanted = self.input_shape
        if not wanted or (samples.ndim and tuple(samples.shape[1:]) == wanted):
            return
        channels_last = samples.ndim == len(wanted) + 1 and samples.shape[-1:] + samples.shape[1:-1] == wanted
        hint = (
            "channels come first: inputs.permute(0, 3, 1, 2)"
            if channels_last
            else f"give [B, {self._wanted}]"
        )
        raise DataError(
            f"the input has shape {tuple(samples.shape)}; the model was trained on [B, {self._wanted}]",
            hint=hint,
        )

    @property
    def _wanted(self) -> str:
        return ", ".join(str(size) for size in self.input_shape)
