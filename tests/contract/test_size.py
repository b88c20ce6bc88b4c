"""The project is not larger than its budget, and the budget follows where the project becomes smaller."""

from __future__ import annotations

from tests.contract.size import ROOT, count, problems, read_budget


def test_the_project_is_within_its_budget() -> None:
    counts = count(ROOT)
    found = problems(counts, read_budget(ROOT))
    assert not found, "\n".join(found)
    assert len(problems({key: number + 1 for key, number in counts.items()}, counts)) == len(counts)
