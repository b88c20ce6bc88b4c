"""Which GPU belongs to which job."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class Gpus:
    """Leases GPUs: one of several a job, or a share of one.

    Args:
        ids: As `CUDA_VISIBLE_DEVICES` takes them.
        jobs_per_gpu: Jobs that may share one; a job that needs several gets whole ones.

    >>> gpus = Gpus(["0", "1"])
    >>> gpus.lease(1), gpus.lease(1), gpus.free(1)
    (('0',), ('1',), False)
    """

    def __init__(self, ids: Sequence[str], jobs_per_gpu: int = 1) -> None:
        self.ids = list(dict.fromkeys(ids))
        self._shares = jobs_per_gpu
        self._taken: Counter[str] = Counter()
        self._whole: set[str] = set()

    def free(self, number: int) -> bool:
        """Whether so many could be leased now.

        Args:
            number: At least 1.
        """
        return len(self._choice(number)) == number

    def lease(self, number: int) -> tuple[str, ...]:
        """Take GPUs; the least used first.

        Args:
            number: At least 1, and free.
        """
        chosen = self._choice(number)
        self._taken.update(chosen)
        if number > 1:
            self._whole.update(chosen)
        return chosen

    def give_back(self, leased: Sequence[str]) -> None:
        """Give GPUs back.

        Args:
            leased: From `lease`.
        """
        self._taken.subtract(leased)
        self._whole.difference_update(leased)

    def _choice(self, number: int) -> tuple[str, ...]:
        most = 1 if number > 1 else self._shares
        candidates = [gpu for gpu in self.ids if gpu not in self._whole and self._taken[gpu] < most]
        return tuple(sorted(candidates, key=lambda gpu: self._taken[gpu])[:number])
