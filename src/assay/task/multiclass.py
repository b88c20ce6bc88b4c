"""One class of several."""

from __future__ import annotations

from typing import final

from assay.task.single_label import SingleLabel


@final
class Multiclass(SingleLabel):
    """One of C classes per sample; the model returns C values."""

    name = "multiclass"
    suits = "loss=cross_entropy metrics=multiclass"
    loss_kinds = frozenset({"multiclass", "embedding"})
    form = "one class index per sample, [N]"
