"""What is counted is what pandas and numpy count, and what will hurt is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch

from assay.data.bundled import Bundled
from assay.data.data_module import DataModule
from assay.data.digits import Digits
from assay.data.samples import Samples, Stream
from assay.data.table import Table
from assay.errors import DataError
from assay.report.survey import Survey, raw_tables, survey, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

RNG = np.random.default_rng(0)


def surveyed(source: Any, **split: Any) -> tuple[Survey, DataModule]:
    datamodule = DataModule(
        source,
        batch_size=16,
        eval_batch_size=16,
        split={"val": 0.1, "test": 0.2, "seed": 0, **split},
        transform={"train": [], "eval": [], "normalize": "data"},
    )
    datamodule.setup()
    return survey(datamodule, "some", raw_tables(datamodule)), datamodule


class Given:
    """Splits as they are given."""

    task, class_names = "multiclass", ("a", "b")

    def __init__(self, parts: Mapping[str, Samples | Stream]) -> None:
        self._parts = parts

    def read(self) -> Mapping[str, Samples | Stream]:
        return self._parts


def test_counts_and_values_of_features() -> None:
    found, datamodule = surveyed(Bundled("iris"))
    train = datamodule.subset("train")
    inputs = train.data.inputs[train.rows].numpy()  # type: ignore[union-attr]  # in memory
    assert [(one.name, one.num_samples, tuple(one.class_counts)) for one in found.subsets] == [
        ("train", 105, (35, 35, 35)),
        ("val", 15, (5, 5, 5)),
        ("test", 30, (10, 10, 10)),
    ]
    frame = pd.DataFrame(inputs)
    assert [one.values.mean for one in found.columns if one.values] == pytest.approx(frame.mean())
    assert [one.num_different for one in found.columns] == frame.nunique().tolist()
    everything = values_of(inputs)
    assert found.subsets[0].inputs == everything
    assert (everything.low, everything.high) == (inputs.min(), inputs.max())
    assert list(everything.histogram) == np.histogram(inputs.astype(np.float64), 12)[0].tolist()


def test_copies_are_counted_within_parts_and_between_them() -> None:
    inputs = torch.arange(40.0).reshape(20, 2)
    train = Samples(inputs[[*range(12), 0, 0, 1]], torch.tensor([0, 1] * 6 + [1, 0, 1]))
    test = Samples(inputs[[12, 13, 3, 3]], torch.tensor([0, 1, 0, 1]))
    found, _ = surveyed(Given({"train": train, "val": test, "test": test}))
    assert [(one.num_equal, one.in_training) for one in found.subsets] == [(3, None), (1, 2), (1, 2)]
    [copies, more, conflicting] = found.warnings
    assert "2 of 4 in val" in copies
    assert more == "3 of 15 training samples are copies of others"
    assert conflicting == "3 training samples have equal inputs and different classes"


def test_what_will_hurt_is_said() -> None:
    inputs = torch.rand(500, 3)
    inputs[:, 1] = 2
    targets = torch.tensor([0] * 496 + [1] * 4)
    found, _ = surveyed(Given({"all": Samples(inputs, targets, columns=("x", "same", "y"))}))
    assert "fewer than 5 training samples: b" in found.warnings
    assert any(one.startswith("the largest class has ") for one in found.warnings)
    assert "a single value in all training rows: same" in found.warnings


def test_a_table_as_it_stands_in_its_file(tmp_path: Path) -> None:
    count = 120
    table = pd.DataFrame(
        {
            "size": RNG.normal(5, 2, count).round(3),
            "city": RNG.choice(["Ulm", "Bonn"], count, p=[0.7, 0.3]),
            "day": pd.date_range("2024-02-01", periods=count, freq="D").strftime("%d.%m.%Y"),
        }
    )
    table["price"] = table["size"] * 3 + RNG.normal(0, 1, count)
    table.loc[table.index % 3 > 0, "size"] = None
    table.to_csv(tmp_path / "rows.csv", index=False)
    found, datamodule = surveyed(Table(str(tmp_path / "rows.csv"), "price"))
    train = table.iloc[datamodule.subset("train").rows.numpy()]
    size, city, day = found.columns
    assert (size.num_missing, city.num_missing) == (train["size"].isna().sum(), 0)
    assert dict(city.frequent) == train["city"].value_counts().to_dict()
    days = pd.to_datetime(train["day"], format="%d.%m.%Y")
    assert tuple(day.span) == (f"{days.min():%Y-%m-%d}", f"{days.max():%Y-%m-%d}")
    assert [one.kind for one in found.columns] == ["number", "category", "date"]
    prices = found.subsets[0].targets[0]
    assert (prices.low, prices.high) == pytest.approx((train["price"].min(), train["price"].max()))
    assert list(found.target_names) == ["price"]
    assert "more than half of the training rows have no value: size" in found.warnings


class Broken:
    """A stream whose third sample is damaged."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index == 2:
            raise DataError("photos/2.jpg is not a picture")
        return torch.full((1, 2, 2), index, dtype=torch.uint8), index % 2


def test_a_sample_that_cannot_be_read_is_told_of_all_parts() -> None:
    stream = Stream(Broken(), torch.arange(30) % 2)
    good = Samples(torch.randint(255, (30, 1, 2, 2), dtype=torch.uint8), torch.arange(30) % 2)
    found, _ = surveyed(Given({"train": good, "val": good, "test": stream}))
    test = found.subsets[2]
    assert list(test.unreadable) == ["photos/2.jpg is not a picture"]
    assert (test.num_read, test.num_equal) == (29, None)
    assert any("1 sample of test cannot be read: photos/2.jpg" in one for one in found.warnings)


def test_pictures_have_no_columns() -> None:
    found, _ = surveyed(Digits())
    assert not found.columns
    assert found.subsets[0].inputs is not None
    assert (found.subsets[0].inputs.low, found.subsets[0].inputs.high) == (0, 16)
