from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from assay.compose.compose import settle_own_parts
from assay.config.unread_keys import OUR_DATA, OUR_MODULE


def settled(typed: list[str], data: dict[str, Any], module: str = OUR_MODULE) -> tuple[Any, Any]:
    config = OmegaConf.create({"data": data, "module": {"_target_": module}})
    hydra = OmegaConf.create(
        {"overrides": {"task": typed}, "runtime": {"choices": {"data": "digits", "model": "mlp"}}}
    )
    OmegaConf.set_struct(config, True)
    OmegaConf.set_readonly(hydra, True)
    settle_own_parts(config, hydra)
    return OmegaConf.to_container(config.data), OmegaConf.to_container(hydra.runtime.choices)


@pytest.mark.parametrize("how", ["", "+", "++"])
def test_a_typed_datamodule_keeps_what_was_typed_for_it(how: str) -> None:
    typed = [f"{how}data._target_=my.data.Mine", "data.batch_size=3", "+data.extra={a: 1}", "model.width=2"]
    given = {
        "_target_": "my.data.Mine",
        "batch_size": 3,
        "extra": {"a": 1},
        "num_workers": 0,
        "source": "${x}",
    }
    data, choices = settled(typed, given)
    assert data == {"_target_": "my.data.Mine", "batch_size": 3, "extra": {"a": 1}}
    assert choices == {"data": "Mine", "model": "mlp"}


def test_a_datamodule_of_an_option_keeps_its_arguments() -> None:
    given = {"_target_": "my.data.Mine", "batch_size": 3}
    assert settled(["data=mine"], given) == (given, {"data": "digits", "model": "mlp"})


def test_ours_typed_is_ours() -> None:
    given = {"_target_": OUR_DATA, "batch_size": 3}
    assert settled([f"data._target_={OUR_DATA}"], given) == (given, {"data": "digits", "model": "mlp"})


def test_an_own_module_is_what_is_called_the_model() -> None:
    _, choices = settled([], {"_target_": OUR_DATA}, "my.gan.Gan")
    assert choices == {"data": "digits", "model": "Gan"}
