from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from torch import nn
from torchvision.models import (  # type: ignore[import-untyped]  # torchvision ships no types
    VisionTransformer,
    resnet18,
)

from assay.optimizer.muon import Muon
from assay.optimizer.parameter_groups import ParameterGroups

CONF = Path(__file__).parents[2] / "conf" / "param_groups"


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 4), nn.Linear(4, 4), nn.Linear(4, 3)
    )


def option(name: str, **changes: Any) -> ParameterGroups:
    groups = instantiate(OmegaConf.merge(OmegaConf.load(CONF / f"{name}.yaml"), changes))
    assert isinstance(groups, ParameterGroups)
    return groups


def named(model: nn.Module, groups: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The names of the parameters in each group, by its name."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {group["name"]: [names[parameter] for parameter in group["params"]] for group in groups}


def rates(model: nn.Module, groups: list[dict[str, Any]]) -> dict[str, float]:
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {names[parameter]: group["lr"] for group in groups for parameter in group["params"]}


def test_no_decay_takes_biases_and_norms() -> None:
    model = network()
    first, second = option("no_decay")(model, lr=0.1)
    assert first["weight_decay"] == 0.0
    assert "weight_decay" not in second
    assert named(model, [first, second]) == {
        "no_decay": ["0.bias", "1.weight", "1.bias", "3.bias", "4.bias", "5.bias"],
        "default": ["0.weight", "3.weight", "4.weight", "5.weight"],
    }


def test_the_first_rule_that_matches_wins() -> None:
    model = network()
    rules = [
        {"match": r"^5\.", "lr": 0.5, "name": "head"},
        {"match": r"bias$", "lr_scale": 0.1, "betas": [0.8, 0.9]},
        {"match": r"^0\.", "max_ndim": 4, "use_muon": False},
    ]
    groups = ParameterGroups(rules)(model, lr=0.2)
    assert named(model, groups) == {
        "head": ["5.weight", "5.bias"],
        "rule_1": ["0.bias", "1.bias", "3.bias", "4.bias"],
        "rule_2": ["0.weight"],
        "default": ["1.weight", "3.weight", "4.weight"],
    }
    options = [
        {key: value for key, value in group.items() if key not in {"params", "name"}} for group in groups
    ]
    assert options == [{"lr": 0.5}, {"lr": pytest.approx(0.02), "betas": (0.8, 0.9)}, {"use_muon": False}, {}]
    Muon(groups, lr=0.2)
    assert "rest" not in named(model, ParameterGroups([{"match": "."}])(model, lr=0.2))


@settings(max_examples=60, deadline=None)
@given(
    frozen=st.sets(st.integers(0, 9), max_size=9),
    rules=st.lists(
        st.fixed_dictionaries(
            {"match": st.sampled_from(["weight", "bias", r"^[0-3]\.", r"\d", "5", r"4\.w"])},
            optional={"max_ndim": st.integers(1, 4), "weight_decay": st.floats(0, 1)},
        ),
        max_size=4,
    ),
    layer_decay=st.sampled_from([None, 0.5]),
)
def test_each_trainable_parameter_is_in_exactly_one_group(
    frozen: set[int], rules: list[dict[str, Any]], layer_decay: float | None
) -> None:
    model = network()
    for index, parameter in enumerate(model.parameters()):
        parameter.requires_grad = index not in frozen
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        groups = ParameterGroups(rules, layer_decay)(model, lr=0.1)
    except ValueError as error:
        assert "takes no parameter" in str(error)  # noqa: PT017  # the property holds for the other cases
        return
    found = [parameter for group in groups for parameter in group["params"]]
    assert len(found) == len(trainable)
    assert {id(parameter) for parameter in found} == {id(parameter) for parameter in trainable}
    assert all(group["params"] for group in groups)
    assert len({group["name"] for group in groups}) == len(groups)
    torch.optim.SGD(groups, lr=0.1)


def test_layer_decay_of_a_vision_transformer_is_beit_s() -> None:
    """BEiT: embeddings at 0, block i at i + 1, head last; lr * decay^(blocks + 1 - index)."""
    blocks = 3
    model = VisionTransformer(8, 4, num_layers=blocks, num_heads=1, hidden_dim=8, mlp_dim=8, num_classes=2)
    found = rates(model, option("layer_decay")(model, lr=0.1))
    for name, lr in found.items():
        if name.startswith("encoder.layers.encoder_layer_"):
            index = int(name.split("encoder_layer_")[1].split(".")[0]) + 1
        elif name.startswith(("class_token", "conv_proj", "encoder.pos_embedding")):
            index = 0
        elif name.startswith("encoder.ln"):
            index = blocks  # with the last block
        else:
            assert name.startswith("heads.head")
            index = blocks + 1
        assert lr == pytest.approx(0.1 * 0.75 ** (blocks + 1 - index)), name
    assert len(found) == len([*model.parameters()])


def test_layer_decay_combines_with_rules_and_frozen_layers() -> None:
    model = network()
    model[3].requires_grad_(requires_grad=False)
    groups = ParameterGroups([{"name": "slow", "match": "bias", "lr_scale": 0.1}], layer_decay=0.5)(
        model, lr=1.0
    )
    assert rates(model, groups) == {
        "0.weight": 0.125,
        "0.bias": pytest.approx(0.0125),
        "1.weight": 0.125,
        "1.bias": pytest.approx(0.0125),
        "4.weight": 0.5,
        "4.bias": pytest.approx(0.05),
        "5.weight": 1.0,
        "5.bias": pytest.approx(0.1),
    }
    assert [group["name"] for group in groups] == [
        *("slow/3_from_head", "slow/1_from_head", "slow/0_from_head"),
        *("default/3_from_head", "default/1_from_head", "default/0_from_head"),
    ]


def test_a_rule_that_takes_nothing_is_refused() -> None:
    model = resnet18(num_classes=2)
    with pytest.raises(ValueError, match=r"rules\[0\] takes no parameter.*conv1\.weight"):
        ParameterGroups([{"match": "fc.wieght", "lr": 0.1}])(model, lr=0.1)
    with pytest.raises(ValueError, match=r"rules\[1\] takes no parameter .*earlier rule"):
        ParameterGroups([{"match": "."}, {"match": "fc"}])(model, lr=0.1)
    model.requires_grad_(requires_grad=False)
    with pytest.raises(ValueError, match="no trainable parameter"):
        ParameterGroups()(model, lr=0.1)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"match": "a", "weigth_decay": 0}, "unknown key 'weigth_decay'; expected .*weight_decay"),
        ({"lr": 0.1}, "no condition"),
        ({"match": None, "max_ndim": None, "lr": 0.1}, "no condition"),
        ({"match": "a", "lr": 0.1, "lr_scale": 0.1}, "both lr and lr_scale"),
        ({"match": "a", "name": "default"}, "more than one group called default"),
    ],
)
def test_says_what_is_wrong_with_a_rule(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ParameterGroups([rule])
