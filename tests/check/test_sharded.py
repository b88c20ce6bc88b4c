"""What a model in shards does not go with is refused before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from assay.check.checker import Checker
from assay.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

JOB = ("data=digits", "model=mlp", "model.hidden=[8]", "device=fsdp2", "trainer.accelerator=cpu")


@pytest.fixture(scope="module")
def checker() -> Checker:
    """One that has looked at the data, and at most parts, once."""
    return Checker()


@pytest.mark.always(
    "words0-callbacks.ema-whole copy of the model", "words4-trainer.strategy.cpu_offload-there is no GPU"
)
@pytest.mark.parametrize(
    ("words", "key", "says"),
    [
        (("callbacks=[default,ema]",), "callbacks.ema", "whole copy of the model"),
        (("finetune=lora",), "finetune", "sharded before anything is frozen or added"),
        (("optimizer=lbfgs",), "optimizer", "all weights in one place"),
        (("trainer.compile=true",), "trainer.compile", "not compiled"),
        (("trainer.strategy.cpu_offload=true",), "trainer.strategy.cpu_offload", "there is no GPU"),
        (("precision=fp64",), "trainer.precision", "single precision or bfloat16"),
        (("trainer.micro_batch=4",), "trainer.micro_batch", "cannot be used with FSDP2"),
        (("optimizer=sgd", "optimizer.fused=true"), "optimizer.fused", "no fused kernel for shards"),
        (
            ("trainer.devices=7", "data.eval_batch_size=1"),
            "data.eval_batch_size",
            "7 processes cannot share 180 val",
        ),
        (("trainer.strategy.reshard=true",), "trainer.strategy.reshard", "unknown key"),
        (("task=reconstruction",), "device", "parts of the model alone"),
    ],
)
def test_is_refused(checker: Checker, words: tuple[str, ...], key: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checker.check(checker.job([*JOB, *words]))
    assert (caught.value.key, says in caught.value.message) == (key, True), str(caught.value)
    assert caught.value.hint


def test_64_devices_that_are_not_there(checker: Checker) -> None:
    small = ("data.batch_size=1", "optimizer.fused=null", "data.drop_last=false", "scheduler=none")
    words = (*JOB[:2], "model.hidden=[640,640,640]", *JOB[3:], "trainer.devices=64", *small)
    report = checker.check(checker.job(words)).report
    assert (report.devices, report.parameters) == (64, 868_490)
    assert report.step is not None
    memory, whole = report.step.memory, 4 * 868_490
    # Rows are divided; ten outputs are one row for ten devices, and the first has one of them.
    for part, copies in ((memory.weights, 1), (memory.gradients, 1), (memory.optimizer, 2)):
        assert copies * whole / 64 <= part <= 1.1 * copies * whole / 64
    assert 2 * whole > memory.activations > whole / 4  # of a layer or two the weights are gathered
    assert any("each of 64 devices holds" in note for note in report.notes)
    assert not torch.distributed.is_initialized()


def test_a_step_that_fails_in_shards_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "peeking.py").write_text(PEEKING)
    monkeypatch.syspath_prepend(tmp_path)
    checker = Checker()
    words = (
        "model=linear",
        "model._target_=peeking.Peeking",
        "trusted_packages=[peeking]",
        "trainer.devices=2",
    )
    with pytest.raises(ConfigError, match=r"in shards a training step fails: .*DTensor") as caught:
        checker.check(checker.job([JOB[0], *JOB[3:], *words]))
    assert caught.value.key == "device"


PEEKING = """
from torch import nn
from torch.nn.functional import linear
class Peeking(nn.Module):
    def __init__(self, input_shape, num_outputs):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 64)])
        self.head = nn.Linear(64, 10)
    def forward(self, inputs):
        inputs = inputs.flatten(1)
        for layer in self.layers:
            inputs = linear(inputs, layer.weight, layer.bias)
        return self.head(inputs)
"""
