"""What a run keeps of its test, so that nobody has to test it again to look at it."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from assay.data.core.data_module import DataModule
from assay.data.core.rendering import (
    eval_samples,
    feature_names,
    sample_names,
    show_pairs,
    show_test_samples,
)
from assay.errors import describe_error
from assay.logger.run_csv import RunCSV
from assay.module import Module
from assay.task.evaluator import describe_samples
from assay.task.language_modelling import Sampling, generate
from assay.task.predictions import StoredPredictions
from assay.task.task_of import task_of
from assay_analysis import predictions_file
from assay_analysis.predictions_file import KeptSample
from assay_serve.occlusion import show_occlusions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import lightning as L
    from numpy.typing import NDArray
    from torch import Tensor

    from assay.assemble.assembly import Assembly
    from assay.record.run_record import RunRecord
    from assay.task.predictions import Kind
    from assay.task.task import Task
    from assay_analysis.predictions_file import Reason

_FLUSH_EVERY = 16
_SEED = 0
_MOST_ALIKE = 4
_NOT_IN_NAMES = re.compile(r"[^\w.-]+", re.ASCII)
log = logging.getLogger("assay")


@final
class KeepPredictions(Callback):
    """Takes what `test_step` returns to the CPU, every sixteen batches."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._task: Task
        self._kind: Kind
        self.problem = ""
        self._order: Iterator[Tensor] = iter(())
        self._num_samples = self.num_seen = 0
        self._chosen: Tensor | None = None
        self._pending: list[tuple[Tensor, Tensor, Tensor]] = []
        self._kept: list[tuple[Tensor, Tensor, Tensor]] = []

    @override
    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        module: Any = pl_module
        of_test: Any = trainer
        self._task = task_of(of_test.datamodule.spec.task)
        self._kind = module.prediction_kind
        order = of_test.test_dataloaders.order
        self._order = (rows for batch, rows in enumerate(order.batches(0)) if order.counts(batch))
        self._num_samples = order.num_samples
        self._counts = order.counts

    @override
    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        *_: Any,
    ) -> None:
        if self.problem or not self._counts(batch_idx):
            return
        try:
            self._take(outputs)
        # of a custom task or module; the run has been trained all the same
        except Exception as error:
            self.problem = f"{self._task.name} fails: {describe_error(error)}"

    def _take(self, outputs: Any) -> None:
        positions = next(self._order)
        if not isinstance(outputs, dict) or not {"predictions", "targets"} <= outputs.keys():
            self.problem = "test_step does not return predictions and targets"
            return
        predictions, targets = self._task.kept(
            outputs["predictions"], outputs["targets"], self._kind
        )
        if predictions.ndim != 2 or len(predictions) != len(positions) or targets.ndim > 2:
            self.problem = (
                f"it answers {len(positions)} samples with values of shape "
                f"{list(predictions.shape)}"
            )
            return
        self.num_seen += len(positions)
        block = positions, predictions, targets
        chosen = self._choose(positions, 4 * (predictions.shape[1] + targets[0].numel() + 1))
        if chosen is not None:
            positions, predictions, targets = (part[chosen.to(part.device)] for part in block)
        self._pending.append((positions, predictions, targets))
        if len(self._pending) >= _FLUSH_EVERY:
            self._flush()

    def _choose(self, positions: Tensor, bytes_each: int) -> Tensor | None:
        """Which of a batch are kept; None for all."""
        most = max(1, self._max_bytes // bytes_each)
        if most >= self._num_samples:
            return None
        if self._chosen is None:
            self._chosen = torch.zeros(self._num_samples, dtype=torch.bool)
            drawn = np.random.default_rng(_SEED).choice(self._num_samples, most, replace=False)
            self._chosen[torch.from_numpy(drawn)] = True
        return self._chosen[positions]

    def _flush(self) -> None:
        """Move what is pending to the CPU, in one wait for the device."""
        if self._pending:
            positions, predictions, targets = (
                torch.cat(column) for column in zip(*self._pending, strict=True)
            )
            self._kept.append((positions, predictions.cpu(), targets.cpu()))
        self._pending = []

    @override
    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Gather the ranks' predictions, and have the module log the scores that they tell."""
        self._flush()
        if trainer.world_size > 1:
            gathered: list[Any] = [None] * trainer.world_size
            torch.distributed.all_gather_object(
                gathered, (self.problem, self.num_seen, self._kept)
            )
            self.problem = next((problem for problem, *_ in gathered if problem), "")
            self.num_seen = sum(count for _, count, _ in gathered)
            self._kept = [block for *_, blocks in gathered for block in blocks]
        if isinstance(pl_module, Module) and not self.problem:
            spec = cast("Any", trainer).datamodule.spec
            pl_module.test_scores = self._scores(spec.class_names or spec.target_names)
        if not trainer.is_global_zero:
            self._kept = []

    def _scores(self, class_names: Sequence[str]) -> dict[str, float]:
        """Scores of all predictions by `Score.metric`; none if only some are kept."""
        predictions = self.predictions(class_names, [""] * self._num_samples, "test")
        if predictions.num_evaluated or predictions.targets is None:
            return {}
        try:
            return {
                score.metric: score.value
                for score in self._task.scores(predictions)
                if score.metric
            }
        except Exception as error:  # of a custom task
            log.warning(
                "the scores are those of the metrics: %s fails: %s",
                self._task.name,
                describe_error(error),
            )
            return {}

    def positions(self) -> Tensor:
        """Of the samples that are kept, in the part that was tested: int64, ascending."""
        return torch.cat([positions for positions, _, _ in self._kept]).sort().values

    def predictions(
        self, class_names: Sequence[str], names: Sequence[str], subset: str
    ) -> StoredPredictions:
        """What was gathered, in the order of the samples."""
        positions, outputs, targets = (
            torch.cat(column) for column in zip(*self._kept, strict=True)
        )
        order = positions.argsort()
        return StoredPredictions(
            self._task.name,
            self._task.kept_kind or self._kind,
            tuple(names[position] for position in positions[order].tolist()),
            outputs[order].float().numpy(),
            targets[order].numpy() if targets[0].numel() else None,
            tuple(class_names),
            subset=subset,
            num_evaluated=self.num_seen if self.num_seen > len(positions) else 0,
        )


@contextmanager
def collect_predictions(assembly: Assembly) -> Iterator[KeepPredictions]:
    """Gather what the module answers to what is tested in this block."""
    keep = KeepPredictions(int(float(_settings(assembly).get("max_megabytes") or 0) * 1e6))
    keep.problem = _obstacle(assembly)
    if not keep.problem:
        assembly.callbacks.append(keep)
    try:
        yield keep
    finally:
        if keep in assembly.callbacks:
            assembly.callbacks.remove(keep)


def _settings(assembly: Assembly) -> dict[str, Any]:
    return dict(assembly.config.get("predictions") or {})


def _obstacle(assembly: Assembly) -> str:
    if not _settings(assembly).get("max_megabytes"):
        return "predictions.max_megabytes is 0"
    if getattr(assembly.module, "prediction_kind", None) is None:
        return f"{type(assembly.module).__name__} has no prediction_kind, which states what its outputs are"
    if not isinstance(assembly.datamodule, DataModule):
        return f"{type(assembly.datamodule).__name__} does not say which samples make up a batch"
    return ""


def predictions_of(assembly: Assembly, keep: KeepPredictions) -> StoredPredictions | None:
    """What was gathered; None where that is nothing, which the log explains."""
    data = assembly.datamodule
    if keep.problem or not isinstance(data, DataModule):
        is_meant = bool(_obstacle(assembly))  # else something went wrong in the test
        log.log(
            logging.INFO if is_meant else logging.WARNING,
            "no predictions are kept: %s",
            keep.problem,
        )
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


def write(assembly: Assembly, keep: KeepPredictions, run_dir: Path) -> StoredPredictions | None:
    """Write `predictions.parquet` and `samples.parquet`."""
    predictions = predictions_of(assembly, keep)
    if predictions is not None:
        samples = _samples(assembly, keep, predictions)
        predictions_file.write(run_dir / predictions_file.FILE, predictions)
        predictions_file.write_samples(run_dir / predictions_file.SAMPLES, samples)
    return predictions


def warnings_of(predictions: StoredPredictions | None) -> list[str]:
    """What of them says that the model is of no use."""
    if predictions is None or not len(predictions.keys):
        return []
    finite = np.isfinite(predictions.outputs).all(1)
    if not finite.all():
        samples = describe_samples(predictions)
        return [f"the model's outputs are not finite for {(~finite).sum():,} of {samples}"]
    if predictions.targets is None:
        return []
    return task_of(predictions.task).baseline_warnings(predictions)


def warn_of_useless_model(
    assembly: Assembly, record: RunRecord, predictions: StoredPredictions | None
) -> None:
    """Put into a record what the test says of a model that is of no use."""
    del assembly
    record.warnings = warnings_of(predictions and predictions.at(record.threshold))
    for warning in record.warnings:
        log.warning("%s", warning)


def log_results(
    assembly: Assembly, record: RunRecord, predictions: StoredPredictions | None
) -> None:
    """Log scores that only predictions tell."""
    trainer = assembly.trainer
    loggers = [logger for logger in trainer.loggers if not isinstance(logger, RunCSV)]
    if not loggers or predictions is None or not len(predictions.keys):
        return  # the scores come with intervals, which take half a second
    scores = {
        f"{predictions.subset}/{_NOT_IN_NAMES.sub('_', score.name).strip('_')}": score.value
        for score in task_of(predictions.task).scores(predictions)
    }
    unlogged = {name: value for name, value in scores.items() if name not in record.metrics}
    for logger in loggers:
        logger.log_metrics(unlogged, trainer.global_step)
        logger.save()


def _samples(
    assembly: Assembly, keep: KeepPredictions, predictions: StoredPredictions
) -> list[KeptSample]:
    """The worst samples and some at random, as a person can look at them."""
    data: Any = assembly.datamodule
    module = assembly.module
    most = int(_settings(assembly)["num_samples"])
    task = task_of(predictions.task)
    errors = task.error_scores(predictions)
    order = np.argsort(-errors, kind="stable")  # NaN last
    worst = order[np.isfinite(errors[order])][:most].tolist()
    drawn = np.random.default_rng(_SEED).permutation(len(predictions.keys))[:most]
    chosen: dict[Reason, list[int]] = {
        "worst": worst,
        "confused": _confused(predictions)[:most],
        "random": drawn.tolist(),
    }
    rows = [index for indices in chosen.values() for index in indices]
    reasons = [reason for reason, indices in chosen.items() for _ in indices]
    positions = keep.positions()[rows].tolist()
    if isinstance(module, Module) and task.reconstructs and positions:
        inputs, _ = eval_samples(data, data.tested, positions)
        shown = show_pairs(*module.reconstructed(inputs), feature_names(data))
    else:
        shown = show_test_samples(data, positions)
    if task.has_masks and isinstance(module, Module) and assembly.holds_whole_model:
        names = predictions.class_names
        shown = [
            one._replace(picture=task.picture(one.picture, cast("Any", one.target), mask, names))
            for one, mask in zip(shown, _masks(assembly, module, positions), strict=True)
        ]
    samples = [
        KeptSample(predictions.keys[index], reason, one.picture, one.row)
        for index, reason, one in zip(rows, reasons, shown, strict=True)
    ]
    whole = assembly.holds_whole_model
    is_measured = assembly.config.get("baseline") != "none"
    if isinstance(module, Module) and whole and is_measured and _are_classes(predictions):
        samples += show_occlusions(
            assembly, module, samples[: len(worst)], positions[: len(worst)]
        )
    samples = [one for one in samples if one.picture is not None or one.reason != "confused"]
    # as `assay predict RUN --prompt ''` does
    if isinstance(module, Module) and task.generates and whole:
        codec: Any = data.encoder
        module.eval()
        text = generate(
            module, codec, "", data.spec.input_shape[0], Sampling(), device=module.device
        ).text
        samples.append(KeptSample("", "generated", None, {"text": text}))
    return samples


def _are_classes(predictions: StoredPredictions) -> bool:
    """Whether each sample has one class, and each class a probability."""
    of_classes = task_of(predictions.task).by_class
    return of_classes and predictions.kind == "probabilities" and predictions.targets is not None


def _confused(predictions: StoredPredictions) -> list[int]:
    """Samples of the most frequent confusion, then of each of its two classes some that are right."""
    if predictions.targets is None or not _are_classes(predictions):
        return []
    true = predictions.targets
    guess = predictions.outputs.argmax(1)
    wrong = np.flatnonzero(true != guess)
    if not len(wrong):
        return []
    pairs, counts = np.unique(np.stack([true[wrong], guess[wrong]]), axis=1, return_counts=True)
    first, second = pairs[:, counts.argmax()]
    return [
        index
        for of_true, of_guess in ((first, second), (first, first), (second, second))
        for index in np.flatnonzero((true == of_true) & (guess == of_guess))[
            :_MOST_ALIKE
        ].tolist()
    ]


def _masks(assembly: Assembly, module: Module, positions: list[int]) -> Iterator[NDArray[Any]]:
    """What the module says of some of the tested samples."""
    data: Any = assembly.datamodule
    module.eval().to(data.device)
    for position in positions:  # one by one, for masks of full size may be large
        with torch.no_grad(), assembly.trainer.precision_plugin.forward_context():
            answers = module.scored(module.evaluated(eval_samples(data, data.tested, [position])))
        yield answers[0].argmax(0).to(torch.uint8).cpu().numpy()
