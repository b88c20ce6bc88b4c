"""Every hostile case: each would leave the file MARKER in its folder if what it asks for were done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.check.hostile.configs import command_line, interpolations, option_files, payloads_in_slots, tags
from tests.check.hostile.hydras import hydra_node
from tests.check.hostile.outside import hostile_runs, hostile_sweeps, outside_configs
from tests.check.hostile.strangers import cwd_packages, re_exports, run_directories, trust

if TYPE_CHECKING:
    from tests.check.hostile.case import Case

CASES: tuple[Case, ...] = (
    *payloads_in_slots(),
    *command_line(),
    *option_files(),
    *interpolations(),
    *hydra_node(),
    *tags(),
    *re_exports(),
    *trust(),
    *cwd_packages(),
    *run_directories(),
    *outside_configs(),
    *hostile_runs(),
    *hostile_sweeps(),
)
