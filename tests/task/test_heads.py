from __future__ import annotations

import pytest
import torch

from assay.task.heads import Head, heads_of, output_names


def test_the_names_of_outputs_tell_the_heads() -> None:
    names = [*output_names("kind", ["a", "b=c"]), *output_names("size"), *output_names("sex", ["f", "m"])]
    assert names == ["kind=a", "kind=b=c", "size", "sex=f", "sex=m"]
    assert heads_of(names) == (
        Head("kind", 0, 0, ("a", "b=c")),
        Head("size", 1, 2),
        Head("sex", 2, 3, ("f", "m")),
    )


def test_no_names_are_no_heads() -> None:
    assert heads_of([]) == ()


@pytest.mark.parametrize(("index", "columns"), [(0, [0, 1]), (1, [2]), (2, [3, 4])])
def test_a_head_takes_its_part_of_the_outputs(index: int, columns: list[int]) -> None:
    outputs = torch.arange(10).view(2, 5)
    head = heads_of(["kind=a", "kind=b", "size", "sex=f", "sex=m"])[index]
    assert head.num_outputs == len(columns)
    assert torch.equal(head.of(outputs), outputs[:, columns])
