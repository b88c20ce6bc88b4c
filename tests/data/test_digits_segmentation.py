"""Scenes of digits: real ones, the same each time, and no part has seen another's."""

from __future__ import annotations

import torch

from assay.data.digits_segmentation import DigitsSegmentation


def test_scenes_follow_from_the_seed() -> None:
    one, same, other = (DigitsSegmentation([20, 4, 4], seed=seed).read() for seed in (0, 0, 1))
    for part in ("train", "val", "test"):
        assert torch.equal(one[part].inputs, same[part].inputs)
        assert torch.equal(one[part].targets, same[part].targets)
        assert not torch.equal(one[part].inputs, other[part].inputs)
    targets = one["train"].targets
    assert sorted(set(targets.flatten().tolist())) == [0, 1, 2, 3]
    assert bool((targets == 0).flatten(1).any(1).all()), "a photograph is behind each"
    assert 0.05 < float((targets > 0).float().mean()) < 0.5
