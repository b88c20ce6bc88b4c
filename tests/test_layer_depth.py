from __future__ import annotations

import pytest
import timm
import torch
import torchvision.models as zoo  # type: ignore[import-untyped]  # torchvision ships no types
from timm.optim._param_groups import param_groups_layer_decay
from torch import nn

from assay.layer_depth import distances_from_head, head_names, lies_in


def by_prefix(model: nn.Module, prefixes: list[str]) -> list[set[int]]:
    found = distances_from_head(model)
    return [{value for name, value in found.items() if name.startswith(prefix + ".")} for prefix in prefixes]


@pytest.mark.parametrize(
    "name", ["vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224", "beit_base_patch16_224"]
)
def test_blocks_are_as_far_apart_as_timm_has_them(name: str) -> None:
    with torch.device("meta"):
        model = timm.create_model(name, depth=4)
    scales = {
        parameter: group["lr_scale"]
        for group in param_groups_layer_decay(model, layer_decay=0.5, weight_decay=0.0)
        for parameter in group["params"]
    }
    ours = distances_from_head(model)
    blocks = {name: p for name, p in model.named_parameters() if name.startswith(("blocks.", "patch_embed."))}
    top = min(ours[block] for block in blocks)
    highest = max(scales[p] for p in blocks.values())
    assert len({ours[block] for block in blocks}) == 5
    for block, parameter in blocks.items():
        assert scales[parameter] == pytest.approx(highest * 0.5 ** (ours[block] - top)), block


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("inception_v3", ["Conv2d_1a_3x3", "Mixed_5b", "Mixed_5c", "Mixed_6a", "Mixed_7c", "fc"]),
        ("googlenet", ["conv1", "inception3a", "inception3b", "inception4a", "inception5b", "fc"]),
        ("densenet121", ["features.conv0", "features.denseblock1", "features.transition1", "classifier"]),
        ("efficientnet_b0", ["features.0", "features.1", "features.8", "classifier"]),
        ("swin_t", ["features.0", "features.1", "features.7", "head"]),
        ("regnet_y_400mf", ["stem", "trunk_output.block1", "trunk_output.block4", "fc"]),
        ("mobilenet_v3_small", ["features.0", "features.12", "classifier.0", "classifier.3"]),
    ],
)  # fmt: skip
def test_torchvisions_layers_come_in_their_order(name: str, layers: list[str]) -> None:
    options = {"aux_logits": False, "init_weights": False} if name in ("inception_v3", "googlenet") else {}
    with torch.random.fork_rng():
        model = zoo.get_model(name, **options)
    found = by_prefix(model, layers)
    assert [len(one) for one in found] == [1] * len(layers), found
    distances = [next(iter(one)) for one in found]
    assert distances == sorted(distances, reverse=True)
    assert len(set(distances)) == len(layers)
    assert distances[-1] == 0


def test_a_model_says_what_its_head_is() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.LayerNorm(2))
    assert head_names(model) == ("2",)
    model.head_names = ("1",)  # type: ignore[assignment]  # an attribute of one's own
    assert head_names(model) == ("1",)
    assert distances_from_head(model)["1.weight"] == 0
    assert not lies_in("10.weight", ("1",))
