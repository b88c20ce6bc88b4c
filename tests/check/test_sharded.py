"""What a model in shards does not go with is refused before anything is written."""

from __future__ import annotations

import pytest

from assay.check.checker import Checker
from assay.errors import ConfigError

JOB = ("data=digits", "model=mlp", "model.hidden=[8]", "device=fsdp2", "trainer.accelerator=cpu")


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
def test_is_refused(words: tuple[str, ...], key: str, says: str) -> None:
    checker = Checker()
    with pytest.raises(ConfigError) as caught:
        checker.check(checker.job([*JOB, *words]))
    assert (caught.value.key, says in caught.value.message) == (key, True), str(caught.value)
    assert caught.value.hint
