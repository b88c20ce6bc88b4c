"""A run that goes on with other arguments of its optimizer or scheduler than it began with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import lightning as L

_PROGRESS: Final = frozenset(
    (
        *("last_epoch", "_step_count", "_last_lr", "base_lrs", "_schedulers"),
        *("best", "num_bad_epochs", "cooldown_counter"),
    )
)
"""What of a scheduler's state says how far it is; all else says what it was built with."""


@final
@dataclass(frozen=True)
class ChangedArguments:
    """What is other than when the run began.

    Attributes:
        optimizer: Name of an argument to its old and its new value.
        new_schedule: Whether the scheduler is built with other arguments.
        stop: Whether a stop that was decided before the checkpoint still holds.
    """

    optimizer: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    new_schedule: bool = False
    stop: bool = True

    def apply(self, trainer: L.Trainer, built: Sequence[Mapping[str, Any]]) -> None:
        """Change optimizers and schedulers whose state was loaded.

        Args:
            trainer: About to go on.
            built: State of each scheduler before that.
        """
        if self.new_schedule:
            _reschedule(trainer, built)
        _change_optimizer(trainer, self.optimizer)


def _reschedule(trainer: L.Trainer, fresh: Sequence[Mapping[str, Any]]) -> None:
    """Go on with schedulers as they are now built, at the step they had reached."""
    for config, built in zip(trainer.lr_scheduler_configs, fresh, strict=True):
        scheduler: Any = config.scheduler
        scheduler.load_state_dict({name: value for name, value in built.items() if name not in _PROGRESS})
        if config.reduce_on_plateau:
            continue
        closed = getattr(scheduler, "_get_closed_form_lr", None)
        if closed is not None:  # the next lr is computed from the last one, which may be zero for good
            for group, lr in zip(scheduler.optimizer.param_groups, closed(), strict=True):
                group["lr"] = lr
            scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]


def _change_optimizer(trainer: L.Trainer, changed: Mapping[str, tuple[Any, Any]]) -> None:
    """Give every parameter group the new value; a learning rate keeps its proportion to the old one."""
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            for name, (old, new) in changed.items():
                if name == "lr":
                    for one in ("lr", "initial_lr", "max_lr", "min_lr"):
                        if one in group:
                            group[one] *= new / old
                elif group.get(name) == old or name not in group:
                    group[name] = new
    if "lr" in changed:
        old, new = changed["lr"]
        for config in trainer.lr_scheduler_configs:
            state = vars(config.scheduler)
            for name in ("base_lrs", "_last_lr"):
                if name in state:
                    state[name] = [lr * new / old for lr in state[name]]
