"""Write the golden pages anew: `python -m tests.goldens.update [FAMILY|FAMILY/NAME|mistakes]…`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests import conftest, warm_process
from tests.goldens import golden
from tests.goldens.observe import (
    MISTAKES,
    observe,
    observe_mistakes,
    read_mistakes,
    read_scenarios,
)

__all__ = ["conftest"]  # imported for its effects: the environment of tests


def main(wanted: list[str]) -> None:
    """Write the pages of these, or all."""
    warm_process.start()
    scenarios = read_scenarios()
    weights = golden.read_weights() if golden.WEIGHTS.is_file() else {}
    comparable = not (weights and wanted) or weights["machine"] == golden.describe_machine()
    if comparable:
        weights["machine"] = golden.describe_machine()
    for name, scenario in scenarios.items():
        if wanted and not {name, scenario.family} & {*wanted}:
            continue
        with tempfile.TemporaryDirectory() as folder:
            (inner := Path(folder) / "folder").mkdir()
            observed = observe(scenario, inner)
        pages = {**golden.read_family(scenario.family), scenario.name: observed.page}
        names = [one.name for one in scenarios.values() if one.family == scenario.family]
        golden.write_family(scenario.family, {name: pages[name] for name in names if name in pages})
        if comparable:  # else the weights stay those of the machine that made all of them
            weights[name] = observed.weights
        kept = {"machine", *scenarios}
        golden.write_weights({name: one for name, one in weights.items() if one and name in kept})
        print(name, flush=True)
    if not wanted or MISTAKES in wanted:
        with tempfile.TemporaryDirectory() as folder:
            (inner := Path(folder) / "folder").mkdir()
            golden.write_family(MISTAKES, observe_mistakes(inner, read_mistakes()))
    warm_process.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
