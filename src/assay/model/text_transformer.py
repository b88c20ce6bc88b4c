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
    """A transformer encoder with normalisation before each layer, and the mean over a text's tokens.

    Vaswani et al., "Attention Is All You Need" (2017), with learned positions; pre-norm as in Xiong et al.,
    "On Layer Normalization in the Transformer Architecture" (2020). Token ids int64 `[B, L]`, padded with 0,
    to outputs `[B, num_outputs]`, which do not depend on how far a text is padded.

    Args:
        vocab_size: Token ids go from 0 to below this.
        num_outputs: Values per text.
        max_length: Tokens of the longest text.
        width: Of a token's vector.
        depth: Number of layers.
        num_heads: Of the attention; the width is a multiple of it.
        mlp_ratio: Width within a layer's perceptron, in widths.
        dropout: Share of values that are left out in training.

    Raises:
        ValueError: The data has no token ids, or a size is not one that goes with the others.
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
        # Nothing looks at padding; the first place is always looked at, as a softmax over nothing is NaN.
        attention_mask = (is_token | (positions == 0))[:, None, None, :]
        for layer in self.layers:
            values = layer(values, attention_mask)
        weights = is_token.to(values.dtype)[:, :, None]
        mean = (self.norm(values) * weights).sum(1) / weights.sum(1).clamp(min=1)
        outputs: Tensor = self.head(self.dropout(mean))
        return outputs
