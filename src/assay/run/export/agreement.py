"""Does an exported file say what the original says, on samples of its data?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pandas as pd
import torch
from omegaconf.errors import ConfigAttributeError

from assay.build.datamodule import open_data
from assay.build.node import build
from assay.data.data_module import DataModule
from assay.data.loaders import KeyedDataset
from assay.data.normalize import stored_type
from assay.data.placement import padded_length
from assay.data.samples import Samples
from assay.data.source_info import info_of
from assay.data.transforms import Transforms
from assay.errors import AssayError, first_line
from assay.run.export.exportable import quiet, table_inputs
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.run.export.exportable import Original
    from assay.run.predict.predictor import Predictor


_MOST: Final = 1000
_MOST_BYTES: Final = 256 << 20
_BATCH: Final = 64
_MADE_UP: Final = 256


@final
@dataclass(frozen=True, eq=False)
class CheckSamples:
    """Batches of samples on which file and original are compared; of made-up ones `subset` is empty."""

    raw: list[Any]
    targets: Tensor | None = None
    subset: str = ""
    note: str = ""


def read_samples(original: Original) -> CheckSamples:
    """Up to 1,000 samples of the run's test subset; made-up ones where its data cannot be read."""
    try:
        with quiet():
            datamodule: Any = open_data(original.config, prepare=False)
            if isinstance(datamodule, DataModule):
                return _read_subset(original, datamodule)
            return _read_loader(datamodule)
    except (AssayError, OSError, ConfigAttributeError) as error:
        if not original.spec:
            raise
        return CheckSamples(made_up(original), note=f"the run's data cannot be read: {first_line(error)}")


def _read_subset(original: Original, datamodule: DataModule) -> CheckSamples:
    name = next(name for name in ("test", "val", "train") if getattr(datamodule.spec, f"num_{name}"))
    subset = datamodule.subset(name)
    data, task, spec = subset.data, task_of(datamodule.spec.task), datamodule.spec.as_config()
    output_bytes = 4 * math.prod(task.output_shape(spec, task.num_outputs(spec)))
    input_bytes = data.inputs[0].nbytes if isinstance(data, Samples) else 1 << 18
    most = min(_MOST, max(_BATCH, _MOST_BYTES // input_bytes), max(2, _MOST_BYTES // output_bytes))
    spread = torch.linspace(0, len(subset.rows) - 1, min(len(subset.rows), most))
    rows = subset.rows[spread.round().long()]
    changed = original.record.data_sha256 not in ("", datamodule.digest())
    note = "the data is not what the run was trained on: its SHA-256 differs" if changed else ""
    raw: list[Any]
    if original.encoder is not None:
        table: Any = _part(datamodule.source.read(), name)
        raw = list(_cut(table.raw.iloc[rows.numpy()]))
    elif (pictures := _unscaled(original, name)) is not None:
        raw = _joined([pictures[row][0][None] for row in rows.tolist()])
    elif isinstance(data, Samples):
        if data.lengths is not None:  # from short to long, so that batches have several
            rows = rows[data.lengths[rows].argsort(stable=True)]
        chosen = data.inputs.index_select(0, rows)
        raw = list(_cut(chosen.long() if stored_type(data.inputs.dtype) == "int64" else chosen))
        if original.texts is not None:  # padded as a batch of evaluation
            raw = [one[:, : padded_length(int((one != 0).sum(1).max()))] for one in raw]
    else:
        dataset = KeyedDataset(data, Transforms(), 0)
        raw = _joined([next(iter(_values(dataset[0, row, row])))[None] for row in rows.tolist()])
    return CheckSamples(raw, data.targets[rows], name, note)


def _part(read: Mapping[str, Any], name: str) -> Any:
    return read[name if name in read else "all" if "all" in read else "train"]


def _unscaled(original: Original, name: str) -> Any:
    """Pictures before they are scaled to `data.source.image_size`, in the same order; None of other data."""
    source = original.config.data.source
    if info_of(str(source.get("_target_"))).raw_input != "pictures" or source.get("image_size") is None:
        return None
    config = original.config.copy()
    config.data.source.update({"image_size": None, "in_memory": False})
    return _part(build(config, "data.source").read(), name).dataset


def _read_loader(datamodule: Any) -> CheckSamples:
    """Samples as a module gets them from a custom datamodule."""
    try:
        for name in ("test", "val", "train"):
            raw: list[Any] = []
            targets: list[Any] = []
            for batch in getattr(datamodule, f"{name}_dataloader")() or ():
                inputs, *rest = _values(datamodule.on_after_batch_transfer(batch, 0))
                raw.append(inputs)
                targets += rest[:1]
                if sum(map(len, raw)) >= _MOST:
                    break
            if raw:
                known = all(isinstance(one, torch.Tensor) for one in targets) and len(targets) == len(raw)
                return CheckSamples(raw, torch.cat(targets) if known else None, name)
    except AttributeError as error:  # it may lack a dataloader, or ask for its trainer
        raise AssayError(first_line(error)) from error
    raise AssayError("the run's datamodule gives no batch")


def _values(sample: Any) -> Any:
    return sample.values() if isinstance(sample, dict) else sample


def _cut(samples: Any) -> Iterator[Any]:
    yield samples[:1]
    for start in range(1, len(samples), _BATCH):
        yield samples[start : start + _BATCH]


def _joined(samples: list[Tensor]) -> list[Tensor]:
    one_shape = len({sample.shape for sample in samples}) == 1
    return list(_cut(torch.cat(samples))) if one_shape else samples


def made_up(original: Original) -> list[Any]:
    """Batches of samples that look like the training data in type, shape and scale."""
    spec, draw = original.spec, torch.Generator().manual_seed(0)
    if original.encoder is not None:
        table: dict[str, Any] = {}
        for column in original.encoder.columns:
            if column.kind in ("category", "words"):
                texts = [*column.codes] or ["some words", "other words", ""]
                table[column.name] = (texts * _MADE_UP)[:_MADE_UP]
                continue
            low, high = column.span or (column.start, column.start + 1)
            values = low + (high - low) * torch.rand(_MADE_UP, generator=draw, dtype=torch.float64).numpy()
            is_date = column.kind == "date"
            table[column.name] = pd.to_datetime(values.round(), unit="D") if is_date else values
        return list(_cut(pd.DataFrame(table)))
    shape, dtype = tuple(spec["input_shape"]), getattr(torch, spec["input_dtype"])
    if dtype.is_floating_point:
        mean, std = torch.tensor(spec["mean"] or [0.0]), torch.tensor(spec["std"] or [1.0])
        sizes = [1, -1] + [1] * (len(shape) - 1)
        drawn = torch.randn(_MADE_UP, *shape, generator=draw)
        return list(_cut((mean.view(sizes) + std.view(sizes) * drawn).to(dtype)))
    highest = 256 if dtype == torch.uint8 else int(spec.get("vocab_size") or 2)
    lowest = 0 if original.texts is None else 1
    return list(_cut(torch.randint(lowest, highest, (_MADE_UP, *shape), generator=draw).to(dtype)))


def prepared(original: Original, raw: Any, *, with_transforms: bool) -> dict[str, NDArray[Any]]:
    """A batch as an exported file takes it."""
    if original.encoder is not None:
        return table_inputs(raw, original.encoder.columns)
    transformed = raw if with_transforms else _transformed(original, raw)
    return {"inputs": transformed.contiguous().numpy()}


def original_outputs(
    original: Original, samples: CheckSamples, predictor: Predictor | None = None
) -> NDArray[np.float32]:
    """What the run's own model says of samples, prepared as in evaluation."""
    predictor = predictor or original.predictor
    outputs = []
    with torch.no_grad():
        for raw in samples.raw:
            tensor = raw if original.encoder is None else original.encoder.transform(raw)
            inputs = original.normalize(_transformed(original, tensor), torch.float32)
            outputs.append(predictor.predicted(inputs).numpy())
    return np.concatenate(outputs)


def _transformed(original: Original, raw: Tensor) -> Tensor:
    return original.transforms.batch(raw, 0, 0, torch.arange(len(raw)))


def targets_of(original: Original, samples: CheckSamples) -> NDArray[Any] | None:
    """What was right, as the task has it."""
    task = original.task
    if samples.targets is None or task is None or task.has_masks:
        return None
    if original.kind == "values" and not task.has_real_targets:  # they are not what an output should equal
        return None
    return task.hard_targets(task.batch_targets(samples.targets, torch.float32)).numpy()


TOLERANCE: Final = 1e-4
"""Of probabilities; of other outputs times the largest of them."""
RESIZED_TOLERANCE: Final = 1e-2
"""As `TOLERANCE`, where the file resizes pictures: a value may be rounded to the neighbouring grey level."""
LABELS: Final = 0.999
"""Share of labels that must agree."""


@final
@dataclass(frozen=True)
class Agreement:
    """How an exported file and the original compare over samples.

    Attributes:
        num_samples: How many were compared.
        largest_difference: Of any output.
        tolerance: What it may be.
        same_labels: Share of labels that agree; None where outputs are not labels.
        accuracy: Of the original over these samples; None without targets that are labels.
        exported_accuracy: Of the file.
        error: Root mean squared error of the original over these samples, of a regression.
        exported_error: Of the file.
    """

    num_samples: int
    largest_difference: float
    tolerance: float
    same_labels: float | None = None
    accuracy: float | None = None
    exported_accuracy: float | None = None
    error: float | None = None
    exported_error: float | None = None


def compare(
    original: NDArray[np.float32],
    exported: NDArray[np.float32],
    targets: NDArray[Any] | None,
    *,
    kind: str,
    labels: Callable[[NDArray[Any]], NDArray[Any] | None],
    resizes: bool = False,
) -> Agreement:
    """Compare outputs; refuse a file whose outputs are others."""
    if exported.shape != original.shape:
        raise AssayError(f"the file gives outputs {exported.shape}, the original {original.shape}")
    if not np.array_equal(np.isfinite(exported), np.isfinite(original)):
        raise AssayError(
            "the file gives outputs that are not finite where the original's are, or the reverse"
        )
    difference = np.nan_to_num(np.abs(exported.astype(np.float64) - original), nan=0.0)
    scale = 1.0 if kind == "probabilities" else float(np.abs(np.nan_to_num(original)).max(initial=0.0))
    scores: dict[str, float] = {}
    ours, theirs = (labels(one) if kind == "probabilities" else None for one in (original, exported))
    if kind == "values" and targets is not None:
        errors = (float(np.sqrt(np.mean((one - targets) ** 2))) for one in (original, exported))
        scores = dict(zip(("error", "exported_error"), errors, strict=True))
    elif ours is not None and theirs is not None:
        scores["same_labels"] = float(np.mean(ours == theirs))
        if targets is not None and targets.shape == ours.shape:
            scores["accuracy"] = float(np.mean(ours == targets))
            scores["exported_accuracy"] = float(np.mean(theirs == targets))
    tolerance = scale * (RESIZED_TOLERANCE if resizes else TOLERANCE)
    measured = Agreement(len(original), float(difference.max(initial=0.0)), tolerance, **scores)
    if measured.same_labels is not None and measured.same_labels < LABELS:
        raise AssayError(
            f"the file and the original give the same label for {100 * measured.same_labels:.2f} % of "
            f"{measured.num_samples} samples; {100 * LABELS:g} % were expected. Nothing was kept"
        )
    if measured.largest_difference > tolerance:
        raise AssayError(
            f"an output of the file differs from the original's by {measured.largest_difference:.3g}; up to "
            f"{tolerance:.3g} is taken. Nothing was kept"
        )
    return measured
