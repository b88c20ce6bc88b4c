from __future__ import annotations

import pytest
import torch
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

import assay.data.subset
from assay.data.samples import Samples, Stream
from assay.data.subset import Subset, blocks
from assay.data.transforms import Transforms

ROWS = torch.tensor([4, 1, 1, 8])


@pytest.fixture
def pictures() -> Samples:
    draw = torch.Generator().manual_seed(0)
    return Samples(torch.randint(256, (9, 3, 6, 6), dtype=torch.uint8, generator=draw), torch.arange(9))


@pytest.mark.parametrize("size", [1, 2, 100])
def test_blocks_are_the_rows_in_their_order(
    pictures: Samples, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assay.data.subset, "_BLOCK_ELEMENTS", size * 3 * 6 * 6)
    found = list(blocks(pictures.inputs, ROWS))
    assert max(map(len, found)) == min(size, len(ROWS))
    assert torch.equal(torch.cat(found), pictures.inputs[ROWS])
    assert not list(blocks(pictures.inputs, ROWS[:0]))


def test_what_draws_nothing_is_applied_once(pictures: Samples) -> None:
    crop, flip = v2.CenterCrop(4), v2.RandomHorizontalFlip()
    subset = Subset(pictures, ROWS, ROWS + 100, Transforms([crop, flip]))
    once = subset.apply_once()
    assert isinstance(once.data, Samples)
    assert torch.equal(once.data.inputs, crop(pictures.inputs[ROWS]))
    assert torch.equal(once.data.targets, ROWS)
    assert once.rows.tolist() == [0, 1, 2, 3]
    assert torch.equal(once.keys, subset.keys), "random draws stay keyed by the sample of the source"
    for epoch in range(3):
        for place in range(len(ROWS)):
            key = int(subset.keys[place])
            whole = subset.transforms.batch(pictures.inputs[ROWS[place]][None], 0, epoch, torch.tensor([key]))
            rest = once.transforms.batch(once.data.inputs[place][None], 0, epoch, torch.tensor([key]))
            assert torch.equal(whole, rest)


@pytest.mark.parametrize("why", ["nothing to apply", "a stream", "no samples", "no memory"])
def test_left_as_it_is(pictures: Samples, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = [v2.RandomHorizontalFlip()] if why == "nothing to apply" else [v2.CenterCrop(4)]
    data = Stream(pictures, pictures.targets) if why == "a stream" else pictures
    if why == "no memory":
        monkeypatch.setattr(assay.data.subset, "free_memory", lambda: 1)
    rows = ROWS[:0] if why == "no samples" else ROWS
    subset = Subset(data, rows, rows, Transforms(chain))
    assert subset.apply_once() is subset
