"""Softmax of few classes, which torch is slow at on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from assay.loss.at_least_float32 import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor

_WIDTH: Final = 16
"""Numbers that the widest vector instructions of a CPU take at once."""


def softmax(outputs: Tensor) -> Tensor:
    """Softmax over the classes, each sample by itself whatever it is in a batch with.

    Rows shorter than a vector register are summed number by number on the CPU (torch 2.15: 4,096 rows of 10
    take 720 µs, of 16 take 97), so that they are padded with classes of no probability.

    Args:
        outputs: Logits, float `[B, C, ...]`.

    Returns:
        At least float32, `[B, C, ...]`.

    >>> import torch
    >>> softmax(torch.tensor([[0.0, 0.0], [0.0, -torch.inf]]))
    tensor([[0.5000, 0.5000],
            [1.0000, 0.0000]])
    """
    logits = at_least_float32(outputs)
    if logits.ndim != 2 or logits.shape[1] >= _WIDTH or logits.device.type != "cpu":
        return logits.softmax(1)
    padded = logits.new_full((logits.shape[0], _WIDTH), -float("inf"))
    padded[:, : logits.shape[1]] = logits
    return padded.softmax(1)[:, : logits.shape[1]]
