from __future__ import annotations

from typing import final

from torch import Tensor, nn
from torch.nn import functional as F

from assay.errors import check_numbers
from assay.model.checks import check_vocabulary


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
        context_length: Most tokens of an input.
        num_layers: Number of blocks.
        num_heads: Number of attention heads.
        embedding_size: Width of the residual stream.
        dropout: Probability of dropping embeddings, attention weights and outputs of layers in training.
        bias: Whether linear layers and layer norms have biases, as in GPT-2.

    Raises:
        ValueError: A size is below 1, `embedding_size` is not a multiple of `num_heads`, or there are no
            tokens.
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
        check_vocabulary("gpt", vocab_size, "text_files")
        sizes = {
            "context_length": context_length,
            "num_layers": num_layers,
            "num_heads": num_heads,
        }
        check_numbers("[1, inf)", **sizes, embedding_size=embedding_size)
        if embedding_size % num_heads:
            raise ValueError(
                f"embedding_size={embedding_size}: expected a multiple of num_heads={num_heads}"
            )
        self.vocab_size = vocab_size
        self.context_length = context_length
        self.tokens = nn.Embedding(vocab_size, embedding_size)
        self.positions = nn.Embedding(context_length, embedding_size)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(
            *(Block(embedding_size, num_heads, dropout, bias=bias) for _ in range(num_layers))
        )
        self.norm = nn.LayerNorm(embedding_size, bias=bias)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                depth = 1.0
                if name.endswith("project.weight"):
                    depth = (2 * num_layers) ** 0.5
                nn.init.normal_(parameter, std=0.02 / depth)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of the next token at each position."""
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
class Block(nn.Module):
    """Self-attention, then a perceptron with GELU, each with pre-norm and a residual connection.

    Args:
        size: Width of inputs and outputs.
        num_heads: Number of attention heads.
        dropout: As for `GPT`.
        hidden: Width of the perceptron; None: four times `size`.
        bias: As for `GPT`.
        approximate: Approximation of GELU; GPT-2 uses tanh.
    """

    def __init__(
        self,
        size: int,
        num_heads: int,
        dropout: float,
        hidden: int | None = None,
        *,
        bias: bool = True,
        approximate: str = "tanh",
    ) -> None:
        super().__init__()
        hidden = hidden or 4 * size
        self.num_heads = num_heads
        self.drop_probability = dropout
        self.attention_norm = nn.LayerNorm(size, bias=bias)
        self.query_key_value = nn.Linear(size, 3 * size, bias=bias)
        self.attention_project = nn.Linear(size, size, bias=bias)
        self.mlp_norm = nn.LayerNorm(size, bias=bias)
        self.widen = nn.Linear(size, hidden, bias=bias)
        self.activation = nn.GELU(approximate)
        self.mlp_project = nn.Linear(hidden, size, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Attend causally, or as `attention_mask` allows."""
        heads = self.query_key_value(self.attention_norm(hidden)).unflatten(
            -1, (3, self.num_heads, -1)
        )
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind()
        drop = 0.0
        if self.training:
            drop = self.drop_probability
        attended = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=attention_mask,
            dropout_p=drop,
            is_causal=attention_mask is None,
        )
        hidden = hidden + self.dropout(
            self.attention_project(attended.transpose(1, 2).flatten(-2))
        )
        widened = self.activation(self.widen(self.mlp_norm(hidden)))
        outputs: Tensor = hidden + self.dropout(self.mlp_project(widened))
        return outputs
