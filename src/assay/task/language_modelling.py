"""Language modelling: predict the next token, generate texts, and encode the bytes of each token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, final

import numpy as np
from typing_extensions import override

from assay.errors import ConfigError
from assay.task.figures.value_figures import Tokens
from assay.task.predictions import Predictions
from assay.task.task import Task, wrong_form
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from assay.figure import Array
    from assay.task.evaluator import Evaluator
    from assay.task.predictions import Kind, StoredPredictions


@final
@dataclass(frozen=True, eq=False)
class TextPrediction:
    """The continuation of a text by a model.

    Attributes:
        prompt: The text to continue.
        text: The continuation.
        surprisals: Float32 `[L]`, bits of each sampled token, under the model's distribution.
    """

    prompt: str
    text: str
    surprisals: NDArray[np.float32]

    @property
    def num_tokens(self) -> int:
        """Number of sampled tokens."""
        return len(self.surprisals)

    @property
    def bits_per_token(self) -> float:
        """Mean surprisal of the sampled tokens."""
        if self.num_tokens:
            return float(self.surprisals.mean())
        return float("nan")

    def __str__(self) -> str:
        return "\n".join(map(printable, f"{self.prompt}{self.text}".split("\n")))


@final
@dataclass(frozen=True, eq=False)
class TextPredictions(Predictions):
    """The continuations of N texts.

    Attributes:
        predictions: Array `[N]` of `TextPrediction` objects.
    """

    sample_ndim: ClassVar[int] = 0

    predictions: Array

    @classmethod
    def of(cls, predictions: Sequence[TextPrediction]) -> Self:
        """Combine predictions of several texts."""
        array = np.empty(len(predictions), dtype=object)
        array[:] = predictions
        return cls(array)

    @override
    def in_words(self) -> str:
        return str(self.predictions.item())

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        return {
            "prompt": [prediction.prompt for prediction in self],
            "prediction": [prediction.text for prediction in self],
            "num_tokens": [prediction.num_tokens for prediction in self],
            "bits_per_token": [prediction.bits_per_token for prediction in self],
        }

    @override
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return super().__getitem__(index)
        return self.predictions[index]


class Codec(Protocol):
    """Encodes texts as token ids, and decodes them."""

    end: int
    """The id between two texts."""
    never: Sequence[int]
    """Ids that stand for no text."""

    def encode(self, texts: Sequence[str]) -> Any:
        """Return the token ids of each text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        ...


@final
@dataclass(frozen=True)
class Sampling:
    """Options of sampling tokens."""

    temperature: float = 1.0
    top_k: int | None = None
    max_tokens: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            message = f"expected a number >= 0, got {self.temperature}"
            raise ConfigError(message, key="--temperature", hint="--temperature 0.8")
        for key, value in {"--top-k": self.top_k, "--max-tokens": self.max_tokens}.items():
            if value is not None and value < 1:
                raise ConfigError(
                    f"expected a number >= 1, got {value}", key=key, hint=f"{key} 40"
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
    """Continue a text."""
    import torch

    # As in training, where this id precedes each text.
    ids = [codec.end, *np.asarray(codec.encode([prompt])[0], np.int64).tolist()]
    prompt_length = len(ids)
    draw = torch.Generator().manual_seed(sampling.seed)
    bits: list[float] = []
    with torch.no_grad():
        while len(bits) < sampling.max_tokens:
            inputs = torch.tensor([ids[-context_length:]], device=device)
            # On the CPU and in double precision, so that the device matters as little as possible.
            logits = model(inputs)[0, -1].double().cpu()
            token = _draw_token(logits, codec.never, sampling, draw)
            bits.append(float(-logits.log_softmax(0)[token]) / math.log(2))
            if token == codec.end:
                break
            ids.append(token)
    return TextPrediction(prompt, codec.decode(ids[prompt_length:]), np.array(bits, np.float32))


def _draw_token(
    logits: Tensor, never: Sequence[int], sampling: Sampling, draw: torch.Generator
) -> int:
    import torch

    logits = logits.clone()
    logits[list(never)] = -math.inf
    if not sampling.temperature:
        return int(logits.argmax())
    if sampling.top_k is not None and sampling.top_k < len(logits):
        logits[logits < logits.topk(sampling.top_k).values[-1]] = -math.inf
    shares = (logits / sampling.temperature).softmax(0)
    return int(torch.multinomial(shares, 1, generator=draw))


def encode_run_lengths(values: Sequence[int]) -> str:
    """Encode numbers as a text, runs of equal numbers once."""
    runs = ((value, len(list(run))) for value, run in groupby(values))
    return " ".join(f"{value}*{count}" if count > 1 else str(value) for value, count in runs)


def decode_run_lengths(text: str) -> list[int]:
    """Decode a text of `encode_run_lengths`."""
    values: list[int] = []
    for run in text.split():
        value, _, count = run.partition("*")
        values += [int(value)] * int(count or 1)
    return values


_MOST_BITS = 64.0
"""Limit for a token whose probability has underflowed to 0."""


@final
class LanguageModelling(Task):
    """A sample has L tokens; its targets are the tokens shifted by one, int64 `[N, L]`."""

    name = "language_modelling"
    suits = "loss=cross_entropy metrics=language_modelling"
    loss_kinds = frozenset({"multiclass"})
    size_key = "vocab_size"
    unit = ("kind of token", "kinds of tokens")
    form = "the next token at each position, int64 [N, L]"
    takes_logits = True
    generates = True
    kept_kind = "surprisals"

    @override
    def for_loss(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return outputs.flatten(0, -2), targets.flatten()

    @override
    def check(self, subset: str, targets: Tensor, class_names: Sequence[str]) -> None:
        if targets.ndim != 2 or targets.is_floating_point():
            raise wrong_form(self, subset, targets)

    @override
    def sizes(self, targets: Tensor, class_names: Sequence[str]) -> dict[str, Any]:
        return {}

    @override
    def fake_targets(self, num_samples: int, size: int, input_shape: Sequence[int]) -> Tensor:
        import torch

        # One window, expanded without a copy: all tokens might not fit in memory.
        length = next(iter(input_shape), size)
        return (torch.arange(length) % size).expand(num_samples, length)

    @override
    def output_shape(self, spec: Mapping[str, Any], num_outputs: int) -> tuple[int, ...]:
        return (*spec["input_shape"], num_outputs)

    @override
    def typed(self, outputs: Array, kind: Kind, names: tuple[str, ...]) -> Predictions:
        raise ValueError("a language model predicts how a text continues, not its logits")

    @override
    def kept(self, outputs: Tensor, targets: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
        from torch.nn import functional as F

        nats = F.cross_entropy(
            outputs.flatten(0, -2).float(), targets.flatten(), reduction="none"
        )
        return (nats / math.log(2)).clamp(max=_MOST_BITS).view(targets.shape), targets

    @override
    def evaluator(self, predictions: StoredPredictions) -> Evaluator:
        if predictions.kind == "surprisals":
            return Tokens(predictions)
        return super().evaluator(predictions)
