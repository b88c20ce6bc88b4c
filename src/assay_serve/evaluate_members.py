"""Testing the mean of several runs on samples that none of them was trained on, beside their own scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import torch

from assay.assemble.trainer import check_device, silence_lightning
from assay.data.core.data_module import DataModule
from assay.data.core.rendering import eval_samples, sample_names
from assay.errors import AssayError, ConfigError
from assay.quoting import command
from assay.record.run_record import RunRecord
from assay.run.execute import threads_of
from assay.run.saved_config import read_config
from assay.targets.trust import check_addresses, trust, typed_packages
from assay.task.predictions import StoredPredictions
from assay_analysis.out_of_fold import gather_folds, mean_scores
from assay_serve.ensemble import read_members
from assay_serve.evaluate import change_data, changed_data_error, read_data, read_trained
from assay_serve.kept_predictions import warnings_of
from assay_serve.threshold import describe_scores, set_threshold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from assay.run.predictor import Predictor
    from assay_serve.members import Members


@final
@dataclass(frozen=True)
class MembersEvaluation:
    """What the mean of several runs came to.

    Attributes:
        run_dir: The folder of the runs.
        members: Their directories.
        subset: What was tested; `all` where the data came undivided.
        same_data: Whether it is the runs' own data.
        num_samples: How many were tested.
        metrics: Scores of the mean, named as on a report's page; of two classes at 0.5.
        member_metrics: The same of the runs, each by itself on the same samples: their mean.
        out_of_fold: The same of each sample by the run that tested its fold; empty without folds.
        notes: What the user should know.
        threshold: Of two classes, that of the mean, with its precision, recall and F1; empty where it has
            none.
    """

    run_dir: Path
    members: Sequence[Path]
    subset: str
    same_data: bool
    num_samples: int
    metrics: Mapping[str, float]
    member_metrics: Mapping[str, float]
    out_of_fold: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    threshold: Mapping[str, Any] = field(default_factory=dict)


def evaluate_members(
    members: Members,
    overrides: Sequence[str] = (),
    *,
    checkpoint: Literal["best", "last"] = "best",
    split: Literal["", "train", "val", "test"] = "",
    threshold: str | None = None,
    config_dir: Path | None = None,
) -> MembersEvaluation:
    """Test the mean of several runs as `evaluate` tests a run; nothing is kept."""
    packages = typed_packages(overrides)
    first = members.run_dirs[0]
    with silence_lightning(), threads_of(RunRecord.load(first)):
        opened = [
            _open_data(run_dir, overrides, split, packages, config_dir)
            for run_dir in members.run_dirs
        ]
        datas = [data for data, _ in opened]
        same = opened[0][1]
        keys = sample_names(datas[0])
        for run_dir, data in zip(members.run_dirs, datas, strict=True):
            if sample_names(data) != keys:
                raise AssayError(
                    f"{first} and {run_dir} divide the data differently, so one was trained on samples that "
                    "the other tests",
                    hint="name samples that no run has seen: data.source.path=FILE",
                )
        device = "cpu" if "device=cpu" in overrides else None
        ensemble = read_members(members, checkpoint, device, packages)
        if threshold is not None:
            set_threshold(ensemble, members.folder, threshold)
        whole, *each = _predict(ensemble, datas, keys)
    task: Any = ensemble.task
    scores = [{score.name: score.value for score in task.scores(one)} for one in (whole, *each)]
    folds = gather_folds([members.row]) if same else []
    about = ensemble.about_threshold
    notes = [*ensemble.notes, *(problem for fold in folds for problem in fold.problems)]
    if not same:
        notes += datas[0].source.notes
    if not same and whole.subset in ("all", "train"):
        notes.append("it is not known whether the runs were trained on some of these samples")
    return MembersEvaluation(
        run_dir=members.folder,
        members=members.run_dirs,
        subset=whole.subset,
        same_data=same,
        num_samples=len(keys),
        metrics=scores[0],
        member_metrics={
            name: float(np.mean([own[name] for own in scores[1:]])) for name in scores[0]
        },
        out_of_fold=mean_scores(folds),
        notes=[*notes, *warnings_of(whole.at(about))],
        threshold=describe_scores(about, whole),
    )


def _open_data(
    run_dir: Path,
    overrides: Sequence[str],
    split: str,
    packages: Sequence[str],
    config_dir: Path | None,
) -> tuple[DataModule, bool]:
    """The samples to test as a run prepares them, and whether they are its own."""
    digest = RunRecord.load(run_dir).data_sha256
    config = read_config(run_dir, packages)
    trained = read_trained(config, run_dir)
    other = change_data(config, overrides, config_dir)
    check_addresses(config, trust(overrides))
    check_device(config.trainer)
    data: Any = read_data(config, trained, split, digest)
    if not isinstance(data, DataModule):
        raise AssayError(f"{run_dir}: a custom datamodule does not say which samples it tests")
    same = data.digest() == digest
    if not (same or other):
        raise changed_data_error(run_dir)
    if same and data.split.folds:
        if split not in ("", "test"):
            raise ConfigError(f"the {split} samples of each fold are others", key="--split")
        config.data.split.update({"folds": None, "fold": None})
        data = read_data(config, trained, "test", digest)
        if data.splits.data["test"] is data.splits.data["train"]:
            raise AssayError(
                f"the mean of {run_dir.parent} has no test samples: some run was trained on each",
                hint="name samples that no run has seen: data.source.path=FILE; the scores out of fold: "
                f"{command('report', run_dir.parent)}",
            )
    return data, same


@torch.no_grad()
def _predict(
    ensemble: Predictor, datas: Sequence[DataModule], keys: Sequence[str]
) -> list[StoredPredictions]:
    """What the mean predicts, then what each run does."""
    task: Any = ensemble.task
    mean: Any = ensemble.model
    kind: Any = ensemble.kind
    parts: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(mean.members + 1)]
    for chosen in torch.split(torch.arange(len(keys)), datas[0].eval_batch_size):
        predicted = []
        for predictor, data in zip(mean.predictors, datas, strict=True):
            inputs, targets = eval_samples(data, data.tested, chosen.tolist())
            inputs = inputs.to(next(predictor.parameters()).device)
            predicted.append(
                predictor.read_outputs(inputs, predictor.model_outputs(inputs)).cpu()
            )
        for part, outputs in zip(
            parts, [torch.stack(predicted).mean(0), *predicted], strict=True
        ):
            part.append(task.kept(outputs, targets.cpu(), kind))
    kept = [[torch.cat(column).numpy() for column in zip(*part, strict=True)] for part in parts]
    return [
        StoredPredictions(
            task.name,
            task.kept_kind or kind,
            tuple(keys),
            outputs.astype(np.float32),
            targets if targets[0].size else None,
            tuple(datas[0].spec.class_names or datas[0].spec.target_names),
            subset=datas[0].tested,
        )
        for outputs, targets in kept
    ]
