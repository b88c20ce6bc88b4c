"""What cannot be traced is told in one message."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.data.normalize import Normalize
from assay.data.transforms import Transforms
from assay.errors import AssayError
from assay.run.export.exportable import Exportable, quiet, trace
from assay.run.predict.predictor import Predictor


def exportable(forward: Any) -> Exportable:
    class Own(nn.Module):
        def forward(self, inputs: Tensor) -> Any:
            return forward(inputs)

    return Exportable(Predictor(Own()), normalize=Normalize(), transforms=Transforms()).eval()


def test_a_batch_of_any_size() -> None:
    program = trace(exportable(lambda inputs: inputs * 2), (torch.ones(3, 4),))
    for size in (1, 2, 50):
        assert torch.equal(program.module()(torch.ones(size, 4)), torch.full((size, 4), 2.0))


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda inputs: (inputs, inputs), r"returns a tuple for 3 samples; expected a tensor \[N, …\]"),
        (lambda inputs: inputs.sum(0), r"returns shape \[4\] for 3 samples"),
        (lambda inputs: inputs if inputs.sum() > 0 else -inputs, "cannot be traced"),
        (lambda inputs: inputs.reshape(3, 4) * 2, "cannot be traced"),
        (lambda inputs: inputs @ torch.ones(7, 7), "cannot be traced: RuntimeError"),
    ],
)
def test_what_cannot_be_exported(forward: Any, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssayError, match=message) as caught:
        trace(exportable(forward), (torch.ones(3, 4),))
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert capfd.readouterr() == ("", "")


def test_exporters_say_nothing(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    with quiet():
        print("[torch.onnx] Obtain model graph")
        warnings.warn("deprecated", DeprecationWarning, stacklevel=1)
        logging.getLogger("onnx").warning("Please consider to run pre-processing")
    logging.getLogger("onnx").warning("after")
    assert (capsys.readouterr().out, caplog.messages) == ("", ["after"])
