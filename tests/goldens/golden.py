"""The golden pages: read, compared, written."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGES: Final = Path(__file__).parent / "pages"
WEIGHTS: Final = PAGES / "weights.json"
_HEADING: Final = "########## "


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


def check(expected: str, found: str, name: str) -> None:
    """Fail with a unified diff where the page of this name is not what it was."""
    if expected.rstrip() != found.rstrip():
        pages = (expected.rstrip().splitlines(), found.rstrip().splitlines())
        diff = "\n".join(difflib.unified_diff(*pages, f"golden {name}", f"now {name}", lineterm=""))
        pytest.fail(f"{diff}\n\nmeant? python -m tests.goldens.update", pytrace=False)
