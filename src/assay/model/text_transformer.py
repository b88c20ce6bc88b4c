from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch
from torch import nn

from assay.errors import check_numbers
from assay.model.checks import check_vocabulary
from assay.model.gpt import Block

if TYPE_CHECKING:
    from torch import Tensor


@final
class TextTransformer(nn.Module):
    """A pre-norm transformer encoder with mean pooling over the tokens of a text.

    Vaswani et al., "Attention Is All You Need" (2017), with learned positions; pre-norm as in Xiong et al.,
    "On Layer Normalization in the Transformer Architecture" (2020). Token ids int64 `[B, L]`, padded with 0,
    to outputs `[B, num_outputs]`, which do not depend on the padding.

    Args:
        vocab_size: Token ids go from 0 to below this.
        num_outputs: Values per text.
        max_length: Tokens of the longest text.
        width: Of the vector of a token.
        depth: Number of layers.
        num_heads: Number of attention heads, a divisor of the width.
        mlp_ratio: Hidden width of the perceptrons, as a multiple of the width.
        dropout: Share of values that are dropped in training.

    Raises:
        ValueError: The data has no token ids, or the sizes do not fit together.
    """

    def __init__(
        self,
        vocab_size: int,
        num_outputs: int,
        max_length: int,
        *,
        width: int = 128,
        depth: int = 2,
        num_heads: int = 4,
        mlp_ratio: float = 4.0,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_vocabulary("text_transformer", vocab_size)
        sizes = {"max_length": max_length, "width": width, "depth": depth, "num_heads": num_heads}
        check_numbers("[1, inf)", **sizes, num_outputs=num_outputs)
        if width % num_heads:
            raise ValueError(f"width={width}: expected a multiple of num_heads={num_heads}")
        self.embedding = nn.Embedding(vocab_size, width, padding_idx=0)
        self.position = nn.Embedding(max_length, width)
        for embedding in (self.embedding, self.position):
            nn.init.normal_(embedding.weight, std=0.02)
        self.dropout = nn.Dropout(dropout)
        hidden = max(1, round(width * mlp_ratio))
        self.layers = nn.ModuleList(
            Block(width, num_heads, dropout, hidden, approximate="none") for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids `[B, L]` to outputs `[B, num_outputs]`."""
        is_token = tokens != 0
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        values = self.dropout(self.embedding(tokens) + self.position(positions))
        # Padding is masked, except at the first position: a softmax over nothing is NaN.
        attention_mask = (is_token | (positions == 0))[:, None, None, :]
        for layer in self.layers:
            values = layer(values, attention_mask)
        weights = is_token.to(values.dtype)[:, :, None]
        mean = (self.norm(values) * weights).sum(1) / weights.sum(1).clamp(min=1)
        outputs: Tensor = self.head(self.dropout(mean))
        return outputs
