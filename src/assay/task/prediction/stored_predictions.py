from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, final, get_args

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


Kind = Literal[
    "probabilities", "values", "embeddings", "scores", "confusions", "surprisals", "reconstructions"
]
"""What outputs are; `scores` are of a loss that says no probabilities, `confusions` are counts of pixels,
`surprisals` bits of each token."""
KINDS: tuple[str, ...] = get_args(Kind)
_TARGETS: Final[Mapping[str, tuple[Any, int]]] = {
    "multiclass": (np.int64, 1),
    "binary": (np.int64, 1),
    "multilabel": (np.int8, 2),
    "regression": (np.float32, 2),
}
"""Type and dimensions, where no other ones are right."""


@final
@dataclass(frozen=True, eq=False)
class StoredPredictions:
    """What a model said of N samples and what was right.

    Attributes:
        task: What was learnt.
        kind: What `outputs` are.
        keys: Which sample, N of them: a path within the data's folder, or the row in its source, as text.
        outputs: float32 `[N, C]` of multiclass and, with C = 2, of binary (one logit becomes two columns),
            `[N, L]` of multilabel, `[N, T]` of regression in the targets' own unit; embeddings `[N, D]`; of
            other tasks what `Task.kept` makes of them.
        targets: int64 `[N]` of classes, int8 `[N, L]` of labels, float32 `[N, T]` of a regression, of other
            tasks any of these; None where they are not known.
        class_names: Of classes, labels or the targets of a regression; may be empty for the last.
        subset: `test`, `val` or `train`.
        num_evaluated: Samples that were evaluated, where these are a random choice of them; 0: these are all.

    Raises:
        ValueError: Shapes or types do not go together.
    """

    task: str
    kind: Kind
    keys: tuple[str, ...]
    outputs: NDArray[np.float32]
    targets: NDArray[Any] | None
    class_names: tuple[str, ...]
    subset: str = "test"
    num_evaluated: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r}: one of {', '.join(KINDS)} was expected")
        if self.outputs.ndim != 2 or self.outputs.dtype != np.float32:
            raise ValueError(
                f"outputs are {self.outputs.dtype} {list(self.outputs.shape)}; float32 [N, …] was expected"
            )
        if len(self.keys) != len(self.outputs):
            raise ValueError(f"there are {len(self.keys)} keys for outputs of {len(self.outputs)} samples")
        num_outputs, num_names = self.outputs.shape[1], len(self.class_names)
        compared = self.kind in ("probabilities", "values")
        if compared and num_names not in (0, num_outputs):
            raise ValueError(f"there are {num_names} class names for {num_outputs} outputs")
        if self.kind == "confusions" and num_outputs != num_names**2:
            raise ValueError(f"there are {num_outputs} outputs for confusions of {num_names} classes")
        if self.num_evaluated and self.num_evaluated < len(self.keys):
            raise ValueError(f"{len(self.keys)} of {self.num_evaluated} samples cannot be")
        if self.targets is not None:
            self._check_targets(self.targets, num_names or (num_outputs if compared else 0), compared)

    def _check_targets(self, targets: NDArray[Any], num_classes: int, compared: bool) -> None:
        dtype, ndim = _TARGETS.get(self.task, (targets.dtype, targets.ndim))
        if targets.dtype != dtype or targets.ndim != ndim or len(targets) != len(self.keys):
            wanted = f"{np.dtype(dtype)} [{', '.join(['N', 'L'][:ndim])}]"
            raise ValueError(
                f"targets of {len(self.keys)} samples of a {self.task} task are {targets.dtype} "
                f"{list(targets.shape)}; {wanted} was expected"
            )
        if self.task in _TARGETS and ndim == 2 and compared and targets.shape[1] != self.outputs.shape[1]:
            raise ValueError(f"there are {targets.shape[1]} targets for {self.outputs.shape[1]} outputs")
        if self.task == "regression" or self.task not in _TARGETS or not targets.size:
            return
        highest = 1 if ndim == 2 else num_classes - 1
        if targets.min() < 0 or (num_classes and targets.max() > highest):
            raise ValueError(
                f"targets go from {targets.min()} to {targets.max()}; 0 to {highest} was expected"
            )
