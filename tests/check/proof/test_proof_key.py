from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError

from assay.check.report import but_for_rates, copy_of, elsewhere, plain_node


def test_a_copy_refuses_new_keys_and_leaves_the_original_alone() -> None:
    config = OmegaConf.create({"a": {"b": "${c}"}, "c": 1})
    copied = copy_of(config)
    copied.c = 2
    assert (config.a.b, copied.a.b) == (1, 2)
    with pytest.raises(ConfigAttributeError):
        copied.a.new = 1


def test_a_node_is_resolved_where_it_can_be() -> None:
    config = OmegaConf.create({"a": {"b": "${c}"}, "c": 1, "late": {"n": "${spec.n}"}})
    assert plain_node(config, "a") == {"b": 1}
    assert plain_node(config, "late") == {"n": "${spec.n}"}
    assert plain_node(config, "c") == 1
    assert plain_node(config, "none") is None


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ({"lr": 0.1}, {"lr": 0.2}, True),
        ({"weight_decay": 0.0}, {"weight_decay": 0.1}, False),
        ({"betas": [0.9, 0.99]}, {"betas": [0.8, 0.9]}, True),
        ({"betas": [0.0, 0.99]}, {"betas": [0.8, 0.9]}, False),
        ({"lr": 0.1, "nesterov": True}, {"lr": 0.1, "nesterov": False}, False),
        ({"max_iter": 4}, {"max_iter": 5}, False),
        (None, {"lr": 0.1}, False),
    ],
)
def test_how_large_a_rate_is_shares_a_proof(one: Any, other: Any, share: bool) -> None:
    assert (but_for_rates(one) == but_for_rates(other)) is share


def test_the_run_directory_is_no_part_of_a_key() -> None:
    node = {"dirpath": "runs/1/checkpoints", "list": ["runs/1", "runs/10/x", "on/runs/1"], "n": 1}
    assert elsewhere(node, "runs/1") == {
        "dirpath": "/checkpoints",
        "list": [".", "runs/10/x", "on/runs/1"],
        "n": 1,
    }
