"""A module as a graph of tensor operations, for batches of any size."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from typing import TYPE_CHECKING, Any

import torch

from assay.errors import AssayError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from torch.export import ExportedProgram

    from assay.run.export.exportable import Exportable


def trace(
    exportable: Exportable,
    example: tuple[Tensor, ...],
    *,
    any_size: bool = False,
    any_length: bool = False,
    longest: int = 0,
) -> ExportedProgram:
    """Trace what a module does to a batch.

    Args:
        exportable: In eval mode.
        example: Inputs of at least two samples.
        any_size: Height and width may differ from the example's, too.
        any_length: So may the number of tokens.
        longest: So may the number of tokens, up to this; 0: it may not.

    Raises:
        AssayError: It does what cannot be traced, or fixes the number of samples.
    """
    sizes: dict[int, Any] = {0: torch.export.Dim("batch")}
    if any_size:
        sizes |= {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}
    if any_length:
        sizes |= {1: torch.export.Dim.DYNAMIC}
    if longest > 1:
        sizes |= {1: torch.export.Dim("length", max=longest)}
    try:
        with quiet(), torch.no_grad():
            exportable(*example)  # statistics are brought to the inputs' type before the trace
            return torch.export.export(exportable, example, dynamic_shapes=(tuple(sizes for _ in example),))
    except AssayError:
        raise
    except Exception as error:  # whatever the model's own code raises, or torch of it
        raise AssayError(
            f"the model cannot be traced: {type(error).__name__}: {first_line(error)}",
            hint="branches on tensors' values and sizes fixed in forward() cannot be exported; --format "
            "safetensors keeps the weights alone",
        ) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what exporters print and warn of off the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        nowhere = io.StringIO()
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),  # torch prints the graph as far as it came
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
