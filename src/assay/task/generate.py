"""How a language model lets a text go on: token after token, each drawn from what the model says of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np

from assay.errors import ConfigError
from assay.task.prediction.text_prediction import TextPrediction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from torch import Tensor


class Codec(Protocol):
    """Texts to token ids and back."""

    @property
    def end(self) -> int:
        """The id between two texts."""
        ...

    @property
    def never(self) -> Sequence[int]:
        """Ids that stand for no text."""
        ...

    def encode(self, texts: Sequence[str]) -> Any:
        """Token ids of each text."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
        ...


@final
@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        temperature: What logits are divided by: below 1 likely tokens become more likely; 0 takes the most
            likely one.
        top_k: Draw from so many of the most likely tokens; None from all.
        max_tokens: Stop after so many, where the text has not ended before.
        seed: The same seed draws the same text, whatever else is asked for.

    Raises:
        ConfigError: A value is out of its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    max_tokens: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ConfigError(
                f"{self.temperature}: a number from 0 was expected",
                key="--temperature",
                hint="--temperature 0.8",
            )
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"{self.top_k}: at least 1 was expected", key="--top-k", hint="--top-k 40")
        if self.max_tokens < 1:
            raise ConfigError(
                f"{self.max_tokens}: at least 1 was expected", key="--max-tokens", hint="--max-tokens 200"
            )


def generate(
    model: Callable[[Tensor], Tensor],
    codec: Codec,
    prompt: str,
    context_length: int,
    sampling: Sampling,
    *,
    device: torch.device | str = "cpu",
) -> TextPrediction:
    """Let a text go on.

    Args:
        model: Token ids `[1, L]` to logits `[1, L, C]`, in eval mode.
        codec: Of the run.
        prompt: How the text begins; empty: as texts of the training subset begin.
        context_length: Tokens that the model sees at most; of a longer text it sees the end.
        sampling: How tokens are drawn.
        device: Of the model.
    """
    import torch

    # As in training, where this id stands before each text.
    ids = [codec.end, *np.asarray(codec.encode([prompt])[0], np.int64).tolist()]
    begun = len(ids)
    draw = torch.Generator().manual_seed(sampling.seed)
    bits: list[float] = []
    with torch.no_grad():
        while len(bits) < sampling.max_tokens:
            inputs = torch.tensor([ids[-context_length:]], device=device)
            # On the CPU and in double precision, so that a device changes as little as it can.
            logits = model(inputs)[0, -1].double().cpu()
            token = _drawn(logits, codec.never, sampling, draw)
            bits.append(float(-logits.log_softmax(0)[token]) / math.log(2))
            if token == codec.end:
                break
            ids.append(token)
    return TextPrediction(prompt, codec.decode(ids[begun:]), np.array(bits, np.float32))


def _drawn(logits: Tensor, never: Sequence[int], sampling: Sampling, draw: torch.Generator) -> int:
    import torch

    logits = logits.clone()
    logits[list(never)] = -math.inf
    if not sampling.temperature:
        return int(logits.argmax())
    if sampling.top_k is not None and sampling.top_k < len(logits):
        logits[logits < logits.topk(sampling.top_k).values[-1]] = -math.inf
    shares = (logits / sampling.temperature).softmax(0)
    return int(torch.multinomial(shares, 1, generator=draw))
