from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from sklearn import datasets  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.data.bundled import Bundled

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.data.data_module import DataModule

CLASSES = {"breast_cancer": "binary", "iris": "multiclass", "wine": "multiclass"}


@pytest.mark.parametrize("name", [*CLASSES, "diabetes"])
def test_what_scikit_learn_has(name: str) -> None:
    source = Bundled(name)  # type: ignore[arg-type]  # one of these names
    samples = source.read()["all"]
    table = getattr(datasets, f"load_{name}")()
    assert samples.inputs.dtype == torch.float32
    np.testing.assert_allclose(samples.inputs.numpy(), table.data, rtol=1e-6)
    if name in CLASSES:
        assert source.task == CLASSES[name]
        assert samples.targets.dtype == torch.int64
        assert samples.targets.tolist() == table.target.tolist()
        assert source.class_names == tuple(table.target_names)
    else:
        assert (source.task, source.class_names) == ("regression", ())
        assert (samples.targets.dtype, samples.targets.shape) == (torch.float32, (442, 1))
        np.testing.assert_allclose(samples.targets[:, 0].numpy(), table.target)


def test_spec_of_a_binary_table(data_module: Callable[..., DataModule]) -> None:
    datamodule = data_module(Bundled("breast_cancer"), transform={"normalize": "data"})
    datamodule.setup()
    spec = datamodule.spec
    assert (spec.task, spec.num_classes, spec.input_shape) == ("binary", 2, (30,))
    assert spec.class_names == ("malignant", "benign")
    assert sum(spec.class_counts) == spec.num_train
    assert len(spec.mean) == 30


def test_a_table_that_is_none() -> None:
    with pytest.raises(
        ValueError, match="name='boston': one of breast_cancer, diabetes, iris, wine was expected"
    ):
        Bundled("boston")  # type: ignore[arg-type]  # that is the point
