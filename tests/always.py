"""Which cases of a long family every run tries: the others are left to `pytest -m long`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TENTH = 10


def mark_the_others(items: Iterable[pytest.Item], whole: bool) -> None:
    """Mark as `long` what `@pytest.mark.always(…)` does not name; without names, all but every tenth case.

    Args:
        items: All that was collected.
        whole: Whether these are all cases there are; each name must then be that of a case.
    """
    families: dict[tuple[str, str], list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("always") is not None:
            families.setdefault((str(item.path), item.originalname), []).append(item)
    for (path, test), cases in families.items():
        marker = cases[0].get_closest_marker("always")
        assert marker is not None
        by_id = {case.name.removeprefix(f"{test}[").removesuffix("]"): case for case in cases}
        if whole and (unknown := set(marker.args) - set(by_id)):
            raise pytest.UsageError(f"{path}::{test}: no case is called {', '.join(sorted(unknown))}")
        for name in _others(by_id, marker.args):
            by_id[name].add_marker("long")


def _others(by_id: Mapping[str, pytest.Function], always: tuple[str, ...]) -> list[str]:
    if always:
        return [name for name in by_id if name not in always]
    return [name for number, name in enumerate(by_id) if number % TENTH]
