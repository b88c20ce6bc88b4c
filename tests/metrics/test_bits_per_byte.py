from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.metrics.bits_per_byte import BitsPerByte
from assay.task.language_modelling import run_lengths


def test_bits_of_all_tokens_by_the_bytes_they_stand_for() -> None:
    """By hand, with tokens of 0, 1, 2 and 7 bytes, in uneven batches."""
    generator = np.random.default_rng(0)
    num_bytes = [0, 1, 2, 7, 1]
    logits = generator.normal(size=(6, 9, 5))
    targets = generator.integers(0, 5, (6, 9))
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    bits = -np.log2(np.take_along_axis(shares, targets[..., None], -1)).sum()
    expected = bits / np.array(num_bytes)[targets].sum()
    metric = BitsPerByte(run_lengths(num_bytes))
    for rows in (slice(0, 1), slice(1, 5), slice(5, 6)):
        metric.update(torch.from_numpy(logits[rows]), torch.from_numpy(targets[rows]))
    assert float(metric.compute()) == pytest.approx(expected, rel=1e-6)


def test_of_a_byte_each_it_is_the_loss_in_bits() -> None:
    logits, targets = torch.randn(4, 8, 256), torch.randint(256, (4, 8))
    metric = BitsPerByte()
    metric.update(logits, targets)
    nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert float(metric.compute()) == pytest.approx(float(nats) / np.log(2), rel=1e-5)


def test_millions_of_tokens_cost_no_digits() -> None:
    metric = BitsPerByte()
    logits, targets = torch.tensor([[[1.0, 0.0]]]).expand(1, 1000, 2), torch.zeros(1, 1000, dtype=torch.long)
    metric.update(logits, targets)
    expected = float(metric.compute())
    metric.bits, metric.num_bytes = metric.bits * 10**6, metric.num_bytes * 10**6
    for _ in range(100):
        metric.update(logits, targets)
    assert float(metric.compute()) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(
    ("token_bytes", "logits", "targets", "message"),
    [
        ("", (2, 3, 4), (2, 4), "do not fit tokens"),
        ("1*3", (2, 3, 4), (2, 3), "4 logits for 3 tokens"),
    ],
)
def test_what_does_not_fit(
    token_bytes: str, logits: tuple[int, ...], targets: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        BitsPerByte(token_bytes).update(torch.zeros(logits), torch.zeros(targets, dtype=torch.long))
