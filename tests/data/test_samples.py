from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from assay.data.samples import Samples, Stream

INPUTS, TARGETS = torch.arange(24.0).reshape(4, 6), torch.tensor([0, 1, 1, 0])
SAMPLES = Samples(INPUTS, TARGETS)


def test_a_sample_is_its_input_and_target() -> None:
    assert len(SAMPLES) == 4
    one, target = SAMPLES[2]
    assert torch.equal(one, INPUTS[2])
    assert target == 1


@pytest.mark.parametrize(
    "other",
    [
        Samples(INPUTS.double(), TARGETS),
        Samples(INPUTS.reshape(4, 2, 3), TARGETS),
        Samples(INPUTS.flip(0), TARGETS),
        Samples(INPUTS, TARGETS.flip(0) + 1),
        Samples(INPUTS, TARGETS.int()),
        replace(SAMPLES, identity="files"),
        Samples(INPUTS.nextafter(torch.tensor(torch.inf)), TARGETS),
    ],
    ids=["dtype", "shape", "order", "targets", "type of targets", "identity", "last bit"],
)
def test_other_data_has_another_digest(other: Samples) -> None:
    assert other.digest() != SAMPLES.digest()


def test_the_same_values_have_the_same_digest_however_they_lie_in_memory() -> None:
    assert Samples(INPUTS.t().contiguous().t(), TARGETS.clone()).digest() == SAMPLES.digest()
    many = torch.arange(2 * 5000).reshape(5000, 2)
    assert Samples(many.t().contiguous().t(), many[:, 0]).digest() == Samples(many, many[:, 0]).digest()


def test_a_stream_is_known_by_its_identity_and_targets() -> None:
    digests = [
        Stream(SAMPLES, TARGETS, identity="files").digest(),
        Stream(SAMPLES, TARGETS, identity="other files").digest(),
        Stream(SAMPLES, 1 - TARGETS, identity="files").digest(),
        Samples(INPUTS, TARGETS, identity="files").digest(),
    ]
    assert len(Stream(SAMPLES, TARGETS)) == 4
    assert sorted(Counter(digests).values()) == [1, 1, 2], "in memory and streamed it is the same data"
    assert digests[0] == digests[3]
