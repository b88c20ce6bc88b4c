"""Does an exported file say what the original says?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from assay.errors import AssayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

TOLERANCE: Final = 1e-4
"""Of probabilities; of other outputs times the largest of them."""
RESIZED_TOLERANCE: Final = 1e-2
"""As `TOLERANCE`, where the file resizes pictures: a value may be rounded to the neighbouring grey level."""
LABELS: Final = 0.999
"""Share of labels that must agree."""
INT8_LABELS: Final = 0.95
"""As `LABELS`, of weights rounded to 8 bits."""
INT8_TOLERANCE: Final = 0.1
"""Of weights rounded to 8 bits: root mean square difference, in standard deviations of the output."""


@final
@dataclass(frozen=True)
class Agreement:
    """How an exported file and the original compare over samples.

    Attributes:
        num_samples: How many were compared.
        largest_difference: Of any output.
        tolerance: What it may be; None where labels alone decide (`int8`).
        same_labels: Share of labels that agree; None where outputs are not labels.
        accuracy: Of the original over these samples; None without targets that are labels.
        exported_accuracy: Of the file.
        error: Root mean squared error of the original over these samples, of a regression.
        exported_error: Of the file.
    """

    num_samples: int
    largest_difference: float
    tolerance: float | None
    same_labels: float | None = None
    accuracy: float | None = None
    exported_accuracy: float | None = None
    error: float | None = None
    exported_error: float | None = None


def compare(
    original: NDArray[np.float32],
    exported: NDArray[np.float32],
    targets: NDArray[Any] | None,
    *,
    kind: str,
    labels: Callable[[NDArray[Any]], NDArray[Any] | None],
    int8: bool = False,
    resizes: bool = False,
) -> Agreement:
    """Compare outputs.

    Args:
        original: `[N, ...]`.
        exported: Of the same samples.
        targets: What was right: classes `[N]`, labels `[N, L]` or values `[N, T]`; None where not known.
        kind: What outputs are; `probabilities` and `scores` have labels.
        labels: Of probabilities, see `assay.task.task.Task.labels`.
        int8: Weights were rounded.
        resizes: The file resizes pictures.

    Raises:
        AssayError: They differ by more than is taken.
    """
    if exported.shape != original.shape:
        raise AssayError(f"the file gives outputs {exported.shape}, the original {original.shape}")
    if not np.array_equal(np.isfinite(exported), np.isfinite(original)):
        raise AssayError(
            "the file gives outputs that are not finite where the original's are, or the reverse"
        )
    difference = np.nan_to_num(np.abs(exported.astype(np.float64) - original), nan=0.0)
    largest = float(difference.max(initial=0.0))
    scale = 1.0 if kind == "probabilities" else float(np.abs(np.nan_to_num(original)).max(initial=0.0))
    tolerance = None if int8 else scale * (RESIZED_TOLERANCE if resizes else TOLERANCE)
    measured = Agreement(
        len(original), largest, tolerance, **_labels(original, exported, targets, kind, labels)
    )
    _judge(measured, difference, original, int8=int8)
    return measured


def _labels(
    original: NDArray[np.float32],
    exported: NDArray[np.float32],
    targets: NDArray[Any] | None,
    kind: str,
    labels: Callable[[NDArray[Any]], NDArray[Any] | None],
) -> dict[str, float]:
    if kind == "values" and targets is not None:
        errors = (float(np.sqrt(np.mean((one - targets) ** 2))) for one in (original, exported))
        return dict(zip(("error", "exported_error"), errors, strict=True))
    first, second = (labels(one) if kind == "probabilities" else None for one in (original, exported))
    if first is None or second is None:
        return {}
    shares = {"same_labels": float(np.mean(first == second))}
    if targets is not None and targets.shape == first.shape:
        shares |= {
            "accuracy": float(np.mean(first == targets)),
            "exported_accuracy": float(np.mean(second == targets)),
        }
    return shares


def _judge(
    measured: Agreement, difference: NDArray[np.float64], original: NDArray[np.float32], *, int8: bool
) -> None:
    wanted = INT8_LABELS if int8 else LABELS
    if measured.same_labels is not None and measured.same_labels < wanted:
        raise AssayError(
            f"the file and the original give the same label for {100 * measured.same_labels:.2f} % of "
            f"{measured.num_samples} samples; {100 * wanted:g} % were expected. Nothing was kept",
            hint="leave out --quantize" if int8 else "",
        )
    if measured.tolerance is not None and measured.largest_difference > measured.tolerance:
        raise AssayError(
            f"an output of the file differs from the original's by {measured.largest_difference:.3g}; up to "
            f"{measured.tolerance:.3g} is taken. Nothing was kept"
        )
    if int8 and measured.same_labels is None:
        spread = float(np.std(original)) or 1.0
        error = float(np.sqrt(np.mean(difference**2)))
        if error > INT8_TOLERANCE * spread:
            raise AssayError(
                f"the file's outputs differ from the original's by {error:.3g} (root mean square), "
                f"{error / spread:.2f} of their deviation; up to {INT8_TOLERANCE} is taken. Nothing was kept",
                hint="leave out --quantize",
            )
