from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric

from assay.task.language_modelling import decode_run_lengths
from assay.torch_internals import widest_float


@final
class BitsPerByte(Metric):
    """Bits of all tokens, `-log2 p(token | those before)`, divided by the UTF-8 bytes that they stand for.

    Unlike a loss or a perplexity per token, it compares models of different vocabularies, and with a
    compressor (Gao et al. 2020, *The Pile*, section 3.1). A token that ends a text, or stands for unknown
    characters, costs bits but counts no bytes.

    Args:
        token_bytes: How many bytes each token id stands for, encoded by
            `assay.task.language_modelling`; empty: one each.
    """

    higher_is_better = False
    is_differentiable = False
    full_state_update = False
    bits: Tensor
    num_bytes: Tensor

    def __init__(self, token_bytes: str = "") -> None:
        super().__init__()
        self.add_state("bits", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("num_bytes", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        self._token_bytes = torch.tensor(decode_run_lengths(token_bytes), dtype=torch.int64)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch of tokens."""
        if preds.shape[:-1] != target.shape:
            raise ValueError(f"expected logits {[*target.shape, 'C']}, got {list(preds.shape)}")
        nats = F.cross_entropy(preds.flatten(0, -2), target.flatten(), reduction="none")
        # Not in place: the state starts as float32, so that the module can move to any device.
        self.bits = self.bits + nats.sum(dtype=widest_float(target.device)) / math.log(2)
        if len(self._token_bytes):
            self._token_bytes = self._token_bytes.to(target.device)
            self.num_bytes = self.num_bytes + self._token_bytes[target].sum()
        else:
            self.num_bytes = self.num_bytes + target.numel()

    def compute(self) -> Tensor:
        """Return bits per byte; NaN if the tokens have no bytes."""
        return (self.bits / self.num_bytes).float()
