from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from assay.data.tokenizer import Bytes
from assay.task.language_modelling import Sampling, generate

CODEC = Bytes()
A = ord("a")
SHARES = torch.zeros(256)
SHARES[A : A + 3] = torch.tensor([0.6, 0.3, 0.1])


class Model:
    """Says the same of each token, and keeps what it was given."""

    def __init__(self, shares: Tensor = SHARES) -> None:
        self.seen: list[list[int]] = []
        self._logits = shares.log()

    def __call__(self, inputs: Tensor) -> Tensor:
        self.seen.append(inputs[0].tolist())
        return self._logits.expand(1, inputs.shape[1], -1)


def test_it_sees_the_end_of_the_text_and_what_stands_before_each() -> None:
    model = Model()
    found = generate(model, CODEC, "abca", 4, Sampling(temperature=0, max_tokens=3))
    assert model.seen == [[A, A + 1, A + 2, A], [A + 1, A + 2, A, A], [A + 2, A, A, A]]
    assert found.text == "aaa"
    assert found.surprisals == pytest.approx([-math.log2(0.6)] * 3, rel=1e-5)
    empty = Model()
    generate(empty, CODEC, "", 4, Sampling(max_tokens=1))
    assert empty.seen == [[0]]


def test_tokens_come_as_often_as_the_model_says() -> None:
    text = generate(Model(), CODEC, "", 8, Sampling(max_tokens=4000)).text
    shares = [text.count(one) / len(text) for one in "abc"]
    assert shares == pytest.approx([0.6, 0.3, 0.1], abs=0.03)


def test_a_text_ends_where_the_model_ends_it() -> None:
    found = generate(Model(torch.eye(256)[0]), CODEC, "a", 8, Sampling())
    assert (found.text, found.num_tokens) == ("", 1)
