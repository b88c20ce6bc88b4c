"""`assay data`: the data of a job as its run would get it, looked at before anything is trained."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch
from omegaconf import OmegaConf

from assay.build.datamodule import describe, open_data
from assay.build.node import build
from assay.data.data_module import DataModule
from assay.data.samples import Samples
from assay.data.shown.shown_samples import Shown, show, show_augmented
from assay.errors import AssayError
from assay.quoting import number_text
from assay.report.data.data_page import data_page
from assay.report.data.survey import raw_tables, survey
from assay.report.page.render import write
from assay.report.report import check_replaced, written
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from torch import Tensor

    from assay.compose.job_composer import Job
    from assay.report.data.survey import Survey

    _Samples = list[tuple[str, str, Shown]]

_SAMPLES: Final = 24
_TEACHER: Final = "assay.augment.teacher.Teacher"


def look(job: Job, out: Path | None = None) -> Survey:
    """Read the data of a job and say what is in it.

    Args:
        job: Composed; its names are right.
        out: A file for the page; None for none.

    Raises:
        AssayError: The data cannot be used, it is read by a datamodule of somebody's own, or the page cannot
            be written.
    """
    if out is not None:
        check_replaced(out)
    config = job.to_config()
    datamodule: Any = open_data(config)
    if not isinstance(datamodule, DataModule):
        raise AssayError(
            "data: a datamodule of your own is not looked into: only assay's says what its subsets hold",
            hint="give it as a source: data=custom",
        )
    name = str(job.choices.get("data") or type(datamodule.source).__name__)
    tables = raw_tables(datamodule)
    found = survey(datamodule, name, tables)
    if out is None:
        return found
    describe(config, datamodule.spec)
    samples = _samples(datamodule, tables, _augment(config))
    written(out, lambda: write(data_page(found, samples, job.overrides), out), "--out FILE")
    return replace(found, page=out)


def _augment(config: Any) -> Any:
    """The augmentation of a batch; None where there is none, or it needs another run's model."""
    target = OmegaConf.select(config, "augment._target_")
    return None if target in (None, _TEACHER) else build(config, "augment")


def _samples(datamodule: DataModule, tables: Mapping[str, pd.DataFrame], augment: Any) -> dict[str, _Samples]:
    """Some of each subset as they are, and of training as the model sees them, where that differs."""
    shown: dict[str, _Samples] = {}
    for name in ("train", "val", "test"):
        subset = datamodule.subset(name)
        if not len(subset.rows):
            continue
        last = len(subset.rows) - 1
        spread = torch.linspace(0, last, min(last + 1, _SAMPLES)).round().long().tolist()
        rows = subset.rows[spread].tolist()
        keys = [subset.data.names[row] if subset.data.names else str(row) for row in rows]
        targets = [_in_words(datamodule, subset.data.targets[row]) for row in rows]
        raw = tables.get(name)
        given = _shown(datamodule, name, spread, raw)
        shown[f"{name}, as they are"] = list(zip(keys, targets, given, strict=True))
        if name == "train":
            seen = _shown(datamodule, name, spread, raw, chain="train", augment=augment)
            if [sample.picture for sample in seen] != [sample.picture for sample in given]:
                title = "train, after data.transform.train" + (" and augment" if augment else "")
                shown[title] = list(zip(keys, targets, seen, strict=True))
    return shown


def _shown(
    datamodule: DataModule,
    name: str,
    positions: Sequence[int],
    raw: pd.DataFrame | None,
    *,
    chain: str = "",
    augment: Any = None,
) -> list[Shown]:
    """Samples of a subset, of which `raw` has the rows of a table, after the transforms of a chain."""
    subset = datamodule.subset(name, chain)
    pieces = getattr(datamodule.encoder, "pieces", None)
    if pieces is not None and isinstance(subset.data, Samples):
        texts = subset.data.inputs[subset.rows[list(positions)]].tolist()
        return [Shown(None, {"text": "".join(pieces([token for token in text if token]))}) for text in texts]
    if augment is None or raw is not None:
        return show(subset, positions, datamodule.seed, raw, getattr(subset.data, "columns", ()))

    def augmented(inputs: Tensor, targets: Tensor) -> Any:
        return augment(*datamodule.prepared(inputs, targets, torch.float32))

    return show_augmented(subset, positions, datamodule.seed, augmented, datamodule.normalize)


def _in_words(datamodule: DataModule, target: Any) -> str:
    names, task = datamodule.spec.class_names, task_of(datamodule.spec.task)
    if target.ndim == 0 and task.by_class:
        return names[int(target)] if names else str(int(target))
    if target.ndim == 1 and names and len(target) == len(names):
        return ", ".join(name for name, has in zip(names, target.tolist(), strict=True) if has) or "none"
    return ", ".join(number_text(value, 5) for value in target.flatten()[:5].tolist())
