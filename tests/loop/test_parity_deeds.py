"""Whatever happens in whichever hook, a run ends as it does with Lightning's own loops."""

from __future__ import annotations

from collections import Counter
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.loop.parity import ALLOWED, Case, differences, install_stock, run
from tests.loop.parity_axes import fail, make_case, set_sigterm, set_stop

from assay.loop.fit_loop import install as install_ours

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEEDS: dict[str, Callable[[Any], None]] = {
    "error": partial(fail, ValueError),
    "interrupt": partial(fail, KeyboardInterrupt),
    "exit": partial(fail, SystemExit),
    "end of iteration": partial(fail, StopIteration),
    "stop": set_stop,
    "sigterm": set_sigterm,
}
ROW = {"callbacks": "checkpoint, steps", "accumulation": "3", "validation": "2", "calls": "fit, all"}
ALWAYS = 97


def case(act: tuple[str, int, Callable[[Any], None]] | None = None) -> Case:
    made = make_case(ROW)
    made.trainer["max_epochs"] = 2
    made.act = act
    return made


@cache
def calls(folder: Path) -> dict[str, int]:
    """How often each hook is called."""
    return dict(Counter(entry.label for entry in run(case(), install_stock, folder).entries))


def failures(deeds: list[tuple[str, str]], folder: Path) -> list[str]:
    """What differs where this is done in that hook, in the middle of its calls."""
    found = []
    for deed, hook in deeds:
        act = (hook, (calls(folder / "run")[hook] + 1) // 2, DEEDS[deed])
        stock = run(case(act), install_stock, folder / "run")
        told = differences(stock, run(case(act), install_ours, folder / "run"), ALLOWED)
        if told:
            found.append(f"{deed} in {hook}\n" + "\n".join(told[:5]))
    return found


def all_deeds(folder: Path) -> list[tuple[str, str]]:
    return [(deed, hook) for hook in calls(folder / "run") for deed in DEEDS]


def test_some_deeds(tmp_path: Path) -> None:
    found = failures(all_deeds(tmp_path)[::ALWAYS], tmp_path)
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("part", range(12))
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_deed_in_every_hook(part: int, tmp_path: Path) -> None:
    found = failures(all_deeds(tmp_path)[part::12], tmp_path)
    assert not found, "\n\n".join(found)
