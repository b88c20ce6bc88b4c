"""What a progress bar looks like: its line, numbers, durations, metrics by stage."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.text import Text
from torch import Tensor

from assay.quoting import number_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import lightning as L

_STAGES = ("train", "val", "test")


def number(value: float) -> str:
    """Four digits after the point, or four significant ones for the very small and the very large."""
    if value == 0.0 or 1e-3 <= abs(value) < 1e4 or not math.isfinite(value):
        return f"{value:.4f}"
    return number_text(value)


def epoch(trainer: L.Trainer, number: int) -> str:
    """`epoch  3/20`, or `epoch 3` in a run without an end."""
    limit = trainer.max_epochs if trainer.max_epochs is not None and trainer.max_epochs > 0 else None
    return f"epoch {number}" if limit is None else f"epoch {number:{len(str(limit))}}/{limit}"


def scalars(metrics: Mapping[str, Any], stages: Iterable[str] = _STAGES) -> dict[str, dict[str, float]]:
    """Sorts scalar metrics by stage: `train/loss` and `train_loss` are the loss of the stage train."""
    wanted = tuple(stages)
    groups: dict[str, dict[str, float]] = {stage: {} for stage in ("", *_STAGES)}
    for key, value in metrics.items():
        twin = key.endswith("_epoch") and key.removesuffix("_epoch") in metrics
        if (
            twin
            or key.endswith("_step")
            or key.startswith("lr-")
            or (isinstance(value, Tensor) and value.ndim)
        ):
            continue
        stage = next((stage for stage in _STAGES if key.startswith((f"{stage}/", f"{stage}_"))), "")
        if not stage or stage in wanted:
            groups[stage][key[len(stage) + 1 :] if stage else key] = float(value)
    return {stage: values for stage, values in groups.items() if values}


def pairs(values: Mapping[str, float]) -> Text:
    """Names and numbers side by side; what is not finite stands out."""
    text = Text()
    for name, value in values.items():
        text.append("  " if text else "")
        text.append(f"{name} ", style="dim")
        text.append(number(value), style="" if math.isfinite(value) else "bold red")
    return text


def line(label: str, seconds: float, groups: Mapping[str, Mapping[str, float]]) -> Text:
    """What remains of an epoch."""
    text = Text(label, style="").append(f"  {seconds:6.1f}s", style="dim")
    for stage, values in groups.items():
        text.append("   " if values else "").append(f"{stage} " if stage and values else "", style="bold")
        text.append(pairs(values))
    return text
