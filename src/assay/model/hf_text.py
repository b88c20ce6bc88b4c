"""Text encoders of Hugging Face transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, final

import torch
from torch import Tensor, nn

from assay.errors import ConfigError, first_line
from assay.files.symlinks import read_whole
from assay.model.checks import check_vocabulary
from assay.model.hf_folder import (
    check_network_kind,
    find_weights_file,
    find_weights_folder,
    is_run_directory,
    read_network_settings,
)
from assay.model.pretrained_weights import load_pretrained_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedConfig

_AFTER_PADDING = ("mpnet", "roberta")
"""Networks that count positions from the padding id on."""


@final
class HFText(nn.Module):
    """A text encoder of transformers, with a linear head over its outputs; needs the package `transformers`.

    Token ids int64 `[B, L]`, padded with 0, to outputs `[B, num_outputs]`, which do not depend on the
    padding. If the padding id of the network is not 0, it is swapped with 0: by the data's tokenizer, and
    back before the network. Supported are bidirectional networks: BERT, DistilBERT, ELECTRA, ModernBERT,
    MPNet and RoBERTa. No code of a repository is run, and nothing is downloaded.

    Args:
        config: Settings of the network, as in its config.json; `auto`: those of `weights`.
        vocab_size: Token ids of the data go from 0 to below this.
        num_outputs: Values per text.
        max_length: Tokens of the longest text.
        weights: A folder with config.json, model.safetensors and tokenizer.json, as `save_pretrained` writes
            it; a file in one (`.safetensors`, `.bin`, `.pth`); or the directory of a run. None: random.
        pooling: Input of the head: the `mean` over the tokens, or the first one (`cls`).
        dropout: Share of values before the head that are dropped in training.

    Attributes:
        head_names: The head.
        new_layers: Layers that the weights did not fill.

    Raises:
        ModuleNotFoundError: transformers is not installed.
        ConfigError: The network is not supported, or the weights or the texts do not fit it.
        ValueError: The data has no token ids, or the weights cannot be read.
    """

    head_names = ("head",)

    def __init__(
        self,
        config: Mapping[str, Any] | Literal["auto"],
        vocab_size: int,
        num_outputs: int,
        max_length: int,
        *,
        weights: str | None = None,
        pooling: Literal["mean", "cls"] = "mean",
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        try:
            check_vocabulary("hf_text", vocab_size)
        except ValueError as error:  # not the vocab_size of the network
            raise ConfigError(str(error), key="model", hint="data=text_table") from error
        settings = _make_settings(
            read_network_settings(weights) if isinstance(config, str) else config, vocab_size
        )
        _check_texts(settings, vocab_size, max_length)
        from transformers import AutoModel

        self.encoder: Any = AutoModel.from_config(settings)  # type: ignore[no-untyped-call]  # transformers has no types there
        self.encoder.pooler = None  # trained for another task, and not used here
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(settings.hidden_size, num_outputs)
        self._padding = padding_id(settings)
        self._first = pooling == "cls"
        prefix = f"{self.encoder.base_model_prefix}."
        self.new_layers = load_pretrained_weights(
            self,
            None if weights is None else find_weights_file(weights),
            head=["head"],
            convert=lambda entries: _convert_entries(entries, prefix),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids `[B, L]` to outputs `[B, num_outputs]`."""
        is_token = tokens != 0
        network_ids = torch.where(
            is_token, torch.where(tokens == self._padding, 0, tokens), self._padding
        )
        # The first position is always attended to: a softmax over nothing is NaN.
        attention_mask = is_token | (torch.arange(tokens.shape[1], device=tokens.device) == 0)
        if self._padding == 0:
            ids = tokens
        else:
            ids = network_ids
        encoded = self.encoder(
            input_ids=ids, attention_mask=attention_mask.long(), return_dict=True
        )
        values: Tensor = encoded.last_hidden_state
        weights = is_token.to(values.dtype)[:, :, None]
        if self._first:
            mean = values[:, 0]
        else:
            mean = (values * weights).sum(1) / weights.sum(1).clamp(min=1)
        outputs: Tensor = self.head(self.dropout(mean))
        return outputs

    @staticmethod
    def trained_on(config: Any, weights: str) -> dict[str, Any]:
        """Return the tokenizer that the weights were trained with."""
        folder = find_weights_folder(weights)
        if isinstance(config, str):
            settings = read_network_settings(weights)
        else:
            settings = config
        try:
            tokenizer = read_whole(folder / "tokenizer.json").decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{folder / 'tokenizer.json'} cannot be read: {first_line(error)}",
                key="model.weights",
                hint="transformers writes one: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
            ) from error
        padding = 0
        if not is_run_directory(folder):
            padding = padding_id(_make_settings(settings, 0))
        return {"tokenizer": tokenizer, "padding": padding, "source": str(folder)}


def padding_id(settings: PreTrainedConfig) -> int:
    """Return the padding id of the network."""
    padding = settings.pad_token_id
    if isinstance(padding, int):
        return padding
    return 0


def _make_settings(config: Mapping[str, Any], vocab_size: int) -> PreTrainedConfig:
    check_network_kind(config)
    from transformers import AutoConfig

    values = {**({"vocab_size": vocab_size} if vocab_size else {}), **config}
    settings: PreTrainedConfig = AutoConfig.for_model(values.pop("model_type"), **values)
    return settings


def _check_texts(settings: PreTrainedConfig, vocab_size: int, max_length: int) -> None:
    padding = padding_id(settings)
    network_vocab_size = int(settings.vocab_size)
    if vocab_size > network_vocab_size:
        raise ConfigError(
            f"the tokenizer has {vocab_size:,} tokens, the network only {network_vocab_size:,}",
            key="data.source.tokenizer",
            hint="data.source.tokenizer=auto is the tokenizer of the weights; for random weights remove "
            "model.config.vocab_size",
        )
    longest = int(settings.max_position_embeddings)
    if settings.model_type in _AFTER_PADDING:
        longest -= padding + 1
    else:
        longest -= 0
    if max_length > longest:
        message = f"expected at most {longest} tokens per text, which the network can read, got {max_length}"
        raise ConfigError(
            message, key="data.source.max_length", hint=f"data.source.max_length={longest}"
        )


def _convert_entries(entries: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Rename the entries as in this module, without the heads of other tasks."""
    if "head.weight" in entries and all(
        name.startswith(("encoder.", "head.")) for name in entries
    ):
        return entries  # of a run
    inside = {
        name.removeprefix(prefix): value
        for name, value in entries.items()
        if name.startswith(prefix)
    }
    # of a shape that does not fit
    converted = {"head.weight": torch.empty(0), "head.bias": torch.empty(0)}
    for name, value in (inside or entries).items():
        if not name.startswith("pooler.") and name != "embeddings.position_ids":
            modern = name.replace("LayerNorm.gamma", "LayerNorm.weight")
            converted[f"encoder.{modern.replace('LayerNorm.beta', 'LayerNorm.bias')}"] = value
    return converted
