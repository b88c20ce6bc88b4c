"""Overrides may be typed in any order."""

from __future__ import annotations

from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from assay.compose.compose import compose, job_config

GROUPS = {
    "data": ("wine", "digits", "diabetes"),
    "model": ("mlp", "linear"),
    "optimizer": ("sgd", "adam"),
    "scheduler": ("cosine", "onecycle"),
    "experiment": ("digits_longtail",),
    "precision": ("bf16",),
    "callbacks": ("[default,ema]",),
}
VALUES = {
    "optimizer.lr": ("0.5", "0.25"),
    "trainer.max_epochs": ("3", "4"),
    "data.batch_size": ("7", "8"),
    "seed": ("11", "12"),
    "name": ("first", "second"),
    "callbacks.checkpoint.monitor": ("train/loss", "val/loss"),
    "+trainer.fast_dev_run": ("2", "3"),
    "~callbacks.lr_monitor": ("",),
}


@st.composite
def overrides(draw: st.DrawFn) -> list[str]:
    typed = []
    for key, options in {**GROUPS, **VALUES}.items():
        if draw(st.booleans()):
            option = draw(st.sampled_from(options))
            typed.append(f"{key}={option}" if option else key)
    return typed


def composed(typed: list[str]) -> dict[str, Any]:
    config = OmegaConf.to_container(job_config(compose(typed)))
    assert isinstance(config, dict)
    config.pop("run_dir")
    return {str(key): value for key, value in config.items()}


@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data(), overrides())
def test_any_order_composes_the_same_job(data: st.DataObject, typed: list[str]) -> None:
    assert composed(typed) == composed(data.draw(st.permutations(typed)))


@settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data(), st.sampled_from([key for key in VALUES if key[0] not in "+~"]), overrides())
def test_the_last_of_two_values_counts(data: st.DataObject, key: str, typed: list[str]) -> None:
    others = [override for override in typed if not override.startswith(f"{key}=")]
    before, last = data.draw(st.permutations(VALUES[key]))
    position = data.draw(st.integers(0, len(others)))
    twice = [*others[:position], f"{key}={before}", *others[position:], f"{key}={last}"]
    assert composed(twice) == composed([*others, f"{key}={last}"])
