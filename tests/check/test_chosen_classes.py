from __future__ import annotations

import pytest

from assay.check.prove import chosen_classes
from assay.compose.compose import compose


@pytest.mark.parametrize(
    ("typed", "key", "name"),
    [
        (["data=digits"], "model", "SmallCNN"),
        (["data=digits"], "loss", "CrossEntropy"),
        (["data=digits"], "scheduler", "WarmupCosine"),  # says more than LambdaLR
        (["data=digits", "scheduler=none"], "scheduler", None),
        (["data=digits", "model=resnet18"], "model", "resnet18"),  # and more than Adapted
        (["data=digits", "module._target_=my.GAN", "trusted_packages=[my]"], "model", "GAN"),
        (["data=digits", "module._target_=my.GAN", "trusted_packages=[my]"], "loss", None),
    ],
)
def test_each_node_by_its_class(typed: list[str], key: str, name: str | None) -> None:
    assert chosen_classes(compose(typed)).get(key) == name
