"""What a run keeps of its test, so that nobody has to test it again to look at it."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast, final

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from typing_extensions import override

from assay.data.data_module import DataModule
from assay.data.shown_samples import evaluated_samples, feature_names, sample_names, show_pairs, show_tested
from assay.errors import one_line_of
from assay.module import Module
from assay.record import predictions_file, samples_file
from assay.record.outcome import reason_of
from assay.record.samples_file import KeptSample
from assay.task.evaluator import samples_of
from assay.task.generate import Sampling, generate
from assay.task.prediction.stored_predictions import StoredPredictions
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import lightning as L
    from numpy.typing import NDArray
    from torch import Tensor

    from assay.build.assembly import Assembly
    from assay.data.shown_samples import Shown
    from assay.record.run_record import RunRecord
    from assay.record.samples_file import Reason
    from assay.task.prediction.stored_predictions import Kind
    from assay.task.task import Task

_FLUSH_EVERY = 16
_SEED = 0


@final
class KeepPredictions(Callback):
    """Takes what `test_step` returns to the CPU, every sixteen batches."""

    def __init__(self, max_bytes: int, num_shown: int = 0) -> None:
        self._max_bytes, self._num_shown = max_bytes, num_shown
        self._task: Task
        self._kind: Kind
        self.problem = ""
        self._order: Iterator[Tensor] = iter(())
        self._num_samples = self.num_seen = 0
        self._chosen: Tensor | None = None
        self._pending: list[tuple[Tensor, Tensor, Tensor]] = []
        self._kept: list[tuple[Tensor, Tensor, Tensor]] = []
        self._shown: list[tuple[int, float, NDArray[Any]]] = []
        self._drawn: set[int] = set()

    @override
    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        module, data = cast("Any", pl_module), cast("Any", trainer).datamodule
        self._task, self._kind = task_of(data.spec.task), module.prediction_kind
        order = getattr(trainer.test_dataloaders, "order", None)
        if order is None:
            self.problem = "its loader says nothing of which samples make up a batch"
            return
        self._order, self._num_samples = iter(order.batches(0)), order.num_samples

    @override
    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if self.problem:
            return
        try:
            self._take(pl_module, outputs)
        except Exception as error:  # of a task of somebody's own; the run has been trained all the same
            self.problem = f"{self._task.name} fails: {one_line_of(error)}"

    def _take(self, pl_module: L.LightningModule, outputs: Any) -> None:
        positions = next(self._order)
        answers, targets = _answers(outputs)
        if answers is None or targets is None:
            self.problem = f"test_step of {type(pl_module).__name__} does not return predictions and targets"
            return
        predictions, targets = self._task.kept(answers, targets, self._kind)
        if predictions.ndim != 2 or len(predictions) != len(positions) or targets.ndim > 2:
            self.problem = (
                f"it answers {len(positions)} samples with values of shape {list(predictions.shape)}"
            )
            return
        self.num_seen += len(positions)
        chosen = self._choose(positions, 4 * (predictions.shape[1] + targets[0].numel() + 1))
        if self._num_shown and (shown := self._task.shown(answers)) is not None:
            self._show(positions, chosen, predictions, targets, shown)
        if chosen is not None:
            positions, chosen = positions[chosen], chosen.to(predictions.device)
            predictions, targets = predictions[chosen], targets[chosen]
        self._pending.append((positions, predictions, targets))
        if len(self._pending) >= _FLUSH_EVERY:
            self._flush()

    def _choose(self, positions: Tensor, bytes_each: int) -> Tensor | None:
        """Which of a batch are kept; None for all."""
        most = self._max_bytes // bytes_each
        if most >= self._num_samples:
            return None
        if self._chosen is None:
            self._chosen = torch.zeros(self._num_samples, dtype=torch.bool)
            drawn = np.random.default_rng(_SEED).choice(self._num_samples, most, replace=False)
            self._chosen[torch.from_numpy(drawn)] = True
        return self._chosen[positions]

    def _show(
        self, positions: Tensor, chosen: Tensor | None, outputs: Tensor, targets: Tensor, shown: Tensor
    ) -> None:
        """Keep what is drawn of samples that may be shown: those chosen at random, and the worst so far."""
        if not self._drawn:
            kept = torch.arange(self._num_samples) if self._chosen is None else self._chosen.nonzero()[:, 0]
            self._drawn = set(kept[drawn(len(kept), self._num_shown)].tolist())
        places = torch.arange(len(positions)) if chosen is None else chosen.nonzero()[:, 0]
        error_scores = self._task.error_scores(self._as_predictions(outputs, targets, positions.tolist()))
        error_scores = np.where(np.isfinite(error_scores), error_scores, -np.inf)
        worst = self._worst()
        last = min((bad for _, bad, _ in worst), default=-np.inf)
        few = len(worst) < self._num_shown
        for place in places.tolist():
            position, bad = int(positions[place]), float(error_scores[place])
            if position in self._drawn or few or bad > last:
                self._shown.append((position, bad, shown[place].cpu().numpy()))
        best = {position for position, _, _ in self._worst()} | self._drawn
        self._shown = [one for one in self._shown if one[0] in best]

    def _worst(self) -> list[tuple[int, float, NDArray[Any]]]:
        return sorted(self._shown, key=lambda one: (-one[1], one[0]))[: self._num_shown]

    def shown(self, position: int) -> NDArray[Any] | None:
        """What `Task.shown` gave of a sample; None where it was not kept."""
        return next((one for at, _, one in self._shown if at == position), None)

    def _flush(self) -> None:
        """Move what is pending to the CPU, in one wait for the device."""
        if self._pending:
            positions, predictions, targets = (
                torch.cat(column) for column in zip(*self._pending, strict=True)
            )
            self._kept.append((positions, predictions.cpu(), targets.cpu()))
        self._pending = []

    @override
    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._flush()
        if trainer.world_size == 1:
            return
        own = (self.problem, self.num_seen, self._kept, self._shown)
        every: list[Any] = [None] * trainer.world_size
        torch.distributed.all_gather_object(every, own)
        self.problem = next((problem for problem, *_ in every if problem), "")
        self.num_seen = sum(count for _, count, *_ in every)
        first = trainer.is_global_zero
        self._kept = [block for _, _, kept, _ in every for block in kept] if first else []
        self._shown = [one for *_, shown in every for one in shown] if first else []

    def positions(self) -> Tensor:
        """Of the samples that are kept, in the part that was tested: int64, ascending."""
        return torch.cat([positions for positions, _, _ in self._kept]).sort().values

    def predictions(self, class_names: Sequence[str], names: Sequence[str], subset: str) -> StoredPredictions:
        """What was gathered, in the order of the samples."""
        positions, outputs, targets = (torch.cat(column) for column in zip(*self._kept, strict=True))
        order = positions.argsort()
        keys = [names[position] for position in positions[order].tolist()]
        whole = self._as_predictions(outputs[order], targets[order], keys, class_names)
        seen = self.num_seen if self.num_seen > len(positions) else 0
        return replace(whole, subset=subset, num_evaluated=seen)

    def _as_predictions(
        self,
        outputs: Tensor,
        targets: Tensor,
        keys: Sequence[Any],
        class_names: Sequence[str] = (),
    ) -> StoredPredictions:
        return StoredPredictions(
            self._task.name,
            self._task.kept_kind or self._kind,
            tuple(map(str, keys)),
            outputs.float().cpu().numpy(),
            targets.cpu().numpy() if targets[0].numel() else None,
            tuple(class_names or self._task.kept_names(outputs.shape[1])),
        )


def _answers(outputs: Any) -> tuple[Tensor | None, Tensor | None]:
    """Predictions and targets of a batch; None of what a module of somebody's own does not return."""
    found = [outputs.get(name) if isinstance(outputs, dict) else None for name in ("predictions", "targets")]
    predictions, targets = (one if isinstance(one, torch.Tensor) else None for one in found)
    return predictions, targets


def drawn(num_samples: int, most: int) -> NDArray[np.int64]:
    """Samples that are shown at random, the same ones each time."""
    return np.random.default_rng(_SEED).permutation(num_samples)[:most]


log = logging.getLogger("assay")

_DEFAULTS: Final = {"max_megabytes": 64, "num_samples": 24}
"""Of a run whose config says nothing of it, because it is older; as in `conf/train.yaml`."""


@contextmanager
def gathered(assembly: Assembly) -> Iterator[KeepPredictions]:
    """Gather what the module answers to what is tested in this block."""
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


def predictions_of(assembly: Assembly, keep: KeepPredictions) -> StoredPredictions | None:
    """What was gathered; None where that is nothing, which the log explains."""
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


def write(assembly: Assembly, keep: KeepPredictions, run_dir: Path) -> StoredPredictions | None:
    """Write `predictions.parquet` and `samples.parquet`; a warning says so where that cannot be."""
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


def warnings_of(predictions: StoredPredictions | None) -> list[str]:
    """What of them says that the model is of no use."""
    if predictions is None or not len(predictions.keys):
        return []
    try:
        return _warnings(predictions)
    except Exception as error:  # of somebody's own task; what was trained is there all the same
        log.warning("whether the model is of any use is not known: %s", reason_of(error), exc_info=error)
        return []


def _warnings(predictions: StoredPredictions) -> list[str]:
    finite = np.isfinite(predictions.outputs).all(1)
    if not finite.all():
        samples = samples_of(predictions)
        return [f"the model's outputs are not finite for {(~finite).sum():,} of {samples}"]
    return [] if predictions.targets is None else task_of(predictions.task).baseline_warnings(predictions)


def remove(run_dir: Path) -> None:
    """Take away what an earlier end of a run has kept, which is not what it comes to now."""
    for name in (predictions_file.FILE, samples_file.FILE):
        (run_dir / name).unlink(missing_ok=True)


def worst_of(error_scores: NDArray[Any], most: int) -> list[int]:
    """Indices of the samples whose predictions are most wrong, the worst first."""
    order = np.argsort(-error_scores, kind="stable")  # NaN last
    indices: list[int] = order[np.isfinite(error_scores[order])][:most].tolist()
    return indices


def _samples(
    data: DataModule,
    module: L.LightningModule,
    keep: KeepPredictions,
    predictions: StoredPredictions,
    most: int,
) -> list[KeptSample]:
    worst = worst_of(task_of(predictions.task).error_scores(predictions), most)
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


def _picture(shown: Shown, predicted: NDArray[Any] | None, predictions: StoredPredictions) -> bytes | None:
    if shown.target is None or predicted is None:
        return shown.picture
    names = predictions.class_names
    return task_of(predictions.task).picture(shown.picture, shown.target, predicted, names)


def _shown(data: DataModule, module: L.LightningModule, positions: list[int]) -> list[Shown]:
    if not (isinstance(module, Module) and module.task.reconstructs and positions):
        return show_tested(data, positions)
    inputs, _ = evaluated_samples(data, data.tested, positions)
    return show_pairs(*module.reconstructed(inputs), feature_names(data))


log = logging.getLogger("assay")
_FEWEST: Final = 20
"""Validation samples of each class; with fewer a threshold would be chance."""
_NEARLY: Final = 0.95


def add_threshold(assembly: Assembly, record: RunRecord, predictions: StoredPredictions | None) -> None:
    """Put into a record the threshold with nearly the best F1 on validation, and what it does on the test."""
    module, data = assembly.module, assembly.datamodule
    if predictions is None or not isinstance(data, DataModule) or not isinstance(module, Module):
        return
    two = module.task.num_classes == 2 and predictions.kind == "probabilities"
    plain = isinstance(assembly.trainer.strategy, SingleDeviceStrategy | DDPStrategy)
    if not two or not plain or not len(data.splits.rows["val"]) or data.tested != "test":
        return
    try:
        value = best_threshold(*_validated(assembly, module, data))
    except Exception as error:  # the run has come to its end all the same
        log.warning("no threshold is chosen: %s", reason_of(error), exc_info=error)
        return
    if value is not None:
        said, right = predictions.outputs[:, 1] >= value, np.asarray(predictions.targets) == 1
        hits = int((said & right).sum())
        record.threshold = {
            "value": value,
            "class": predictions.class_names[1],
            "precision": hits / max(1, int(said.sum())),
            "recall": hits / max(1, int(right.sum())),
        }


def _validated(assembly: Assembly, module: Module, data: DataModule) -> tuple[NDArray[Any], NDArray[Any]]:
    """Probabilities of the second class of the validation samples, and whether each is of it."""
    count, size = len(data.splits.rows["val"]), data.eval_batch_size
    probabilities: Any = module.task.probabilities(module.loss)
    found, right = [], []
    module.eval().to(data.device)
    with torch.no_grad(), assembly.trainer.precision_plugin.forward_context():
        for start in range(0, count, size):
            inputs, targets = evaluated_samples(data, "val", range(start, min(start + size, count)))
            outputs = probabilities(module(inputs)).float()
            found.append(module.task.postprocess(outputs, "probabilities")[:, 1].cpu())
            right.append(targets.cpu() == 1)
    return torch.cat(found).numpy(), torch.cat(right).numpy()


def best_threshold(probabilities: NDArray[Any], right: NDArray[Any]) -> float | None:
    """The threshold with nearly the highest F1; None of too few samples."""
    if min(int(right.sum()), int((~right).sum())) < _FEWEST:
        return None
    order = np.argsort(-probabilities, kind="stable")
    ranked, hits = probabilities[order].astype(float), right[order].cumsum()
    f1 = 2 * hits / (np.arange(1, len(order) + 1) + right.sum())
    following = np.append(ranked[1:], 0.0)
    f1[ranked == following] = -1  # samples of one probability are on one side
    values = ((ranked + following) / 2)[f1 >= _NEARLY * f1.max()]
    return round(float(values[np.abs(values - 0.5).argmin()]), 6)
