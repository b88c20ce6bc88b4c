"""Cases of the generated corpus that are known to be answered badly, and why: each is a defect to mend."""

from __future__ import annotations

from typing import Final

OF_CHECK: Final[dict[str, str]] = {}
"""By the case's name: a raw exception, or a key that is not the one at fault."""

IN_TRAINING: Final[dict[str, str]] = {}
"""By the case's name: accepted, and then it cannot be trained."""
