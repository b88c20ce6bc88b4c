"""Runs that differ in seed or fold alone as one predictor: each prepares raw input, and the mean counts."""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING, Any, cast, final

import torch
from torch import Tensor, nn

from assay.errors import AssayError
from assay.quoting import join_first
from assay.run.predictor import Predictor, read_predictor
from assay_serve.members import find_members

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from assay.data.core.types import Frame
    from assay.data.preprocess import Preprocess
    from assay_serve.members import Members

_AVERAGED = ("probabilities", "values", "scores")
"""Kinds of outputs that mean the same in each run; embeddings have axes of their own."""


@final
class MeanOfRuns(nn.Module):
    """What several runs predict for samples, of which each has columns of its own if `widths` says so.

    Attributes:
        members: How many runs.
        predictors: Of the runs.
        returns_predictions: Tells `Predictor` that there is nothing left to postprocess.
    """

    returns_predictions = True

    def __init__(self, predictors: Sequence[Predictor], widths: Sequence[int]) -> None:
        super().__init__()
        self.predictors = nn.ModuleList(predictors)
        self.members = len(predictors)
        self._widths = list(widths)

    def member_outputs(self, samples: Tensor) -> Tensor:
        """What each run predicts, `[N, members, …]`."""
        parts: Sequence[Tensor] = [samples] * self.members
        if self._widths:
            parts = torch.split(samples, self._widths, 1)
        predicted = []
        for predictor, part in zip(self.predictors, parts, strict=True):
            run: Any = predictor
            inputs = run.preprocess.normalized(part)
            predicted.append(run.read_outputs(inputs, run.model_outputs(inputs)))
        return torch.stack(predicted, 1)

    def forward(self, samples: Tensor) -> Tensor:
        """The mean of what the runs predict, `[N, …]`."""
        return self.member_outputs(samples).mean(1)


@final
class PreprocessOfRuns:
    """Raw input as several runs take it; rows of a table as each encodes them, side by side.

    All else is that of the first run.
    """

    def __init__(self, each: Sequence[Preprocess]) -> None:
        self.each = each
        self.widths: list[int] = []
        self.input_shape = each[0].input_shape
        if each[0].encoder is not None:
            self.widths = [one.input_shape[0] for one in each]
            self.input_shape = (sum(self.widths),)

    def __getattr__(self, name: str) -> Any:
        if name == "each":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self.each[0], name)

    def __call__(self, raw: Any) -> Tensor:
        """What the runs take."""
        return self.samples(raw)[0]

    def samples(self, raw: Any) -> tuple[Tensor, bool]:
        """See `Preprocess.samples`."""
        if not self.widths:
            return self.each[0].samples(raw)
        pairs = [one.samples(raw) for one in self.each]
        return torch.cat([samples for samples, _ in pairs], 1), pairs[0][1]

    def encoded(
        self, frame: Frame, decimal: str
    ) -> tuple[Tensor, Mapping[int, str], Mapping[int, str]]:
        """See `Preprocess.encoded`; a row that one of the runs cannot encode has an error."""
        parts = [one.encoded(frame, decimal) for one in self.each]
        errors = dict(ChainMap(*(dict(part[1]) for part in parts)))
        odd = dict(ChainMap(*(dict(part[2]) for part in parts)))
        samples = []
        for encoded, own, _ in parts:
            samples.append(
                encoded[[row not in errors for row in range(len(frame)) if row not in own]]
            )
        return torch.cat(samples, 1), errors, odd

    def normalized(self, samples: Tensor) -> Tensor:
        """The same: each run normalises by its own statistics."""
        return samples

    def far_off(self, samples: Tensor) -> str:
        """See `Preprocess.far_off`; by the statistics of the first run."""
        if self.widths:
            samples = samples[:, : self.widths[0]]
        return self.each[0].far_off(samples)


def read(
    run: Path,
    checkpoint: str,
    map_location: str | torch.device | None = None,
    trusted_packages: Sequence[str] = (),
) -> Predictor:
    """The predictor of a run, or of the runs of a folder."""
    members = find_members(run)
    if members is None:
        return read_predictor(run, checkpoint, map_location, trusted_packages)
    return read_members(members, checkpoint, map_location, trusted_packages)


def read_members(
    members: Members,
    checkpoint: str,
    map_location: str | torch.device | None,
    trusted_packages: Sequence[str],
) -> Predictor:
    """The predictor of several runs."""
    predictors = [
        read_predictor(run_dir, checkpoint, map_location, trusted_packages)
        for run_dir in members.run_dirs
    ]
    first = predictors[0]
    if first.kind not in _AVERAGED or first.generates or first.preprocess is None:
        what: str = first.kind or "outputs of a custom module"
        if first.generates:
            what = "texts"
        raise AssayError(
            f"{members.folder}: {what} of several runs cannot be averaged",
            hint=f"name one run, such as {members.run_dirs[0]}",
        )
    for run_dir, predictor in zip(members.run_dirs, predictors, strict=True):
        _check_alike(members.run_dirs[0], run_dir, _meaning(first), _meaning(predictor))
    preprocess = PreprocessOfRuns([cast("Any", one.preprocess) for one in predictors])
    ensemble = Predictor(
        MeanOfRuns(predictors, preprocess.widths),
        cast("Preprocess", preprocess),
        kind=first.kind,
        names=first.names,
        batch_size=first.batch_size,
    )
    notes = [
        f"run {run_dir.name}: {note}"
        for run_dir, predictor in zip(members.run_dirs, predictors, strict=True)
        for note in predictor.notes
    ]
    ensemble.notes = [*members.notes, *notes]
    if all(predictor.about_threshold for predictor in predictors):
        mean = sum(predictor.threshold for predictor in predictors) / len(predictors)
        ensemble.use_threshold(mean, {"chosen": "the mean of the runs' thresholds"})
    return ensemble.eval()


def _meaning(predictor: Predictor) -> dict[str, Sequence[Any]]:
    """What has to be the same in runs whose answers are averaged."""
    preprocess: Any = predictor.preprocess
    columns = getattr(preprocess.encoder, "columns", ())
    return {
        "tasks": [predictor.spec["task"]],
        "classes or targets": predictor.names,
        "inputs": [f"{column.name} ({column.kind})" for column in columns]
        or preprocess.input_shape,
    }


def _check_alike(
    first: Path,
    other: Path,
    meaning: Mapping[str, Sequence[Any]],
    found: Mapping[str, Any],
) -> None:
    """Refuse runs whose answers do not mean the same, naming both and what only one of them has."""
    for what, expected in meaning.items():
        if expected != found[what]:
            only = [item for item in expected if item not in found[what]]
            only_other = [item for item in found[what] if item not in expected]
            raise AssayError(
                f"the {what} of {first} and {other} differ, so they cannot be averaged: "
                f"{join_first(only)} against {join_first(only_other)}",
                hint="name one run, or a folder of runs that differ in seed or fold alone",
            )
