"""Predictions that a run stores, and predictions of new samples: one class per kind."""

from __future__ import annotations

import io
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final, get_args

import numpy as np
from PIL import Image, ImageColor
from typing_extensions import override

from assay.quoting import format_number
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from assay.figure import Array

    Floats = NDArray[np.float32]


Kind = Literal[
    "probabilities",
    "values",
    "embeddings",
    "scores",
    "confusions",
    "surprisals",
    "reconstructions",
]
"""Kind of outputs; `scores` belong to a loss without probabilities, `confusions` are counts of pixels,
`surprisals` are bits of each token."""
KINDS: tuple[str, ...] = get_args(Kind)


@final
@dataclass(frozen=True, eq=False)
class StoredPredictions:
    """Outputs of a model for N samples, and their targets.

    Attributes:
        task: Name of the task.
        kind: Kind of `outputs`.
        keys: N texts that identify the samples: a path within the data's folder, or the row in its source.
        outputs: float32 `[N, C]` of multiclass and, with C = 2, of binary (one logit becomes two columns),
            `[N, L]` of multilabel, `[N, T]` of regression in the unit of the targets; embeddings `[N, D]`;
            for other tasks what `Task.kept` returns.
        targets: int64 `[N]` of classes, int8 `[N, L]` of labels, float32 `[N, T]` of a regression, for other
            tasks any of these; None if unknown.
        class_names: Of classes, labels or the targets of a regression; may be empty for a regression.
        subset: `test`, `val` or `train`.
        num_evaluated: Number of evaluated samples, if these are a random subset of them; 0: these are all.
        threshold: For two classes, the smallest probability at which the second one is predicted.

    Raises:
        ValueError: Shapes do not match.
    """

    task: str
    kind: Kind
    keys: tuple[str, ...]
    outputs: Floats
    targets: Array | None
    class_names: tuple[str, ...]
    subset: str = "test"
    num_evaluated: int = 0
    threshold: float = 0.5

    def __post_init__(self) -> None:
        targets = self.targets
        if targets is None:
            targets = self.outputs
        width = self.outputs.shape[-1]
        num_names = len(self.class_names)
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r}: expected one of {', '.join(KINDS)}")
        if self.outputs.ndim != 2 or not len(self.keys) == len(self.outputs) == len(targets):
            raise ValueError(
                f"{len(self.keys)} keys, outputs {list(self.outputs.shape)} and targets "
                f"{list(targets.shape)} do not have the same number of samples"
            )
        if (self.kind in ("probabilities", "values") and num_names not in (0, width)) or (
            self.kind == "confusions" and num_names**2 != width
        ):
            raise ValueError(f"got {num_names} class names for {width} outputs")

    @property
    def classes(self) -> NDArray[np.int64]:
        """Index of the predicted class of each sample."""
        return choose_classes(self.outputs, self.threshold)

    def at(self, threshold: Mapping[str, Any]) -> StoredPredictions:
        """Return the predictions at the threshold of a record, if it has one."""
        if threshold:
            return replace(self, threshold=float(threshold["value"]))
        return self


def choose_classes(scores: Floats, threshold: float) -> NDArray[np.int64]:
    """Return the index of the class with the highest score, or of two by the threshold."""
    if scores.shape[-1] == 2 and threshold != 0.5:
        return np.asarray(scores[..., 1] >= threshold, dtype=np.int64)
    return np.asarray(scores.argmax(-1))


MOST_COLUMNS = 100
"""Most classes or labels for which a table has one column each."""
_SHOWN = 10


class Predictions(ABC):
    """Predictions of several samples, or of one; an index selects the predictions of one sample.

    Subclasses are frozen dataclasses whose first field is an array over the samples, `[N, …]`, or that of
    one, `[…]`, as are other arrays; the other fields apply to all samples.

    Attributes:
        file_suffix: Of the files that are written beside a table, one per prediction; empty: none.
        sample_ndim: Dimensions of the array of one sample.
    """

    file_suffix: ClassVar[str] = ""
    sample_ndim: ClassVar[int] = 1

    @property
    def outputs(self) -> Floats:
        """The array over all samples, `[N, …]`."""
        outputs: Floats = next(iter(vars(self).values()))
        return outputs

    @abstractmethod
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        """Return the columns of a table of the predictions: name to N values.

        Args:
            top_k: How many classes to list.
        """

    @abstractmethod
    def in_words(self) -> str:
        """Describe the prediction of one sample."""

    def resized(self, sizes: Sequence[tuple[int, int]]) -> Predictions:
        """Return the predictions for pictures of other sizes; only masks differ.

        Args:
            sizes: Original height and width of each picture.
        """
        del sizes
        return self

    def file_of(self, index: int) -> bytes:
        """Return the contents of the file of a prediction, if there is a `file_suffix`.

        Args:
            index: Of the prediction.
        """
        raise NotImplementedError(f"{type(self).__name__} has no file for prediction {index}")

    def to_frame(self, top_k: int = 3) -> pd.DataFrame:
        """Return a table with one row per sample.

        Args:
            top_k: As for `columns`.
        """
        import pandas as pd

        if self.outputs.ndim == self.sample_ndim:
            several = self._at(None)
        else:
            several = self
        return pd.DataFrame(dict(several.columns(top_k)))

    def _at(self, index: Any) -> Any:
        fields: Any = vars(self)
        changed = {
            name: value[index] for name, value in fields.items() if hasattr(value, "dtype")
        }
        return type(self)(**fields | changed)

    def __len__(self) -> int:
        return len(self.outputs)

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        if self.outputs.ndim == self.sample_ndim:
            raise TypeError("the prediction of a single sample cannot be indexed")
        return self._at(index)

    def __str__(self) -> str:
        if self.outputs.ndim == self.sample_ndim:
            return printable(self.in_words())
        rows = [f"{row}  {prediction}" for row, prediction in enumerate(self[:_SHOWN])]
        footer = []
        if len(self) > _SHOWN:
            footer = [f"… {len(self):,} in all"]
        return "\n".join([*rows, *footer]) or "no predictions"


def labels_on(probabilities: Array) -> Array:
    """Return which labels are on: those with a probability above 0.5, as in torchmetrics."""
    return probabilities > 0.5


def _score_columns(word: str, names: Sequence[str], scores: Array) -> dict[str, Any]:
    if len(names) > MOST_COLUMNS:
        return {}
    return {f"{word} {name}": scores[:, index] for index, name in enumerate(names)}


def _format_scores(pairs: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {score:.4f}" for name, score in pairs)


@dataclass(frozen=True, eq=False)
class Scored(Predictions):
    """Predictions that are scores of named classes or labels.

    Attributes:
        scores: Float32, probabilities, or the model's outputs if the run's loss defines no probabilities.
        class_names: Of classes or labels.
        kind: `probabilities`, or `scores`.
    """

    scores: Floats
    class_names: tuple[str, ...]
    kind: Kind = "probabilities"

    @property
    def probabilities(self) -> Floats:
        """The `scores`, if they are probabilities."""
        if self.kind != "probabilities":
            raise AttributeError("the run's loss defines no probabilities; use `scores`")
        return self.scores


@final
@dataclass(frozen=True, eq=False)
class ClassPredictions(Scored):
    """Classes of N samples, `scores` `[N, C]`, or of one: `index`, `label`, `probability`.

    Attributes:
        threshold: For two classes, the smallest probability at which the second one is predicted.
        uncertainty: Of an ensemble, the standard deviation of its members' probabilities of the predicted
            class, float32 `[N]`; None for other models.
    """

    threshold: float = 0.5
    uncertainty: Any = None

    @property
    def indices(self) -> NDArray[np.int64]:
        """Index of the class with the highest score, or by the threshold."""
        return choose_classes(
            self.scores, self.threshold if self.kind == "probabilities" else 0.5
        )

    @property
    def labels(self) -> list[str]:
        """Name of that class, N of them, or the only one."""
        return [self.class_names[index] for index in np.atleast_1d(self.indices)]

    @property
    def index(self) -> int:
        """Index of the class of one sample."""
        if self.scores.ndim > self.sample_ndim:
            raise TypeError(f"these are predictions of {len(self)} samples; [0] is the first one")
        return int(self.indices)

    @property
    def label(self) -> str:
        """Name of the class of one sample."""
        return self.class_names[self.index]

    @property
    def probability(self) -> float:
        """Probability of the class of one sample."""
        return float(self.probabilities[self.index])

    def top_k(self, k: int = 3) -> list[Any]:
        """Return the k most likely classes, each with its score; for several samples a list of these."""
        if self.scores.ndim > 1:
            return [prediction.top_k(k) for prediction in self]
        best = np.argsort(-self.scores, kind="stable")[:k]
        return [(self.class_names[index], float(self.scores[index])) for index in best]

    @override
    def in_words(self) -> str:
        return _format_scores(self.top_k())

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        word = "score"
        if self.kind == "probabilities":
            word = "probability"
        names = np.asarray(self.class_names, dtype=object)
        ranked = self.scores.copy()
        ranked[np.arange(len(ranked)), self.indices] = np.inf
        best = np.argsort(-ranked, axis=1, kind="stable")[:, : max(1, top_k)]
        labels = names[best].T
        scores = np.take_along_axis(self.scores, best, 1).T
        columns: dict[str, Any] = {"prediction": labels[0], word: scores[0]}
        for rank in range(1, len(labels)):
            columns[f"top_{rank + 1}"] = labels[rank]
            columns[f"{word}_{rank + 1}"] = scores[rank]
        if self.uncertainty is not None:
            columns["uncertainty"] = self.uncertainty
        return columns | _score_columns(word, self.class_names, self.scores)


@final
@dataclass(frozen=True, eq=False)
class LabelPredictions(Scored):
    """Labels of N samples, or of one."""

    @property
    def labels(self) -> Any:
        """Names of the labels with a probability above 0.5, a tuple for each sample."""
        if self.scores.ndim > 1:
            return [prediction.labels for prediction in self]
        return tuple(compress(self.class_names, labels_on(self.probabilities)))

    @override
    def in_words(self) -> str:
        return _format_scores(zip(self.class_names, self.scores, strict=True))

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        if self.kind != "probabilities":
            return _score_columns("score", self.class_names, self.scores)
        columns = {"prediction": [";".join(labels) for labels in self.labels]}
        return columns | _score_columns("probability", self.class_names, self.scores)


@final
@dataclass(frozen=True, eq=False)
class ValuePredictions(Predictions):
    """Predicted targets of N samples, or of one, in their unit.

    Attributes:
        values: Float32 `[N, T]` or `[T]`.
        names: Of the T targets.
        uncertainty: Of an ensemble, the standard deviation of its members' values, in their shape and unit;
            None for other models.
    """

    values: Floats
    names: tuple[str, ...]
    uncertainty: NDArray[np.float32] | None = None

    @property
    def value(self) -> float:
        """Value of the only target of one sample."""
        return float(self.values.item())

    def __float__(self) -> float:
        return self.value

    @override
    def in_words(self) -> str:
        pairs = zip(self.names, self.values, strict=True)
        return ", ".join(f"{name} {format_number(value, 6)}" for name, value in pairs)

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        columns = {}
        for kind, values in (("prediction", self.values), ("uncertainty", self.uncertainty)):
            if values is None:
                continue
            for index, name in enumerate(self.names):
                suffix = f"_{name}" * (len(self.names) > 1)
                columns[f"{kind}{suffix}"] = values[:, index]
        return columns


@final
@dataclass(frozen=True, eq=False)
class EmbeddingPredictions(Predictions):
    """Embeddings of N samples, or of one.

    Attributes:
        vectors: Float32 `[N, D]` or `[D]`.
    """

    vectors: Floats

    @override
    def in_words(self) -> str:
        return str(self.vectors)

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        return {
            f"embedding_{index}": self.vectors[:, index] for index in range(self.vectors.shape[1])
        }


@final
@dataclass(frozen=True, eq=False)
class ReconstructionPredictions(Predictions):
    """Reconstructions of N samples, or of one, from their latent vectors.

    Attributes:
        rows: Float32 `[N, 1 + L + D]` or `[1 + L + D]`: error, latent vector, flattened reconstruction.
        shape: Of one sample, D values in all.
    """

    rows: Floats
    shape: tuple[int, ...]

    @property
    def errors(self) -> Any:
        """Mean squared difference to the sample, both normalised as the model sees them."""
        return self.rows[..., 0]

    @property
    def latents(self) -> Floats:
        """Float32 `[N, L]`; empty for a model without an `encode`."""
        return self.rows[..., 1 : self.rows.shape[-1] - math.prod(self.shape)]

    @property
    def reconstructions(self) -> Floats:
        """Float32 `[N, *shape]`, in the unit of the samples, bytes as 0 to 1."""
        flat = self.rows[..., self.rows.shape[-1] - math.prod(self.shape) :]
        return flat.reshape(*flat.shape[:-1], *self.shape)

    @property
    def error(self) -> float:
        """Error of one sample."""
        return float(self.errors)

    @override
    def in_words(self) -> str:
        return f"error {format_number(self.error, 6)}"

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        latents = {f"latent_{index}": column for index, column in enumerate(self.latents.T)}
        return {"reconstruction_error": self.errors} | latents


SIGN = "="
"""Between the name of a head and that of a class, such as `species=setosa`; no head's name holds it."""


@final
@dataclass(frozen=True)
class Head:
    """The part of a model's outputs that predicts one target."""

    name: str
    column: int
    start: int
    class_names: tuple[str, ...] = ()

    @property
    def num_outputs(self) -> int:
        """One for each class, or a single one."""
        return len(self.class_names) or 1

    def of(self, outputs: Any) -> Any:
        """Select the outputs of this head."""
        return outputs[..., self.start : self.start + self.num_outputs]

    def targets_of(self, targets: Any) -> Any:
        """Select the targets of this head, in the form of a single task."""
        column = targets[:, self.column]
        if self.class_names:
            return column.long()
        return column[:, None]


def parse_heads(output_names: Sequence[str]) -> tuple[Head, ...]:
    """Parse names of outputs into heads, in the order of outputs and targets."""
    heads: list[Head] = []
    for index, output_name in enumerate(output_names):
        name, sign, class_name = output_name.partition(SIGN)
        if sign and heads and heads[-1].name == name:
            head = heads[-1]
            heads[-1] = Head(name, head.column, head.start, (*head.class_names, class_name))
        else:
            heads.append(Head(name, len(heads), index, (class_name,) if sign else ()))
    return tuple(heads)


def name_outputs(name: str, class_names: Sequence[str]) -> list[str]:
    """Name the outputs of a head; `parse_heads` is the inverse."""
    return [f"{name}{SIGN}{class_name}" for class_name in class_names] or [name]


def metric_keys(names: Sequence[str]) -> list[str]:
    """Turn names of targets into unique prefixes of metric names, in which torch allows no dot.

    >>> metric_keys(["price.eur", "rent", "price_eur"])
    ['price_eur_0', 'rent', 'price_eur_2']
    """
    keys = [name.replace(".", "_") for name in names]
    return [key if keys.count(key) == 1 else f"{key}_{index}" for index, key in enumerate(keys)]


@final
@dataclass(frozen=True, eq=False)
class MultitaskPredictions(Predictions):
    """Predictions of all targets of N samples, or of one; indexed by name, those of one target.

    Attributes:
        values: Float32 `[N, all outputs]`: probabilities of classes, numbers in their unit.
        names: One per output, `target=class` or `target`.
    """

    values: Floats
    names: tuple[str, ...]

    def of(self, target: str) -> ClassPredictions | ValuePredictions:
        """Return the predictions of one target."""
        return self._by_target()[target]

    @override
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            return self.of(index)
        return super().__getitem__(index)

    @override
    def in_words(self) -> str:
        return "; ".join(
            f"{name}: {part.in_words()}"
            if isinstance(part, ClassPredictions)
            else part.in_words()
            for name, part in self._by_target().items()
        )

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        return {
            name if column == "prediction" else f"{name} {column}": values
            for name, predictions in self._by_target().items()
            for column, values in predictions.columns(top_k).items()
        }

    def _by_target(self) -> dict[str, ClassPredictions | ValuePredictions]:
        return {
            head.name: ClassPredictions(head.of(self.values), head.class_names)
            if head.class_names
            else ValuePredictions(head.of(self.values), (head.name,))
            for head in parse_heads(self.names)
        }


_ALPHA = 0.6
_GAP = 4
_SMALLEST = 160
"""Pixels of the longer side below which a picture is enlarged by a whole factor."""


def palette() -> NDArray[np.uint8]:
    """Return the colours of a mask's values, `[256, 3]`: the first class is dark, ignored pixels white."""
    colours = [  # hues turn by the golden ratio
        ImageColor.getrgb(
            f"hsv({label * 222.4922 % 360:.4f},{55 + 40 * (label % 2)}%,{95 - 20 * (label // 2 % 2)}%)"
        )
        for label in range(256)
    ]
    table = np.array(colours, np.uint8)
    table[0] = (40, 40, 48)
    table[255] = (255, 255, 255)
    return table


def mask_png(mask: NDArray[np.uint8]) -> bytes:
    """Encode a PNG file whose pixels are the classes, with a palette of colours."""
    image = Image.fromarray(np.ascontiguousarray(mask), "L")
    image.putpalette(palette().tobytes())
    return encode_png(image)


def swatch(label: int) -> bytes:
    """Encode a small PNG file in the colour of a class."""
    return encode_png(Image.new("RGB", (24, 24), tuple(palette()[label].tolist())))


def side_by_side(picture: bytes, *masks: Array) -> bytes:
    """Encode a PNG file: a picture, then overlaid with each mask."""
    return draw_beside(picture, [partial(_overlay_mask, mask=mask) for mask in masks])


def draw_beside(
    picture: bytes, overlays: Sequence[Callable[[Image.Image], Image.Image]]
) -> bytes:
    """Encode a PNG file: a picture, then what each overlay makes of it."""
    with Image.open(io.BytesIO(picture), formats=("PNG",)) as opened:
        base = opened.convert("RGB")
    times = max(1, _SMALLEST // max(base.size))
    base = base.resize((base.width * times, base.height * times), Image.Resampling.NEAREST)
    panels = [base, *(overlay(base) for overlay in overlays)]
    width = len(panels) * (base.width + _GAP) - _GAP
    strip = Image.new("RGB", (width, base.height), "white")
    for place, panel in enumerate(panels):
        strip.paste(panel, (place * (base.width + _GAP), 0))
    return encode_png(strip)


def _overlay_mask(base: Image.Image, mask: Array) -> Image.Image:
    small = Image.fromarray(mask.astype(np.uint8), "L").resize(
        base.size, Image.Resampling.NEAREST
    )
    colours = Image.fromarray(palette()[np.asarray(small)], "RGB")
    return Image.blend(base, colours, _ALPHA)


def encode_png(image: Image.Image) -> bytes:
    """A PNG file of an image."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


_MOST_SAID = 3


@final
@dataclass(frozen=True, eq=False)
class MaskPredictions(Scored):
    """The classes of the pixels of N pictures, or of one: `mask`, `shares`, `png`.

    Scores have the size that the model works in.

    Attributes:
        sizes: Original height and width, `[N, 2]` or `[2]`; None: the size that the model works in.
    """

    file_suffix: ClassVar[str] = ".png"
    sample_ndim: ClassVar[int] = 3

    sizes: NDArray[np.int64] | None = None

    @property
    def masks(self) -> list[NDArray[np.uint8]]:
        """Class of each pixel, uint8 `[height, width]` of each picture."""
        return [prediction.mask for prediction in self]

    @property
    def mask(self) -> NDArray[np.uint8]:
        """Class of each pixel of one picture, in its original size, to which the scores are scaled."""
        height, width = self.scores.shape[1:]
        if self.sizes is not None:
            height, width = self.sizes.tolist()
        planes = [
            Image.fromarray(plane.astype(np.float32)).resize(
                (width, height), Image.Resampling.BILINEAR
            )
            for plane in self.scores
        ]
        return np.asarray(np.stack([*map(np.asarray, planes)]).argmax(0), np.uint8)

    @property
    def shares(self) -> dict[str, float]:
        """Share of each class in the pixels of one picture."""
        counts = np.bincount(self.mask.reshape(-1), minlength=len(self.class_names))
        return dict(zip(self.class_names, (counts / counts.sum()).tolist(), strict=True))

    def png(self) -> bytes:
        """Encode the mask of one picture as a PNG file: its pixels are the classes, shown in colours."""
        return mask_png(self.mask)

    @override
    def in_words(self) -> str:
        ordered = sorted(self.shares.items(), key=lambda share: -share[1])
        return ", ".join(
            f"{name} {100 * share:.1f} %" for name, share in ordered[:_MOST_SAID] if share
        )

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        rows = [list(prediction.shares.values()) for prediction in self]
        shares = np.reshape(rows, (-1, len(self.class_names)))
        names = np.asarray(self.class_names, dtype=object)
        columns = {"prediction": names[shares.argmax(1)]}
        return columns | _score_columns("share", self.class_names, shares)

    @override
    def resized(self, sizes: Sequence[tuple[int, int]]) -> MaskPredictions:
        return replace(self, sizes=np.asarray(sizes))

    @override
    def file_of(self, index: int) -> bytes:
        return bytes(self[index].png())
