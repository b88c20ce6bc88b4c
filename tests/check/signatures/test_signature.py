from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from omegaconf import OmegaConf

from assay.check.signature import check_signatures
from assay.errors import ConfigError
from assay.targets.allowed_targets import targets

if TYPE_CHECKING:
    from pathlib import Path


PROFILER = {"_target_": "lightning.pytorch.profilers.PyTorchProfiler"}
DDP = {"_target_": "lightning.pytorch.strategies.DDPStrategy"}


def refused(node: dict[str, Any], *packages: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_signatures(OmegaConf.create({"part": node, "trusted_packages": list(packages)}))
    return caught.value


@pytest.mark.parametrize(
    ("node", "key", "message", "hint"),
    [
        (
            {"_target_": "torch.optim.SGD", "lrr": 1},
            "part.lrr",
            "did you mean 'lr'?",
            "it takes: SGD(params, lr=0.001",
        ),
        ({"_target_": "torch.optim.SGD", "lr": "x"}, "part.lr", "a number was expected", "part.lr=0.001"),
        (
            {"_target_": "torch.optim.Adam", "betas": [0.9]},
            "part.betas",
            "a list of 2 numbers",
            "[0.9, 0.999]",
        ),
        ({"_target_": "torch.nn.Dropout", "p": None}, "part.p", "null was given", "part.p=0.5"),
        ({"_target_": "assay.model.mlp.MLP", "hidden": "x"}, "part.hidden", "whole numbers", "[256, 256]"),
        ({"_target_": "torch.nn.Lineer"}, "part._target_", "torch.nn has no 'Lineer'", "'Linear'"),
        ({"_target_": "nowhere.at.All"}, "part._target_", "not allowed", "trusted_packages=[nowhere]"),
        ({"_target_": "torch.nn.Linear.x"}, "part._target_", "not allowed", ""),
    ],
    ids=str,
)
def test_refused(node: dict[str, Any], key: str, message: str, hint: str) -> None:
    error = refused(node)
    assert error.key == key
    assert message in error.message
    assert hint in error.hint


def test_a_module_that_fails_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "falls_over.py").write_text("import no_such_package\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    error = refused({"_target_": "falls_over.Net"}, "falls_over")
    assert "No module named 'no_such_package'" in error.message
    assert "--debug" in error.hint


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    refused({"_target_": "nowhere.at.All"})
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "node",
    [
        {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.1},
        {"_target_": "torch.nn.Sequential", "_args_": [{"_target_": "torch.nn.Flatten"}]},
        {"_target_": "torch.nn.Linear", "in_features": "${spec.num_features}", "out_features": 1},
        {"_target_": "torch.nn.CrossEntropyLoss", "weight": {"_target_": "torch.ones", "size": [3]}},
        {"inner": [{"_target_": "torch.nn.Dropout", "p": 0.1}]},
        {"_target_": None},
    ],
    ids=str,
)
def test_fine(node: dict[str, Any]) -> None:
    if node.get("_target_", "") is not None:
        check_signatures(OmegaConf.create({"part": node}))


def test_a_default_of_none_is_taken_whatever_the_annotation_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def build(size: int = None, depth: int = 3): ...\n"
    (tmp_path / "careless.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    fine = {"part": {"_target_": "careless.build", "size": None}, "trusted_packages": ["careless"]}
    check_signatures(OmegaConf.create(fine))
    assert refused({"_target_": "careless.build", "depth": None}, "careless").key == "part.depth"


def test_nested_targets_are_named_by_their_full_key() -> None:
    nodes = {"list": [{"_target_": "torch.nn.Dropout", "q": 0.1}]}
    assert refused(nodes).key == "part.list[0].q"


def test_what_assemble_takes_off_a_node_is_no_argument() -> None:
    scheduler = {
        "_target_": "torch.optim.lr_scheduler.StepLR",
        "_partial_": True,
        "interval": "epoch",
        "step_size": 3,
    }
    trainer = {"_target_": "lightning.Trainer", "compile": False, "max_epochs": 3}
    check_signatures(OmegaConf.create({"scheduler": scheduler, "trainer": trainer}))
    with pytest.raises(ConfigError, match="interval"):
        check_signatures(OmegaConf.create({"other": scheduler}))


# -- what a call lacks, or gets twice --------------------------------------------------------------

SGD, STEP = {"_target_": "torch.optim.SGD"}, {"_target_": "torch.optim.lr_scheduler.StepLR"}
LINEAR = {"_target_": "torch.nn.Linear", "in_features": 3, "out_features": 1}
SEQUENTIAL = {"_target_": "torch.nn.Sequential"}
RESNET = {"_target_": "torchvision.models.resnet18"}
ACCURACY = {"_target_": "torchmetrics.classification.MulticlassAccuracy", "num_classes": 3}
IMAGES = {"_target_": "assay.data.torchvision_images.TorchvisionImages", "root": "x"}
FROM_IMAGES = {"_target_": "torchvision.datasets.CIFAR10", "_partial_": True}
OURS = {"_target_": "assay.module.Module"}
TRAINER = {"_target_": "lightning.Trainer"}
BLOCK = "assay.model.small_cnn.SmallCNN"


@pytest.mark.parametrize(
    ("config", "key", "message", "hint"),
    [
        # missing
        (
            {"model": {"_target_": BLOCK}},
            "model.input_shape, model.num_outputs",
            "each of these",
            "+model.num",
        ),
        (
            {"model": LINEAR | {"bias": "no"}},
            "model.bias",
            "true or false",
            "Linear(in_features, out_features",
        ),
        (
            {"model": SEQUENTIAL | {"_args_": [{"_target_": "torch.nn.Linear", "in_features": 2}]}},
            "model._args_[0].out_features",
            "Linear needs this",
            "+model._args_.0.out_features=…",
        ),
        (
            {"a": {"b": [{"c": {"_target_": "torch.nn.Linear", "_args_": [3]}}]}},
            "a.b[0].c.out_features",
            "needs this",
            "Linear(in_features, out_features",
        ),
        ({"optimizer": SGD}, "optimizer", "'params'", "_partial_: true"),
        ({"scheduler": STEP | {"step_size": 3}}, "scheduler", "'optimizer'", "_partial_: true"),
        ({"scheduler": STEP | {"_partial_": True}}, "scheduler.step_size", "needs this", "StepLR(optimizer"),
        (
            {
                "scheduler": {
                    "_target_": "torch.optim.lr_scheduler.LambdaLR",
                    "_partial_": True,
                    "lr_lambda": {"_target_": "assay.scheduler.warmup_cosine.WarmupCosine"},
                }
            },
            "scheduler.lr_lambda.total_steps",
            "needs this",
            "WarmupCosine(total_steps",
        ),
        (
            {"callbacks": {"stop": {"_target_": "lightning.pytorch.callbacks.EarlyStopping"}}},
            "callbacks.stop.monitor",
            "needs this",
            "EarlyStopping(monitor",
        ),
        ({"data": {"source": IMAGES}}, "data.source.dataset", "needs this", "TorchvisionImages("),
        # given twice
        ({"model": LINEAR | {"_args_": [3]}}, "model.in_features", "given twice", "leave one out"),
        (
            {"model": {"_target_": "torch.nn.Flatten", "_args_": [1, 2, 3]}},
            "model._args_",
            "2 values",
            "Flatten(",
        ),
        (
            {"optimizer": SGD | {"_partial_": True, "params": [1]}},
            "optimizer.params",
            "assay itself",
            "leave it",
        ),
        (
            {"scheduler": STEP | {"_partial_": True, "step_size": 1, "optimizer": 3}},
            "scheduler.optimizer",
            "assay itself",
            "leave it out",
        ),
        ({"module": OURS | {"model": None}}, "module.model", "assay itself", "model=…"),
        (
            {"module": OURS | {"channels_last": True}},
            "module.channels_last",
            "assay itself",
            "trainer.channels",
        ),
        ({"trainer": TRAINER | {"callbacks": []}}, "trainer.callbacks", "assay itself", "callbacks=[…]"),
        ({"trainer": TRAINER | {"logger": False}}, "trainer.logger", "assay itself", "logger=[…]"),
        ({"trainer": TRAINER | {"default_root_dir": "x"}}, "trainer.default_root_dir", "", "hydra.run.dir"),
        (
            {"data": {"source": IMAGES | {"dataset": FROM_IMAGES | {"train": True}}}},
            "data.source.dataset.train",
            "assay itself",
            "data.source.root",
        ),
        (
            {
                "data": {
                    "source": IMAGES | {"dataset": FROM_IMAGES | {"_target_": "torchvision.datasets.SVHN"}}
                }
            },
            "data.source.dataset",
            "SVHN has no argument 'train'",
            "data=custom",
        ),
        # what is handed on
        ({"m": RESNET | {"num_class": 3}}, "m.num_class", "did you mean 'num_classes'?", "resnet18("),
        (
            {"m": {"_target_": "lightning.pytorch.callbacks.EMAWeightAveraging", "deca": 1}},
            "m.deca",
            "'decay'",
            "",
        ),
        (
            {"m": {"_target_": "lightning.pytorch.loggers.TensorBoardLogger", "save_dir": "x", "nam": 1}},
            "m.nam",
            "'name'?",
            "TensorBoardLogger(save_dir",
        ),
        (
            {"m": PROFILER | {"record_shape": True}},
            "m.record_shape",
            "'record_shapes'?",
            "record_shapes=False",
        ),
        (
            {"m": PROFILER | {"profile_memory": "x"}},
            "m.profile_memory",
            "true or false",
            "profile_memory=False",
        ),
        (
            {"m": DDP | {"find_unused_parameter": True}},
            "m.find_unused_parameter",
            "'find_unused_parameters'?",
            "",
        ),
        (
            {"m": {"_target_": "assay.loss.bce.BCE", "weight": 1}},
            "m.weight",
            "no argument",
            "takes no arguments",
        ),
        # wrong types
        (
            {"optimizer": SGD | {"_partial_": True, "lr": "1e-3"}},
            "optimizer.lr",
            "'1e-3' (text) was given; a number",
            "without quotes: optimizer.lr=1e-3",
        ),
        (
            {"trainer": TRAINER | {"max_epochs": 1e2}},
            "trainer.max_epochs",
            "100.0",
            "trainer.max_epochs=100\n",
        ),
        (
            {"optimizer": SGD | {"_partial_": True, "_args_": [0.1]}},
            "optimizer._args_[0]",
            "0.1 was given",
            "SGD(",
        ),
        ({"model": {"_target_": "torch.nn.Dropout", "_args_": ["x"]}}, "model._args_[0]", "a number", "=0.5"),
        (
            {"m": {"_target_": "assay.augment.teacher.Teacher", "model": 3}},
            "m.model",
            "a Module",
            "Teacher(model",
        ),
        (
            {"m": {"_target_": "assay.augment.teacher.Teacher", "model": SGD | {"_partial_": True}}},
            "m.model",
            "a Module",
            "leave out its _partial_: true",
        ),
        (
            {
                "m": {
                    "_target_": "torch.nn.TransformerEncoder",
                    "num_layers": 2,
                    "encoder_layer": {"_target_": "torch.utils.data.Dataset"},
                }
            },
            "m.encoder_layer",
            "a Dataset was given",
            "",
        ),
        (
            {"m": {"_target_": "torch.nn.CrossEntropyLoss", "weight": [1.0]}},
            "m.weight",
            "a Tensor",
            "weight=",
        ),
        (
            {"m": {"_target_": BLOCK, "input_shape": [1, 8, 8], "num_outputs": 2, "widths": [1, "x"]}},
            "m.widths",
            "a list of whole numbers",
            "[32, 64, 128]",
        ),
        (
            {"m": {"_target_": "assay.model.mlp.MLP", "input_shape": [1], "num_outputs": 1, "norm": "bach"}},
            "m.norm",
            "batch or layer or null",
            "norm=batch",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_calls_that_cannot_be_made(config: dict[str, Any], key: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_signatures(OmegaConf.create(config))
    assert caught.value.key == key
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert len(caught.value.hint.splitlines()) <= 2
    assert max(map(len, caught.value.hint.splitlines())) <= 170


@pytest.mark.parametrize(
    "config",
    [
        {"optimizer": SGD | {"_partial_": True}},
        {"other": SGD | {"_partial_": True, "params": []}},
        {"scheduler": STEP | {"_partial_": True, "step_size": "${spec.total_steps}"}},
        {"data": {"source": IMAGES | {"dataset": FROM_IMAGES}}},
        {"m": LINEAR | {"_recursive_": False, "bias": True}},
        {"m": SEQUENTIAL | {"_recursive_": False, "_args_": [{"_target_": "torch.nn.Linear"}]}},
        {"m": RESNET | {"width_per_group": 32, "weights": None, "norm_layer": None}},
        {"m": ACCURACY | {"top_k": 2, "sync_on_compute": False}},
        {"m": SEQUENTIAL | {"_args_": [LINEAR, {"_target_": "torch.nn.ReLU"}]}},
        {
            "m": {
                "_target_": "torch.nn.TransformerEncoder",
                "num_layers": 2,
                "encoder_layer": {"_target_": "torch.nn.TransformerEncoderLayer", "d_model": 4, "nhead": 2},
            }
        },
        {"m": {"_target_": "assay.augment.teacher.Teacher", "model": {"_target_": "assay.load", "run": "x"}}},
        {"a": LINEAR, "m": {"_target_": "assay.augment.teacher.Teacher", "model": "${a}"}},
        {"trainer": TRAINER | {"max_time": {"hours": 1}, "limit_train_batches": 0.5, "profiler": "simple"}},
        {"trainer": TRAINER | {"strategy": {"_target_": "lightning.pytorch.strategies.DDPStrategy"}}},
        {"m": {"_target_": "torchvision.transforms.v2.Resize", "size": [3, 3], "interpolation": 2}},
    ],
    ids=str,
)
def test_calls_that_can_be_made(config: dict[str, Any]) -> None:
    check_signatures(OmegaConf.create(config))


def test_what_is_used_as_it_is_cannot_be_a_partial() -> None:
    from assay.compose.compose import compose, job_config

    typed = ["data=cifar10", "augment=mixup", "callbacks=[default,ema]", "logger=[csv]", "scheduler=plateau"]
    config = job_config(compose(typed))
    said: dict[str, str] = {}
    for key, _ in targets(config):
        tried = copy.deepcopy(config)
        OmegaConf.update(tried, f"{key}._partial_", True, force_add=True)
        try:
            check_signatures(tried)
            said[key] = ""
        except ConfigError as error:
            said[key] = error.key
    called_later = {"augment", "data.source.dataset", "optimizer", "scheduler"}
    assert {key for key, at in said.items() if not at} == called_later
    assert said["callbacks.ema"] == "callbacks.ema._partial_"


def test_a_signature_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.compose.compose import compose, job_config

    config = job_config(compose())
    check_signatures(config)
    looked_up: list[object] = []
    monkeypatch.setattr(inspect, "signature", looked_up.append)
    check_signatures(config)
    assert not looked_up


@pytest.mark.parametrize(
    "node",
    [
        PROFILER | {"record_shapes": True, "with_stack": True, "row_limit": 5, "export_to_flame_graph": True},
        DDP | {"find_unused_parameters": True, "static_graph": True, "process_group_backend": "gloo"},
    ],
)
def test_what_is_handed_on_is_taken(node: dict[str, Any]) -> None:
    check_signatures(OmegaConf.create({"part": node}))
