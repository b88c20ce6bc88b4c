from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch
from torch import nn

from assay.errors import check_numbers
from assay.model.checks import check_vocabulary

if TYPE_CHECKING:
    from torch import Tensor


@final
class BagOfEmbeddings(nn.Module):
    """The classifier of fastText: the order of the tokens does not matter.

    Joulin, Grave, Bojanowski and Mikolov, "Bag of Tricks for Efficient Text Classification" (2016); without
    its hashed n-grams. Embeddings start as small as there, so that rare words have little weight.
    Token ids int64 `[B, L]`, padded with 0, to outputs `[B, num_outputs]`, which do not
    depend on the padding.

    Args:
        vocab_size: Token ids go from 0 to below this.
        num_outputs: Values per text.
        width: Of an embedding.
        dropout: Share of the values of a text's embedding that are dropped in training.

    Raises:
        ValueError: The data has no token ids, or a size is below 1.
    """

    def __init__(
        self, vocab_size: int, num_outputs: int, *, width: int = 128, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_vocabulary("bag_of_embeddings", vocab_size)
        check_numbers("[1, inf)", width=width, num_outputs=num_outputs)
        self.embedding = nn.Embedding(vocab_size, width, padding_idx=0)
        nn.init.uniform_(self.embedding.weight, -1 / width, 1 / width)
        with torch.no_grad():
            self.embedding.weight[0] = 0
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, num_outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids `[B, L]` to outputs `[B, num_outputs]`."""
        number = (tokens != 0).sum(1, keepdim=True).clamp(min=1)
        # The embedding of padding is 0, and so is its gradient.
        mean = self.embedding(tokens).sum(1) / number
        outputs: Tensor = self.head(self.dropout(mean))
        return outputs
