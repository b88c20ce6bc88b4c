"""Calls are compared with signatures before anything is built; tests/check/broken has more of them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from omegaconf import OmegaConf

from assay.build import assembly, node, trainer
from assay.check.signature import check_signatures, supplied
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError
from assay.targets.allowed_targets import targets

if TYPE_CHECKING:
    from pathlib import Path

LINEAR = {"_target_": "torch.nn.Linear", "in_features": 3, "out_features": 1}
HALF_LINEAR = {"_target_": "torch.nn.Linear", "in_features": 2}
SEQUENTIAL, SGD = {"_target_": "torch.nn.Sequential"}, {"_target_": "torch.optim.SGD", "_partial_": True}
STEP = {"_target_": "torch.optim.lr_scheduler.StepLR", "_partial_": True}
LAMBDA = {"_target_": "torch.optim.lr_scheduler.LambdaLR", "_partial_": True}
COSINE = {"_target_": "assay.scheduler.warmup_cosine.WarmupCosine"}
PROFILER = {"_target_": "lightning.pytorch.profilers.PyTorchProfiler"}
DDP = {"_target_": "lightning.pytorch.strategies.DDPStrategy"}
TEACHER = {"_target_": "assay.augment.teacher.Teacher"}
ENCODER = {"_target_": "torch.nn.TransformerEncoder", "num_layers": 2}
LAYER = {"_target_": "torch.nn.TransformerEncoderLayer", "d_model": 4, "nhead": 2}
TENSORBOARD = {"_target_": "lightning.pytorch.loggers.TensorBoardLogger", "save_dir": "x"}
CNN = {"_target_": "assay.model.small_cnn.SmallCNN"}
RESNET = {"_target_": "torchvision.models.resnet18"}
TRAINER = {"_target_": "lightning.Trainer"}
IMAGES = {"_target_": "assay.data.torchvision_images.TorchvisionImages", "root": "x"}
CIFAR = {"_target_": "torchvision.datasets.CIFAR10", "_partial_": True}


@pytest.mark.parametrize(
    ("config", "key", "message", "hint"),
    [
        ({"m": CNN}, "m.input_shape, m.num_outputs", "each of these", "+m.num"),
        ({"m": SEQUENTIAL | {"_args_": [HALF_LINEAR]}}, "m._args_[0].out_features", "needs", "+m._args_.0.o"),
        ({"a": {"b": [{"c": HALF_LINEAR}]}}, "a.b[0].c.out_features", "needs this", "Linear(in_features"),
        ({"scheduler": LAMBDA | {"lr_lambda": COSINE}}, "scheduler.lr_lambda.total_steps", "needs", "Warmup"),
        ({"module": {"_target_": "assay.module.Module", "channels_last": True}}, "module.channels_last",
         "assay itself", "trainer.channels"),
        ({"m": {"_target_": "torch.nn.Flatten", "_args_": [1, 2, 3]}}, "m._args_", "2 values", "Flatten("),
        ({"m": TENSORBOARD | {"nam": 1}}, "m.nam", "'name'?", "TensorBoardLogger(save_dir"),
        ({"m": PROFILER | {"record_shape": True}}, "m.record_shape", "'record_shapes'?", "record_shapes=Fa"),
        ({"m": PROFILER | {"profile_memory": "x"}}, "m.profile_memory", "true or false", "profile_memory=F"),
        ({"m": DDP | {"find_unused_parameter": 1}}, "m.find_unused_parameter", "parameters'?", ""),
        ({"m": {"_target_": "assay.loss.bce.BCE", "weight": 1}}, "m.weight", "no argument", "takes no argu"),
        ({"optimizer": SGD | {"_args_": [0.1]}}, "optimizer._args_[0]", "0.1 was given", "SGD("),
        ({"m": {"_target_": "torch.nn.Dropout", "_args_": ["x"]}}, "m._args_[0]", "a number", "=0.5"),
        ({"m": TEACHER | {"model": SGD}}, "m.model", "a Module", "leave out its _partial_: true"),
        ({"m": ENCODER | {"encoder_layer": {"_target_": "torch.utils.data.Dataset"}}}, "m.encoder_layer",
         "a Dataset was given", ""),
        ({"m": {"_target_": "torch.nn.CrossEntropyLoss", "weight": [1.0]}}, "m.weight", "a Tensor", "weight"),
        ({"other": STEP | {"step_size": 3, "interval": "epoch"}}, "other.interval", "no argument", ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_calls_that_cannot_be_made(config: dict[str, Any], key: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_signatures(OmegaConf.create(config))
    assert caught.value.key == key
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert max(map(len, caught.value.hint.splitlines()), default=0) <= 170


@pytest.mark.parametrize(
    "config",
    [
        {"optimizer": SGD | {"lr": 0.1}},
        {"other": SGD | {"params": []}},
        {"scheduler": STEP | {"step_size": "${spec.total_steps}", "interval": "epoch"}},
        {"data": {"source": IMAGES | {"dataset": CIFAR}}},
        {"m": LINEAR | {"_recursive_": False, "bias": True}},
        {"m": SEQUENTIAL | {"_recursive_": False, "_args_": [{"_target_": "torch.nn.Linear"}]}},
        {"m": RESNET | {"width_per_group": 32, "weights": None, "norm_layer": None}},
        {"m": ENCODER | {"encoder_layer": LAYER}},
        {"m": {"_target_": "torch.nn.CrossEntropyLoss", "weight": {"_target_": "torch.ones", "size": [3]}}},
        {"a": LINEAR, "m": TEACHER | {"model": "${a}"}},
        {"m": TEACHER | {"model": {"_target_": "assay.load", "run": "x"}}},
        {"trainer": TRAINER | {"max_time": {"hours": 1}, "limit_train_batches": 0.5, "compile": False}},
        {"trainer": TRAINER | {"strategy": DDP | {"static_graph": True, "process_group_backend": "gloo"}}},
        {"m": {"_target_": "torchvision.transforms.v2.Resize", "size": [3, 3], "interpolation": 2}},
        {"m": PROFILER | {"record_shapes": True, "row_limit": 5, "export_to_flame_graph": True}},
    ],
    ids=str,
)
def test_calls_that_can_be_made(config: dict[str, Any]) -> None:
    check_signatures(OmegaConf.create(config))


def test_none_is_taken_where_it_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "careless.py").write_text("def build(size: int = None, depth: int = 3): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    part = {"_target_": "careless.build", "size": None}
    check_signatures(OmegaConf.create({"part": part, "trusted_packages": ["careless"]}))
    with pytest.raises(ConfigError, match=r"part\.depth"):
        check_signatures(OmegaConf.create({"part": part | {"depth": None}, "trusted_packages": ["careless"]}))


def test_what_is_used_as_it_is_cannot_be_a_partial() -> None:
    typed = ["data=cifar10", "augment=mixup", "callbacks=[default,ema]", "logger=[csv]", "scheduler=plateau"]
    config = job_config(compose(typed))
    blamed: dict[str, str] = {}
    for key, _ in targets(config):
        tried = copy.deepcopy(config)
        OmegaConf.update(tried, f"{key}._partial_", True, force_add=True)
        try:
            check_signatures(tried)
            blamed[key] = ""
        except ConfigError as error:
            blamed[key] = error.key
    called_later = {"augment", "data.source.dataset", "optimizer", "scheduler"}
    assert {key for key, at in blamed.items() if not at} == called_later
    assert blamed["callbacks.ema"] == "callbacks.ema._partial_"


def test_injected_arguments_are_those_that_assemble_gives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: dict[str, set[str]] = {}

    def noted(config: Any, key: str, **objects: Any) -> Any:
        given[key] = set(objects)
        return node.build(config, key, **objects)

    for room in (assembly, trainer):
        monkeypatch.setattr(room, "build", noted)
    monkeypatch.chdir(tmp_path)
    assembly.assemble(job_config(compose(["data=wine", "device=cpu"])))
    for key in ("trainer", "module"):
        injected = supplied(OmegaConf.create({}), key)
        assert injected is not None
        assert set(injected.names) == given[key]
