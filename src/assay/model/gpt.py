from __future__ import annotations

from typing import final

from torch import Tensor, nn
from torch.nn import functional as F


@final
class GPT(nn.Module):
    """GPT-2's architecture (Radford et al. 2019, *Language Models are Unsupervised Multitask Learners*).

    Learned positions, pre-norm blocks of causal self-attention and a perceptron four times as wide, a last
    layer norm, and an output layer that shares its weights with the embedding of tokens. Weights start from
    a normal distribution of deviation 0.02, those of the 2 · `num_layers` layers that add to the residual
    stream from one of 0.02 / √(2 · `num_layers`); biases at 0.

    Inputs int64 `[B, L]`, token ids, with 1 ≤ L ≤ `context_length`; outputs float `[B, L, vocab_size]`:
    logits of the token after each.

    Args:
        vocab_size: How many tokens there are.
        context_length: Tokens that are seen at most.
        num_layers: Blocks.
        num_heads: Heads of each attention.
        embedding_size: Width of the residual stream.
        dropout: Probability with which embeddings, attention weights and what a layer adds are dropped while
            training.
        bias: Of linear layers and layer norms; GPT-2 has them.

    Raises:
        ValueError: A size is below 1, `embedding_size` is not a multiple of `num_heads`, `dropout` is not in
            [0, 1), or there are no tokens.
    """

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        *,
        num_layers: int = 4,
        num_heads: int = 4,
        embedding_size: int = 128,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if vocab_size < 1:
            raise ValueError("model=gpt takes token ids, and this data has none; use data=text_files")
        sizes = {
            "context_length": context_length, "num_layers": num_layers,
            "num_heads": num_heads, "embedding_size": embedding_size,
        }  # fmt: skip
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"model.{name} must be at least 1, got {size}")
        if embedding_size % num_heads:
            fitting = max(num_heads, round(embedding_size / num_heads) * num_heads)
            raise ValueError(
                f"model.embedding_size={embedding_size} is not a multiple of model.num_heads, which is "
                f"{num_heads}; use model.embedding_size={fitting}"
            )
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"model.dropout must be in [0, 1), got {dropout}; use model.dropout=0.1")
        self.vocab_size, self.context_length = vocab_size, context_length
        self.tokens = nn.Embedding(vocab_size, embedding_size)
        self.positions = nn.Embedding(context_length, embedding_size)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(
            *(_Block(embedding_size, num_heads, dropout, bias=bias) for _ in range(num_layers))
        )
        self.norm = nn.LayerNorm(embedding_size, bias=bias)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                depth = (2 * num_layers) ** 0.5 if name.endswith("project.weight") else 1.0
                nn.init.normal_(parameter, std=0.02 / depth)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of the next token at each position."""
        if inputs.ndim != 2 or inputs.is_floating_point():
            raise ValueError(
                f"model=gpt takes token ids [B, L], got {inputs.dtype} {list(inputs.shape)}; use "
                "data=text_files"
            )
        length = inputs.shape[1]
        if length > self.context_length:
            raise ValueError(
                f"model.context_length is {self.context_length}, and a sample has {length} tokens; use "
                "model.context_length=${spec.input_shape.0}"
            )
        hidden = self.dropout(self.tokens(inputs) + self.positions.weight[:length])
        logits: Tensor = F.linear(self.norm(self.blocks(hidden)), self.tokens.weight)
        return logits


@final
class _Block(nn.Module):
    """Attention, then a perceptron, each added to what it is given the norm of."""

    def __init__(self, size: int, num_heads: int, dropout: float, *, bias: bool) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(size, bias=bias)
        self.attention = _Attention(size, num_heads, dropout, bias=bias)
        self.mlp_norm = nn.LayerNorm(size, bias=bias)
        self.mlp = _MLP(size, dropout, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        outputs: Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return outputs


@final
class _Attention(nn.Module):
    """Causal self-attention of several heads."""

    def __init__(self, size: int, num_heads: int, dropout: float, *, bias: bool) -> None:
        super().__init__()
        self.num_heads, self.drop_probability = num_heads, dropout
        self.query_key_value = nn.Linear(size, 3 * size, bias=bias)
        self.project = nn.Linear(size, size, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        heads = self.query_key_value(hidden).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind()
        drop = self.drop_probability if self.training else 0.0
        attended = F.scaled_dot_product_attention(query, key, value, dropout_p=drop, is_causal=True)
        projected: Tensor = self.dropout(self.project(attended.transpose(1, 2).flatten(-2)))
        return projected


@final
class _MLP(nn.Module):
    """A hidden layer four times as wide, with the tanh form of GELU that GPT-2 has."""

    def __init__(self, size: int, dropout: float, *, bias: bool) -> None:
        super().__init__()
        self.widen = nn.Linear(size, 4 * size, bias=bias)
        self.project = nn.Linear(4 * size, size, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        widened = F.gelu(self.widen(hidden), approximate="tanh")
        projected: Tensor = self.dropout(self.project(widened))
        return projected
