"""Samples rendered for people: an image, or a row of named values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torchvision.transforms.v2.functional import to_pil_image  # type: ignore[import-untyped]  # it ships no types

from assay.data.core.loaders import KeyedDataset, input_of, parts_of
from assay.data.core.transforms import stack
from assay.quoting import to_utf8
from assay.task.predictions import encode_png

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from assay.data.core.data_module import DataModule
    from assay.data.core.normalize import Normalize
    from assay.data.core.subset import Subset
    from assay.data.core.types import Frame, Pair, Strings


def eval_samples(data: DataModule, name: str, positions: Sequence[int]) -> Pair:
    """Inputs, normalised and on the device of the run, and targets."""
    inputs, targets = read_inputs(data, name, positions)
    return data.prepare_batch(inputs.to(data.device), targets.to(data.device), data.dtype)


def read_inputs(data: DataModule, name: str, positions: Sequence[int]) -> Pair:
    """Inputs as the data holds them, and targets."""
    subset = data.ready_subset(name, "eval")
    inputs = torch.stack(list(map(input_of, _read(subset, positions, data.seed))))
    return inputs, subset.data.targets[subset.rows[list(positions)]]


def sample_names(data: DataModule) -> list[str]:
    """Paths within the data's folder, or rows of the source."""
    samples = data.splits.data[data.tested]
    rows = data.splits.rows[data.tested].tolist()
    if samples.names:
        return [to_utf8(samples.names[row]) for row in rows]
    return list(map(str, rows))


def feature_names(data: DataModule) -> Strings:
    """What each value of a flat input is called; empty where that is unknown."""
    encoded: Strings = getattr(data.encoder, "feature_names", ())
    names: Strings = data.splits.data[data.tested].columns
    return encoded or names


def show_test_samples(data: DataModule, positions: Sequence[int]) -> list[RenderedSample]:
    """Some test samples, rendered for people."""
    splits = data.splits
    if (pieces := getattr(data.encoder, "pieces", None)) is not None:
        targets = splits.targets(data.tested)[torch.as_tensor(positions)]
        return [RenderedSample(None, {TOKENS: pieces(tokens)}) for tokens in targets.tolist()]
    columns = splits.data[data.tested].columns
    subset = data.ready_subset(data.tested, "eval")
    return show(subset, positions, data.seed, splits.raw.get(data.tested), columns)


TOKENS = "tokens"
"""The column of a text, token by token."""
_LARGEST = 128
"""Pixels along the longer side, beyond which an image is made smaller."""
_MOST_COLUMNS = 1000
_LONGEST_TEXT = 400


class RenderedSample(NamedTuple):
    """A rendered sample."""

    picture: bytes | None
    row: dict[str, Any] | None
    target: NDArray[Any] | None = None


def show(
    subset: Subset, positions: Sequence[int], seed: int, raw: Frame | None, columns: Strings
) -> list[RenderedSample]:
    """Samples of a subset, transformed as the model gets them and not normalised."""
    samples = _read(subset, positions, seed)
    inputs = [input_of(sample) for sample in samples]
    targets = [_target_of(sample) for sample in samples]
    if raw is None:
        images = _pictures(inputs)
        rows = [_row(one, columns) for one in inputs]
    else:
        images = [None] * len(inputs)
        rows = _rows(raw.iloc[list(positions)])
    return [RenderedSample(*one) for one in zip(images, rows, targets, strict=True)]


def _read(subset: Subset, positions: Sequence[int], seed: int) -> list[Any]:
    """Samples as their loader reads them; no random numbers are drawn from the run's generators."""
    dataset = KeyedDataset(subset.data, subset.transforms, seed)
    with torch.random.fork_rng(devices=[]):
        return [
            dataset[0, int(subset.rows[position]), int(subset.keys[position])]
            for position in positions
        ]


def _target_of(sample: Any) -> NDArray[Any] | None:
    target = parts_of(sample)[1]
    if isinstance(target, Tensor):
        return target.numpy()
    return None


def show_augmented(
    subset: Subset,
    positions: Sequence[int],
    seed: int,
    augment: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    normalize: Normalize,
) -> list[RenderedSample]:
    """Samples of a subset after its transforms and what is done to batches, in the unit from before that."""
    inputs = stack([input_of(sample) for sample in _read(subset, positions, seed)])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        targets = subset.data.targets[subset.rows[list(positions)]]
        restored = normalize.denormalize(augment(inputs, targets)[0])
    images = zip(_pictures(list(restored)), restored, strict=True)
    return [
        RenderedSample(picture, None if picture else _row(one, ())) for picture, one in images
    ]


def show_pairs(given: Tensor, returned: Tensor, columns: Strings) -> list[RenderedSample]:
    """Samples beside what a model made of them: images side by side, rows with a column for each."""
    both = [
        torch.stack([one, other]).float().cpu()
        for one, other in zip(given, returned, strict=True)
    ]
    shown = []
    for pair, picture in zip(both, _pictures([_beside(pair) for pair in both]), strict=True):
        original, reconstruction = (_row(one, columns) or {} for one in pair)
        row: dict[str, Any] = {}
        for name, value in original.items():
            row |= {name: value, f"{name}, reconstructed": reconstruction[name]}
        shown.append(RenderedSample(picture, row or None))
    return shown


def _beside(pair: Tensor) -> Tensor:
    """Two images `[C, H, W]` with a line of their mean between them; anything else as it is."""
    if pair.ndim != 4:
        return pair
    line = pair.mean().expand(*pair.shape[1:3], max(1, pair.shape[3] // 16))
    return torch.cat([pair[0], line, pair[1]], 2)


def _pictures(inputs: Sequence[Tensor]) -> list[bytes | None]:
    floats = [sample for sample in inputs if sample.is_floating_point()]
    low = min((float(sample.min()) for sample in floats), default=0.0)
    high = max((float(sample.max()) for sample in floats), default=1.0)
    low, high = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
    return [_png(sample, low, high) for sample in inputs]


def _png(inputs: Tensor, low: float, high: float) -> bytes | None:
    is_picture = inputs.ndim == 3 and inputs.shape[0] in (1, 3, 4) and min(inputs.shape) > 0
    is_real = inputs.is_floating_point()
    if not is_picture or not (is_real or inputs.dtype == torch.uint8):
        return None
    if is_real:
        inputs = ((inputs.double() - low) / (high - low or 1.0) * 255).round().clamp(0, 255)
    image = to_pil_image(inputs.to(torch.uint8))
    image.thumbnail((_LARGEST, _LARGEST))
    return encode_png(image)


def _row(inputs: Tensor, columns: Strings) -> dict[str, Any] | None:
    if inputs.ndim != 1 or not 0 < len(inputs) <= _MOST_COLUMNS:
        return None
    names = columns if len(columns) == len(inputs) else map(str, range(len(inputs)))
    values = inputs.tolist()
    if inputs.dtype == torch.float32:  # 13.44, not 13.4399995803833
        values = [float(str(value)) for value in inputs.numpy()]
    return dict(zip(names, values, strict=True))


def _rows(raw: Frame) -> list[dict[str, Any] | None]:
    if len(raw.columns) > _MOST_COLUMNS:
        return [None] * len(raw)
    records = raw.astype(object).where(raw.notna(), None).to_dict("records")
    return [{str(name): _plain(value) for name, value in record.items()} for record in records]


def _plain(value: Any) -> Any:
    """A value as JSON has it; what JSON lacks, such as a date, as text; long texts are cut."""
    if isinstance(value, int | float | bool | None):
        return value
    text = str(value)
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}…"
