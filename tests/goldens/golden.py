"""The golden pages: read, compared, written."""

from __future__ import annotations

import difflib
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGES: Final = Path(__file__).parent / "pages"
WEIGHTS: Final = PAGES / "weights.json"
_HEADING: Final = "########## "
_NUMBER: Final = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")
_TOLERANCE: Final = 0.05
"""How far a number may be away relatively on a machine that computes in other ways."""


def read_family(family: str) -> dict[str, str]:
    """The pages of a family by their names."""
    path = PAGES / f"{family}.txt"
    parts = path.read_text(encoding="utf-8").split(f"\n{_HEADING}")[1:] if path.is_file() else []
    pages = {}
    for part in parts:
        name, _, page = part.partition("\n")
        pages[name] = page.rstrip("\n")
    return pages


def write_family(family: str, pages: Mapping[str, str]) -> None:
    """Write the pages of a family, in their order."""
    PAGES.mkdir(exist_ok=True)
    parts = [f"\n{_HEADING}{name}\n{page.rstrip()}\n" for name, page in pages.items()]
    (PAGES / f"{family}.txt").write_text("".join(parts), encoding="utf-8")


def read_weights() -> dict[str, dict[str, str]]:
    """SHA-256 of the weights of each run by scenario and directory, and the machine that made them."""
    weights: dict[str, dict[str, str]] = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    return weights


def write_weights(weights: Mapping[str, Mapping[str, str]]) -> None:
    """Write what `read_weights` reads."""
    WEIGHTS.write_text(json.dumps(weights, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def describe_machine() -> dict[str, str]:
    """What the last bits of a sum depend on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    cpu = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "processor": f"{cpu.get('model name')}, model {cpu.get('model')}",
    }


def check(expected: str, found: str, name: str, exact: bool) -> None:
    """Fail with a unified diff where a page is not what it was.

    Args:
        expected: The golden page.
        found: The page as it is now.
        name: Of the page.
        exact: Whether numbers must be the same; otherwise they may be away by a twentieth.
    """
    old, new = expected.rstrip().splitlines(), found.rstrip().splitlines()
    if not exact and len(old) == len(new):
        new = [a if a == b or _close(a, b) else b for a, b in zip(old, new, strict=True)]
    if old != new:
        diff = "\n".join(difflib.unified_diff(old, new, f"golden {name}", f"now {name}", lineterm=""))
        pytest.fail(f"{diff}\n\nmeant? python -m tests.goldens.update", pytrace=False)


def _close(a: str, b: str) -> bool:
    if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
        return False
    pairs = zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True)
    return all(
        math.isclose(*(float(one.replace(",", "")) for one in pair), rel_tol=_TOLERANCE) for pair in pairs
    )
