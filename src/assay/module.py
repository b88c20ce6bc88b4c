from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, final

import lightning as L
import torch

from assay.errors import ConfigError
from assay.finetune.features import compute_features, find_trained_head
from assay.loss.targets import at_least_float32, has_terms, loss_terms
from assay.metrics.tracker import LARGEST, Tracker, count_numbers, is_scalar, to_nested_lists
from assay.optimizer.fused_layout import keep_layout
from assay.task.task import Task
from assay.torch_internals import widest_float

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lightning.pytorch.utilities.types import OptimizerLRScheduler
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torchmetrics import MetricCollection

    from assay.data.core.normalize import TargetScale
    from assay.finetune.interface import FineTuning
    from assay.task.predictions import Kind

    Batch = tuple[Tensor, Tensor]
    Observation = tuple[Tensor, Tensor, Tensor, Tensor | None]
    """Loss, outputs, targets, and the weight of the loss; see `assay.loss.targets.loss_terms`."""


log = logging.getLogger("assay.notes")


@final
class Module(L.LightningModule):
    """Model, loss, optimizer, scheduler, metrics and augmentation in Lightning's form.

    Args:
        model: Inputs `[B, ...]` to outputs `[B, num_outputs]`. One with an attribute `members` above 1 gives
            `[B, members, num_outputs]` in training mode, and each member is compared with the targets.
        task: What is learnt; says what soft targets are compared with in metrics.
        loss: `(outputs, targets)` to a scalar. What its `probabilities(outputs)` returns, sample by sample,
            is what the metrics see.
        optimizer: Called with parameters or parameter groups.
        scheduler: Called with the optimizer; None for a constant lr.
        schedule: Lightning's `interval`, `frequency` and `monitor` of the scheduler.
        metrics: Collections `train` and `eval`.
        augment: `(inputs, targets)` to the same, on training batches; None for none.
        param_groups: Called with `(model, lr)`; None for one group of all parameters.
        channels_last: Memory format of four-dimensional inputs and weights.
        target_scale: Of real-valued targets: what the loss sees of them, and how outputs become predictions;
            None: the loss compares outputs and targets as they are.
        finetune: Was applied to the model, and freezes and unfreezes parts of it epoch by epoch; None where
            nothing is frozen.

    Attributes:
        task: As given.
        finetune: As given.
        piece: What `training_step` takes of a batch once it is augmented; None for the whole batch.
        uses_cuda_graphs: Whether the model is compiled to graphs, each replay of which overwrites the last
            one's outputs.
        test_scores: What the stored predictions of the test tell, by `Score.metric`; it replaces what the
            metrics have computed.
    """

    skips_stand_ins = True
    """Tells the datamodule that batches beyond a rank's share may come, see `BatchOrder`."""

    def __init__(
        self,
        *,
        model: nn.Module,
        task: Task,
        loss: nn.Module,
        optimizer: Callable[..., Optimizer],
        metrics: Mapping[str, MetricCollection],
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        schedule: Mapping[str, Any] | None = None,
        augment: Callable[[Tensor, Tensor], Batch] | None = None,
        param_groups: Callable[[nn.Module, float], list[dict[str, Any]]] | None = None,
        channels_last: bool = False,
        target_scale: TargetScale | None = None,
        finetune: FineTuning | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        # Of many steps at once; a loss that learns says something else after each.
        self._predicts_later = not loss.state_dict()
        later = None
        if self._predicts_later:
            later = self._predictions
        num_terms = getattr(loss, "num_terms", 1)
        self.train_tracker = Tracker(metrics["train"], "train", later, num_terms)
        self.val_tracker = Tracker(metrics["eval"], "val", later, num_terms)
        self.test_tracker = Tracker(metrics["eval"], "test", later, num_terms)
        self.test_scores: dict[str, float] = {}
        self._has_terms = has_terms(loss)
        self._members: int = getattr(model, "members", 1)
        self._compares_samples = getattr(loss, "kind", None) in ("embedding", "views")
        self.matrices: dict[str, list[Any]] = {}
        self._too_large = set[str]()
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._schedule = dict(schedule or {})
        self._augment = augment
        self._param_groups = param_groups
        self._probabilities = task.probabilities(loss)
        self._memory_format = None
        if channels_last:
            self._memory_format = torch.channels_last
        self.task = task
        kind = type(task)  # what it leaves as it is need not be asked in each step
        self._loss_targets = None
        if kind.loss_targets is not Task.loss_targets:
            self._loss_targets = task.loss_targets
        self._for_loss = None
        if kind.for_loss is not Task.for_loss:
            self._for_loss = task.for_loss
        self._target_scale = target_scale or None
        self.finetune = finetune
        self.piece: slice | None = None
        self.uses_cuda_graphs = False
        self._head = ""  # what is called alone, on features of images
        self._step = _Step()
        self._eval_order: Any = None  # a BatchOrder, which says which batches are stand-ins
        if channels_last:
            self.model.to(memory_format=torch.channels_last)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs of the model; of a regression standardised, where the targets are."""
        if self._memory_format is not None and inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=self._memory_format)
        if self._head and inputs.ndim == 2:
            outputs: Tensor = self.model.get_submodule(self._head)(inputs)
        else:
            outputs = self.model(inputs)
        if self.uses_cuda_graphs:
            outputs = outputs.clone()  # which the next replay would overwrite
        return outputs

    def has_fixed_features(self) -> bool:
        """Whether the head alone is trained, on images that no augmentation changes."""
        if self.finetune is None or self._augment is not None or self._loss_targets is not None:
            return False
        return self.finetune.last_change(self.model) == 0 and bool(find_trained_head(self.model))

    def features(self, images: Tensor) -> Tensor | None:
        """What the head gets of images `[B, C, H, W]`, `[B, F]`, which `forward` takes from then on."""
        head = find_trained_head(self.model)
        if self._memory_format is not None:
            images = images.contiguous(memory_format=self._memory_format)
        with self.trainer.precision_plugin.forward_context():
            features = compute_features(self.model, head, images)
        if features is not None:
            self._head = head
        return features

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Loss of a batch, or of a piece of it; pieces are taken in their order."""
        del batch_idx
        step = self._step
        piece = self.piece
        if self.uses_cuda_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        inputs, targets = self.augmented(batch)
        if piece is None:
            loss, step.observed = self._evaluate(inputs, targets)
            return loss
        loss, observed = self._evaluate(inputs[piece], targets[piece])
        before = None
        if piece.start:
            before = step.observed
        if before is None:
            step.observed = observed
        else:
            step.observed = _join(before, observed)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Track a validation batch."""
        observed = self.evaluated(batch)
        self._track(self.val_tracker, observed, batch_idx)

    def test_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        """Track a test batch."""
        observed = self.evaluated(batch)
        self._track(self.test_tracker, observed, batch_idx)
        predictions = self.scored(observed)
        targets = observed[2]
        if not self.task.reconstructs:
            return {"predictions": predictions, "targets": targets}
        (inputs, labels), scale = _unpack(batch), self._target_scale
        outputs = predictions
        if scale is not None:
            outputs = scale.standardize(predictions)
        return {
            "predictions": self.task.described(self.model, inputs, outputs),
            "targets": labels,
        }

    def _track(self, tracker: Tracker, observed: Observation, batch_idx: int) -> None:
        if self._eval_order is None or self._eval_order.counts(batch_idx):
            tracker.update(*observed)
        else:
            tracker.take_stand_in(*observed[1:3])

    def evaluated(self, batch: Any) -> Observation:
        """Loss, outputs and targets of a batch that is not trained on, as the trackers take them."""
        if self.uses_cuda_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        inputs, targets = self._supervised(batch)
        if self._augment is None or not self.task.compares_views:
            return self._evaluate(inputs, targets)[1]
        # What is judged are features of the samples; what the loss compares are projections of their views.
        features, (views, samples) = self(inputs), self._augment(inputs, targets)
        project = getattr(self.model, "project", None)
        if project is None:
            compared = self(views)
        else:
            compared = project(self(views))
        loss: Tensor = self.loss(compared, samples)
        return loss.detach(), features.detach(), targets, None

    @torch.no_grad()
    def reconstructed(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and what the model makes of them, in the inputs' own unit."""
        self.eval()
        with self.trainer.precision_plugin.forward_context():
            observed = self.evaluated((inputs, inputs.new_zeros(len(inputs), 0)))
        return observed[2], self.scored(observed)

    def scored(self, observed: Observation) -> Tensor:
        """What the metrics see of a step: probabilities, or values in the target's own unit."""
        if self._predicts_later:
            return self._predictions(observed[1])
        return observed[1]

    def _predictions(self, outputs: Tensor) -> Tensor:
        predictions = outputs
        if self._probabilities is not None:
            predictions = self._probabilities(outputs)
        if self._target_scale is None:
            return predictions
        return self._target_scale.restore(predictions)

    @property
    def prediction_kind(self) -> Kind:
        """What the predictions of a test step are."""
        return self.task.output_kind(self.loss)

    def augmented(self, batch: Any) -> Batch:
        """Inputs and targets after the augmentation, which is asked once a step."""
        # A closure that is called several times a step (L-BFGS) must see the same function each time.
        if self._augment is None:
            return self._supervised(batch)
        step = self._step
        if step.raw is not batch:
            step.raw = batch
            step.augmented = self._augment(*self._supervised(batch))
        augmented: Batch = step.augmented
        return augmented

    def _supervised(self, batch: Any) -> Batch:
        inputs, targets = _unpack(batch)
        if self._loss_targets is not None:
            restore = None
            if self._target_scale is not None:
                restore = self._target_scale.restore
            targets = self._loss_targets(inputs, targets, restore)
        return inputs, targets

    def _evaluate(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Observation]:
        outputs = self(inputs)
        loss, weight = self._terms(outputs, targets)
        seen = outputs
        if self._members > 1:
            seen = self.combined(outputs)
        if seen.requires_grad:
            seen = seen.detach()
        if not self._predicts_later:
            seen = self._predictions(seen)
        observed_loss = loss
        if loss.requires_grad:
            observed_loss = loss.detach()
        observed = observed_loss, seen, self.task.hard_targets(targets), weight
        return loss.sum() if loss.ndim else loss, observed

    def _is_of_members(self, outputs: Tensor) -> bool:
        """Whether a model in training mode gave the outputs of each member, `[B, members, num_outputs]`."""
        return outputs.ndim == 3 and self.model.training

    def combined(self, outputs: Tensor) -> Tensor:
        """Outputs `[B, num_outputs]` of a model, also of an ensemble in training mode."""
        if self._members > 1 and self._is_of_members(outputs):
            return outputs.mean(1)
        return outputs

    def _terms(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
        if self._members > 1 and self._is_of_members(outputs):
            if self._compares_samples:
                outputs = outputs.mean(1)  # members must not be compared with one another
            else:
                outputs = outputs.flatten(0, 1)
                targets = targets.repeat_interleave(self._members, 0)
        if self._target_scale is not None:
            outputs = at_least_float32(outputs)
            targets = self._target_scale.standardize(targets)
        elif self._for_loss is not None:
            outputs, targets = self._for_loss(outputs, targets)
        if self._has_terms:
            return loss_terms(self.loss, outputs, targets)
        return self.loss(outputs, targets), None

    def compared(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of outputs, in the form that the task gives them for it."""
        loss, weight = self._terms(outputs, targets)
        if weight is None:
            return loss
        return loss.sum()

    def on_train_start(self) -> None:
        """Freeze what is frozen in the epoch that training begins or goes on in."""
        self.on_train_epoch_start()

    def on_train_epoch_start(self) -> None:
        """Freeze and unfreeze what the fine-tuning says; tell the augmentation the epoch."""
        if self.finetune is not None:
            self.finetune.begin_epoch(self.model, self.current_epoch)
        augment: Any = self._augment
        for part in (augment, *getattr(augment, "transforms", ())):
            if hasattr(part, "set_epoch"):
                part.set_epoch(self.current_epoch)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Track the batch, and write the mean loss of an optimizer step every `log_every_n_steps` steps."""
        # Lightning divides the loss of outputs by the number of accumulated batches
        del (outputs, batch)
        taken = self._step
        trainer: Any = self.trainer
        accumulated: int = trainer.accumulate_grad_batches
        if batch_idx % accumulated == 0:
            taken.losses = []
        if taken.observed is None:
            return
        loss, _, targets, weight = taken.observed
        taken.losses.append((loss, len(targets) if weight is None else weight))
        self.train_tracker.update(*taken.observed)
        taken.forget()
        step_done = (batch_idx + 1) % accumulated == 0 or trainer.is_last_batch
        if step_done and trainer.global_step % trainer.log_every_n_steps == 0:
            mean = self._mean_step_loss()
            for logger in trainer.loggers if trainer.is_global_zero else ():
                logger.log_metrics({"train/loss_step": mean}, step=trainer.global_step)

    def _mean_step_loss(self) -> float:
        """The loss of the optimizer step over the samples of all ranks."""
        sums: Any = 0
        for loss, weight in self._step.losses:
            wide = loss.to(widest_float(loss.device))
            sums = sums + torch.stack([wide * weight, torch.zeros_like(wide) + weight])
        if self.trainer.world_size > 1:
            torch.distributed.all_reduce(sums)
        return float((sums[0] / sums[1]).sum())

    def on_train_epoch_end(self) -> None:
        """Log the epoch's training metrics."""
        self._finish(self.train_tracker)

    def on_validation_epoch_start(self) -> None:
        """Note which batches are of this rank's share."""
        self._eval_order = getattr(self.trainer.val_dataloaders, "order", None)

    def on_test_epoch_start(self) -> None:
        """Note which batches are of this rank's share."""
        self._eval_order = getattr(self.trainer.test_dataloaders, "order", None)

    def on_validation_epoch_end(self) -> None:
        """Log the validation metrics."""
        self._finish(self.val_tracker)

    def on_test_epoch_end(self) -> None:
        """Log the test metrics."""
        self._finish(self.test_tracker)

    def _finish(self, tracker: Tracker) -> None:
        values = tracker.compute(self.device)
        tracker.reset()
        if tracker is self.test_tracker:
            for name, score in tracker.scores.items():
                if score in self.test_scores and f"test/{name}" in values:
                    value = torch.tensor(self.test_scores[score], dtype=widest_float(self.device))
                    values[f"test/{name}"] = value.to(self.device)
            self.test_scores = {}
        plain = {name: value for name, value in values.items() if is_scalar(value)}
        trainer: Any = self.trainer
        for monitor in {
            getattr(callback, "monitor", None) for callback in trainer.callbacks
        } & plain.keys():
            if tracker.is_undefined(str(monitor), plain[str(monitor)]):
                raise ConfigError(
                    f"{monitor} is undefined: the {tracker.stage} subset lacks a class that it needs",
                    key="callbacks",
                    hint="monitor val/loss, or split the data differently (data.split)",
                )
        # The values are the same on every rank already; sync_dist only tells Lightning so.
        self.log_dict(
            plain,
            on_step=False,
            on_epoch=True,
            sync_dist=self.trainer.world_size > 1,
            batch_size=1,
        )
        for name, value in values.items():
            if name in plain or name in self._too_large:
                continue
            if count_numbers(value) > LARGEST:
                self._too_large.add(name)
                log.warning(
                    "note: %s has %d numbers and is not kept; give its metric thresholds=200",
                    name,
                    count_numbers(value),
                )
            else:
                self.matrices[name] = to_nested_lists(value)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimizer over the parameter groups, and the scheduler over the optimizer."""
        learnt = [p for p in self.loss.parameters() if p.requires_grad]
        if self._param_groups is None:
            parameters: Any = [*(p for p in self.model.parameters() if p.requires_grad), *learnt]
        else:
            lr = getattr(self._optimizer, "keywords", {}).get("lr", 0.0)
            parameters = self._param_groups(self.model, lr)
            if (
                split := getattr(getattr(self._optimizer, "func", None), "split_groups", None)
            ) is not None:
                parameters = split(parameters, self.model)
            if learnt:
                parameters = [
                    *parameters,
                    {"params": learnt, "name": "loss", "weight_decay": 0.0},
                ]
        optimizer = self._optimizer(parameters)
        keep_layout(optimizer)
        if self._scheduler is None:
            return optimizer
        schedule: Any = {"scheduler": self._scheduler(optimizer), **self._schedule}
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    def epoch_state(self) -> dict[str, Any]:
        """What this process has gathered in an epoch that is not over, for a checkpoint."""
        return {
            "train": self.train_tracker.state(),
            "matrices": self.matrices,
            "losses": self._step.losses,
        }

    def load_epoch_state(self, state: dict[str, Any]) -> None:
        """Go on with what `epoch_state` gave."""
        self.train_tracker.restore(state["train"], self.device)
        self.matrices = dict(state["matrices"])
        self._step.losses = list(state.get("losses", ()))


class _Step:
    """The step under way; apart, for a module looks at whatever it is given whether it is a parameter."""

    __slots__ = ("augmented", "losses", "observed", "raw")

    def __init__(self) -> None:
        self.losses: list[tuple[Tensor, Any]] = []
        """Of the batches that the optimizer step accumulates, each with its weight."""
        self.forget()

    def forget(self) -> None:
        self.raw: Any = None
        self.augmented: Any = None
        self.observed: Observation | None = None


def _join(one: Observation, other: Observation) -> Observation:
    """What was observed of two pieces of a batch, as of one."""
    first, second = (
        torch.as_tensor(len(of[2])) if of[3] is None else of[3] for of in (one, other)
    )
    loss = (one[0] * first + other[0] * second) / (first + second)
    weight = None
    if one[3] is not None:
        weight = first + second
    return loss, torch.cat([one[1], other[1]]), torch.cat([one[2], other[2]]), weight


def _unpack(batch: Any) -> Batch:
    if isinstance(batch, dict):
        inputs, targets = batch.values()
    else:
        inputs, targets = batch
    return inputs, targets
