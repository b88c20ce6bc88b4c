"""A trained model that takes what its run's data takes, and answers in the data's own unit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from assay.data.transform.normalize import Normalize
from assay.data.transform.target_scale import TargetScale
from assay.data.transform.transforms import Transforms
from assay.errors import DataError

if TYPE_CHECKING:
    from assay.data.tabular.table_encoder import TableEncoder

_FAR = 30.0
"""Standard deviations from the training data, on average, that no input of the same kind is away."""


@final
class LoadedModel(nn.Module):
    """What `assay.load` returns: the model behind everything that its run's data does to raw input.

    Raw input is what the run's source gives, before transforms and normalisation: images `[B, C, H, W]` as
    uint8 from 0 to 255 or floats from 0 to 1 (where the source gives floats: in their range), rows of numbers
    `[B, F]`, and of a table (`data=table`) also a `pandas.DataFrame`, or a list of mappings, with at least
    the columns that the model was trained on, in any order. A category that training lacked counts with the
    rarest ones, or as none, of which a warning tells. Input that cannot be what the model was trained on
    raises a `DataError`.

    The output is the model's, `[B, num_outputs]`: logits of classes or labels; of a regression the values in
    the target's own unit.

    Args:
        model: The trained model.
        spec: Node `spec` of the run; empty where its datamodule tells none, then inputs and outputs are the
            model's own.
        transforms: Of evaluation.
        encoder: Of a table.
        dtype: Floating type that the model takes.

    Attributes:
        model: The model alone, which takes normalised input; `model.model` of a `LightningModule` of one's
            own is that module.
    """

    def __init__(
        self,
        model: nn.Module,
        spec: Mapping[str, Any],
        *,
        transforms: Transforms | None = None,
        encoder: TableEncoder | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.model, self.spec = model, dict(spec)
        self._transforms, self._encoder, self._dtype = transforms or Transforms(), encoder, dtype
        self.mean, self.std = tuple(spec.get("mean") or ()), tuple(spec.get("std") or ())
        self._normalize = Normalize(self.mean, self.std)
        self._target_scale = TargetScale(spec.get("target_mean") or (), spec.get("target_std") or ())

    def forward(self, inputs: Any) -> Any:
        """Outputs for raw input.

        Args:
            inputs: A tensor or array `[B, ...]`, or rows of a table; moved to the model's device.

        Raises:
            DataError: It is not what the model was trained on.
        """
        if not self.spec:
            return self.model(inputs)
        return self._target_scale.restore(self.model(self.normalized(inputs)))

    def normalized(self, inputs: Any) -> Tensor:
        """What `model` takes.

        Args:
            inputs: As for `forward`.

        Raises:
            DataError: As `forward`.
        """
        raw = self._as_tensor(inputs)
        if self._transforms and raw.ndim:
            raw = self._transforms.batch(raw, 0, 0, torch.arange(len(raw)))
        self._check_shape(raw)
        device = next((parameter.device for parameter in self.model.parameters()), raw.device)
        normalized = self._normalize(self._of_known_type(raw).to(device), self._dtype)
        if self.mean and normalized.numel() and (far := float(normalized.abs().mean())) > _FAR:
            warnings.warn(
                f"the inputs lie {far:.0f} standard deviations from the training data on average: is their "
                "range or unit another one?",
                stacklevel=3,
            )
        return normalized

    def extra_repr(self) -> str:
        """What goes in and comes out."""
        if not self.spec:
            return ""
        shape = ", ".join(str(size) for size in self.spec.get("input_shape", ()))
        columns = (
            ""
            if self._encoder is None
            else f" or a DataFrame of {[one.name for one in self._encoder.columns]}"
        )
        return f"input: {self.spec.get('input_dtype', 'float32')} [B, {shape}]{columns}"

    def _as_tensor(self, inputs: Any) -> Tensor:
        if isinstance(inputs, Tensor):
            return inputs
        rows = isinstance(inputs, list | tuple) and len(inputs) > 0 and isinstance(inputs[0], Mapping)
        if isinstance(inputs, pd.DataFrame | Mapping) or rows:
            if self._encoder is None:
                raise DataError(
                    "the model was not trained on named columns",
                    hint=f"give an array [B, {self._wanted()}], such as frame.to_numpy()",
                )
            return _encoded(
                inputs if isinstance(inputs, pd.DataFrame) else pd.DataFrame(inputs), self._encoder
            )
        try:
            array = np.asarray(inputs)
            array = array if array.flags.writeable else array.copy()  # torch warns of what it must not change
            return torch.from_numpy(array) if array.dtype.isnative else torch.as_tensor(array.tolist())
        except (TypeError, ValueError) as error:
            raise DataError(
                f"the input is a {type(inputs).__name__} that cannot become a tensor: {error}",
                hint=f"give a tensor or an array [B, {self._wanted()}]",
            ) from error

    def _wanted(self) -> str:
        return ", ".join(str(size) for size in self.spec.get("input_shape", ()))

    def _check_shape(self, raw: Tensor) -> None:
        wanted = tuple(self.spec.get("input_shape", ()))
        if not wanted or (tuple(raw.shape[1:]) == wanted and raw.ndim):
            return
        hint = f"give [B, {self._wanted()}]"
        if tuple(raw.shape) == wanted:
            hint = "for a single sample: inputs[None]"
        elif raw.ndim == len(wanted) + 1 and raw.shape[-1:] + raw.shape[1:-1] == wanted:
            hint = "channels come first: inputs.permute(0, 3, 1, 2)"
        raise DataError(
            f"the input has shape {tuple(raw.shape)}; the model was trained on [B, {self._wanted()}]",
            hint=hint,
        )

    def _of_known_type(self, raw: Tensor) -> Tensor:
        """The input in the type that the data had, where that changes no value's meaning."""
        trained_on = getattr(torch, str(self.spec.get("input_dtype") or ""), None)
        if raw.is_complex():
            raise DataError("the input is complex", hint="give real numbers")
        if not isinstance(trained_on, torch.dtype) or raw.dtype == trained_on:
            return raw
        if trained_on.is_floating_point and raw.dtype != torch.uint8:
            return raw if raw.is_floating_point() else raw.float()
        low, high = (float(raw.min()), float(raw.max())) if raw.numel() else (0.0, 0.0)
        hint = "convert it as the training data was, for example inputs.float()"
        if trained_on == torch.uint8 and raw.is_floating_point():
            if low >= 0 and high <= 1:
                return raw
            hint = "floats from 0 to 1 may stand for it: inputs / 255; or inputs.to(torch.uint8)"
        elif not raw.is_floating_point() and not trained_on.is_floating_point:
            least, most = (0, 1) if trained_on == torch.bool else _limits(trained_on)
            if least <= low and high <= most:
                return raw.to(trained_on)
        raise DataError(
            f"the input is {raw.dtype} from {low:.4g} to {high:.4g}; the model was trained on {trained_on}",
            hint=hint,
        )


def _encoded(table: pd.DataFrame, encoder: TableEncoder) -> Tensor:
    rows = encoder.transform(table)
    for sentence in encoder.unknown(table):
        warnings.warn(sentence, stacklevel=2)
    return rows


def _limits(dtype: torch.dtype) -> tuple[int, int]:
    info = torch.iinfo(dtype)
    return info.min, info.max
