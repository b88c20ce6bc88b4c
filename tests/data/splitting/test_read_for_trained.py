from __future__ import annotations

from typing import Any

import pytest
import torch

from assay.data.samples import Samples
from assay.data.spec import Spec, Trained
from assay.data.splits import read_for_trained, read_splits
from assay.data.subset import Split
from assay.errors import DataError

SPEC = Spec(task="regression", input_shape=(2,), num_targets=1)
FOLDS = Split(0.1, 0.0, folds=4, fold=1)


def source_of(given_source: Any, seed: int, number: int = 40) -> Any:
    draw = torch.Generator().manual_seed(seed)
    samples = Samples(torch.rand(number, 2, generator=draw), torch.rand(number, 1, generator=draw))
    return given_source({"all": samples}, "regression", ())


def read(source: Any, split: Split, digest: str, *, whole: bool = True) -> Any:
    return read_for_trained(source, split, None, Trained(SPEC), asked=None, digest=digest, whole=whole)


def test_the_runs_own_samples_are_divided_as_they_were(given_source: Any) -> None:
    source = source_of(given_source, seed=1)
    own = read_splits(source, FOLDS, None)
    again = read(source, FOLDS, own.digest)
    assert again.digest == own.digest
    assert {name: rows.tolist() for name, rows in own.rows.items()} == {
        name: again.rows[name].tolist() for name in ("train", "val", "test")
    }


def test_folds_of_other_samples_are_no_folds(given_source: Any) -> None:
    own = read_splits(source_of(given_source, seed=1), FOLDS, None)
    other = read(source_of(given_source, seed=2), FOLDS, own.digest)
    assert len(other.rows["test"]) == 0
    assert len(other.rows["all"]) == 40


def test_a_source_that_cuts_its_samples_leaves_others_whole(given_source: Any) -> None:
    class Cutting(given_source):  # type: ignore[misc]  # a fixture gives it
        """As a source of texts, which cuts what comes undivided."""

        divides = True

        def read(self) -> Any:
            whole = self.subsets["all"]
            if not self.divides:
                return {"all": whole}
            halves = [Samples(whole.inputs[rows], whole.targets[rows]) for rows in (slice(20), slice(20, 40))]
            return dict(zip(("train", "test"), halves, strict=True))

    samples = source_of(given_source, seed=1).subsets
    split = Split(0.0, 0.0)
    own = read_splits(Cutting(samples, "regression", ()), split, None)
    for digest, whole, parts in ((own.digest, True, 2), ("another", True, 1), ("another", False, 2)):
        source = Cutting(samples, "regression", ())
        assert source.divides
        splits = read(source, split, digest, whole=whole)
        assert ("all" in splits.rows) == (parts == 1)
        assert source.divides == (parts == 2)


def test_other_samples_need_no_column_to_be_divided_by(given_source: Any) -> None:
    class Columns(given_source):  # type: ignore[misc]  # a fixture gives it
        """Fails where a column is asked for that it lacks."""

        split_columns: dict[str, str] = {}  # noqa: RUF012 - replaced, never changed

        def read(self) -> Any:
            if self.split_columns:
                raise DataError("there is no such column", hint="")
            return self.subsets

    source = Columns(source_of(given_source, seed=1).subsets, "regression", ())
    splits = read(source, Split(0.1, 0.1, group="patient"), "another")
    assert len(splits.rows["all"]) == 40
    with pytest.raises(DataError, match="the model was trained for regression"):
        read(given_source(source.subsets, "multilabel", ()), Split(0.1, 0.1), "another")
