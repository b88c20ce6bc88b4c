"""What a run keeps of its test, so that nobody has to test it again to look at it."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.callbacks.keep_predictions import KeepPredictions, drawn
from assay.data.data_module import DataModule
from assay.data.shown.shown_samples import (
    evaluated_samples,
    feature_names,
    sample_names,
    show_pairs,
    show_tested,
)
from assay.module import Module
from assay.record import predictions_file, samples_file
from assay.record.outcome import reason_of
from assay.record.samples_file import KeptSample
from assay.task.generate import Sampling, generate
from assay.task.task_of import task_of
from assay.task.trivial_model import samples_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import lightning as L
    from numpy.typing import NDArray

    from assay.build.assembly import Assembly
    from assay.data.shown.shown_samples import Shown
    from assay.record.samples_file import Reason
    from assay.task.prediction.predictions import Predictions

log = logging.getLogger("assay")

_DEFAULTS: Final = {"max_megabytes": 64, "num_samples": 24}
"""Of a run whose config says nothing of it, because it is older; as in `conf/train.yaml`."""


@contextmanager
def gathered(assembly: Assembly) -> Iterator[KeepPredictions]:
    """Gather what the module answers to what is tested in this block.

    Args:
        assembly: The job. A datamodule of somebody's own gives nothing to keep, nor does a module that does
            not say what it predicts.

    Yields:
        What gathers it; it has a `problem` where there is nothing to gather.
    """
    settings = _settings(assembly)
    num_shown = int(settings.get("num_samples") or 0)
    keep = KeepPredictions(int(float(settings.get("max_megabytes") or 0) * 1e6), num_shown)
    keep.problem = _why_not(assembly, settings)
    callbacks: list[L.Callback] = assembly.trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
    if keep.problem:
        yield keep
        return
    callbacks.append(keep)
    try:
        yield keep
    finally:
        callbacks.remove(keep)


def _settings(assembly: Assembly) -> dict[str, Any]:
    return {**_DEFAULTS, **(assembly.config.get("predictions", _DEFAULTS) or {"max_megabytes": 0})}


def _why_not(assembly: Assembly, settings: dict[str, Any]) -> str:
    if not settings["max_megabytes"]:
        return "predictions.max_megabytes is 0"
    if getattr(assembly.module, "prediction_kind", None) is None:
        return f"{type(assembly.module).__name__} has no prediction_kind that says what its outputs are"
    if not isinstance(assembly.datamodule, DataModule):
        return f"{type(assembly.datamodule).__name__} does not say which samples make up a batch"
    return ""


def predictions_of(assembly: Assembly, keep: KeepPredictions) -> Predictions | None:
    """What was gathered; None where that is nothing, which the log explains.

    Args:
        assembly: The job.
        keep: From `gathered`.
    """
    data = assembly.datamodule
    if keep.problem or not isinstance(data, DataModule):
        is_meant = bool(_why_not(assembly, _settings(assembly)))  # else something went wrong in the test
        log.log(logging.INFO if is_meant else logging.WARNING, "no predictions are kept: %s", keep.problem)
        return None
    predictions = keep.predictions(
        data.spec.class_names or data.spec.target_names, sample_names(data), data.tested
    )
    if predictions.num_evaluated:
        log.warning(
            "predictions of %s of %s samples are kept, drawn at random: all would be larger than "
            "predictions.max_megabytes=%s",
            f"{len(predictions.keys):,}",
            f"{predictions.num_evaluated:,}",
            _settings(assembly)["max_megabytes"],
        )
    return predictions


def write(assembly: Assembly, keep: KeepPredictions, run_dir: Path) -> Predictions | None:
    """Write `predictions.parquet` and `samples.parquet`; a warning says so where that cannot be.

    Args:
        assembly: The job, tested.
        keep: From `gathered`.
        run_dir: Of the run.

    Returns:
        The predictions; None where there are none.
    """
    try:
        predictions, data = predictions_of(assembly, keep), assembly.datamodule
        if predictions is not None and isinstance(data, DataModule):
            most = int(_settings(assembly)["num_samples"])
            samples = _samples(data, assembly.module, keep, predictions, most)
            if isinstance(assembly.module, Module):
                samples += _generated(assembly.module, data)
            predictions_file.write(run_dir / predictions_file.FILE, predictions)
            samples_file.write(run_dir / samples_file.FILE, samples)
    except Exception as error:  # the run has come to its end all the same
        log.warning("what was predicted is not kept: %s", reason_of(error), exc_info=error)
        return None
    return predictions


def warnings_of(predictions: Predictions | None) -> list[str]:
    """What of them says that the model is of no use.

    Args:
        predictions: Of a test; None where there are none.
    """
    if predictions is None or not len(predictions.keys):
        return []
    try:
        return _warnings(predictions)
    except Exception as error:  # of somebody's own task; what was trained is there all the same
        log.warning("whether the model is of any use is not known: %s", reason_of(error), exc_info=error)
        return []


def _warnings(predictions: Predictions) -> list[str]:
    finite = np.isfinite(predictions.outputs).all(1)
    if not finite.all():
        samples = samples_of(predictions)
        return [f"the model's outputs are not finite for {(~finite).sum():,} of {samples}"]
    return [] if predictions.targets is None else task_of(predictions.task).trivial(predictions)


def remove(run_dir: Path) -> None:
    """Take away what an earlier end of a run has kept, which is not what it comes to now."""
    for name in (predictions_file.FILE, samples_file.FILE):
        (run_dir / name).unlink(missing_ok=True)


def worst_of(badness: NDArray[Any], most: int) -> list[int]:
    """Indices of the samples whose predictions are most wrong, the worst first.

    Args:
        badness: Of each sample, float `[N]`; NaN where nobody can say.
        most: How many at most.
    """
    order = np.argsort(-badness, kind="stable")  # NaN last
    indices: list[int] = order[np.isfinite(badness[order])][:most].tolist()
    return indices


def _samples(
    data: DataModule, module: L.LightningModule, keep: KeepPredictions, predictions: Predictions, most: int
) -> list[KeptSample]:
    worst = worst_of(task_of(predictions.task).badness(predictions), most)
    rows = [*worst, *drawn(len(predictions.keys), most).tolist()]
    positions = keep.positions()[rows].tolist()
    reasons: list[Reason] = ["worst" if index < len(worst) else "random" for index in range(len(positions))]
    return [
        KeptSample(predictions.keys[index], reason, _picture(shown, keep.shown(at), predictions), shown.row)
        for index, at, reason, shown in zip(
            rows, positions, reasons, _shown(data, module, positions), strict=True
        )
    ]


def _generated(module: Module, data: DataModule) -> list[KeptSample]:
    """A text that the model writes from nothing, as `assay predict RUN --prompt ''` does."""
    codec: Any = data.encoder
    if not module.task.generates or codec is None:
        return []
    module.eval()
    text = generate(module, codec, "", data.spec.input_shape[0], Sampling(), device=module.device).text
    return [KeptSample("", "generated", None, {"text": text})]


def _picture(shown: Shown, predicted: NDArray[Any] | None, predictions: Predictions) -> bytes | None:
    if shown.target is None or predicted is None:
        return shown.picture
    names = predictions.class_names
    return task_of(predictions.task).picture(shown.picture, shown.target, predicted, names)


def _shown(data: DataModule, module: L.LightningModule, positions: list[int]) -> list[Shown]:
    if not (isinstance(module, Module) and module.task.reconstructs and positions):
        return show_tested(data, positions)
    inputs, _ = evaluated_samples(data, data.tested, positions)
    return show_pairs(*module.reconstructed(inputs), feature_names(data))
