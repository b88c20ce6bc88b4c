"""What models of texts ask of their data."""

from __future__ import annotations


def check_vocabulary(model: str, vocab_size: int) -> None:
    """Refuse data whose inputs are not token ids.

    Args:
        model: For the message.
        vocab_size: Of the data; 0 where it has no tokens.

    Raises:
        ValueError: There are no token ids.
    """
    if vocab_size < 1:
        raise ValueError(
            f"vocab_size={vocab_size}: model={model} takes texts, as data=text_table gives them; this data "
            "has none: model=small_cnn takes pictures, model=mlp numbers"
        )
