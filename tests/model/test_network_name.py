"""A name that a library does not know is refused with those close to it."""

from __future__ import annotations

import pytest

from assay.model.checks import check_network_name

KNOWN = ["resnet18", "resnet34", "vgg11"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("RESNET8", r"^model\.name=RESNET8 is not a network of x; close to it: resnet18, resnet34$"),
        ("resnet1.tag", r"^model\.name=resnet1\.tag is not a network of x; close to it: resnet18"),
        ("qqq", r"^model\.name=qqq is not a network of x; one is vgg11$"),
    ],
)
def test_close_names(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_network_name(name, KNOWN, "network of x", "vgg11")
    check_network_name("vgg11.any", KNOWN, "network of x", "vgg11")
