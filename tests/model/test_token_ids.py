from __future__ import annotations

from typing import Any

import pytest

from assay.model.bag_of_embeddings import BagOfEmbeddings
from assay.model.text_transformer import TextTransformer


@pytest.mark.parametrize(
    "make", [BagOfEmbeddings, lambda vocab, outputs: TextTransformer(vocab, outputs, 64)]
)
def test_data_without_tokens_is_refused_with_a_way_out(make: Any) -> None:
    with pytest.raises(ValueError, match=r"takes texts.*model=small_cnn takes pictures, model=mlp numbers"):
        make(0, 10)
