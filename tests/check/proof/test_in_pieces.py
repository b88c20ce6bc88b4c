"""Jobs whose batches cannot be cut are refused before they begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.errors import ConfigError

if TYPE_CHECKING:
    from tests.conftest import Train


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (("loss.class_weight=balanced",), "CrossEntropy is not known to be a mean over samples"),
        (("loss=ldam", "callbacks=[drw]", "callbacks.drw.start_epoch=1"), "LDAM with DeferredReweighting"),
        (("loss=triplet", "metrics=retrieval", "model.num_outputs=8"), "Triplet is not known to be a mean"),
        (("data=diabetes", "loss=mse", "metrics=regression", "+loss.reduction=sum"), "MSELoss"),
        (("device=ddp_cpu",), "several processes"),
    ],
)
def test_what_is_not_the_sum_of_its_pieces_is_refused(
    train: Train, overrides: tuple[str, ...], says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        train("data=digits", "model=mlp", "trainer.micro_batch=auto", *overrides)
    assert caught.value.key == "trainer.micro_batch"
    assert caught.value.hint
