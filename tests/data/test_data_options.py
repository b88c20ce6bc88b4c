"""Every option of `data` and `data/transform`, as composed from the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf, open_dict
from PIL import Image

from assay.compose.compose import compose
from assay.paths import CONF_DIR

if TYPE_CHECKING:
    from pathlib import Path

    from omegaconf import DictConfig

    from assay.data.data_module import DataModule

OPTIONS = sorted(path.stem for path in (CONF_DIR / "data").glob("[!_]*.yaml"))
TRANSFORMS = sorted(path.stem for path in (CONF_DIR / "data" / "transform").glob("*.yaml"))
IMAGES = "data.source.num_samples=200"


def build(config: DictConfig) -> DataModule:
    node = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    with open_dict(node):
        node.data.pop("spec", None)
    built: DataModule = instantiate(node.data, _convert_="all")
    return built


def own_data(option: str, folder: Path) -> list[str]:
    """What an option over the user's own data asks for."""
    if option == "image_folder":
        for name in ("a", "b"):
            (folder / name).mkdir()
            for index in range(100):
                Image.fromarray(np.full((4, 4, 3), index, dtype=np.uint8)).save(
                    folder / name / f"{index}.png"
                )
        return [f"data.source.root={folder}"]
    if option == "arrays":
        np.savez(
            folder / "data.npz", inputs=np.random.default_rng(0).random((200, 3)), targets=np.arange(200) % 2
        )
        return [f"data.source.root={folder / 'data.npz'}"]
    if option == "text_table":
        texts = [f"word{number % 7} and number{number}" for number in range(200)]
        pd.DataFrame({"x": texts, "y": np.arange(200) % 2}).to_csv(folder / "data.csv", index=False)
        names = ["data.source.text=x", "data.source.target=y", "data.source.max_length=16"]
        return [f"data.source.path={folder / 'data.csv'}", *names, "data.source.vocab_size=300"]
    if option == "table":
        pd.DataFrame({"x": np.sin(np.arange(200.0)), "y": np.arange(200) % 2}).to_csv(
            folder / "data.csv", index=False
        )
        return [f"data.source.path={folder / 'data.csv'}", "data.source.target=y"]
    return []


@pytest.mark.parametrize(
    "option",
    [
        "arrays",
        "breast_cancer",
        "diabetes",
        "digits",
        "image_folder",
        "iris",
        "synthetic",
        "table",
        "text_table",
        "wine",
    ],
)
def test_options_that_need_no_download_set_up(option: str, tmp_path: Path) -> None:
    datamodule = build(compose([f"data={option}", *own_data(option, tmp_path)]))
    datamodule.prepare_data()
    datamodule.setup()
    inputs, targets = datamodule.on_after_batch_transfer(next(iter(datamodule.train_dataloader())), 0)
    spec = datamodule.spec
    cut = {"text_table": (8,)}.get(option, spec.input_shape)  # to the longest of the batch
    assert inputs.shape == (datamodule.batch_size, *cut)
    assert len(targets) == len(inputs)
    assert inputs.dtype == (torch.int64 if spec.vocab_size else torch.float32)
    total = spec.num_train + spec.num_val + spec.num_test
    assert spec.num_val == pytest.approx(0.1 * total, abs=1)
    assert spec.num_test == pytest.approx(0.2 * total, abs=1)


def test_a_data_set_of_ones_own() -> None:
    dataset = "data.source.dataset"
    arguments = [f"+{dataset}.size=40", f"+{dataset}.image_size=[3,8,8]", f"+{dataset}.num_classes=2"]
    config = compose(
        ["data=custom", f"{dataset}._target_=torchvision.datasets.FakeData", *arguments, "data.batch_size=4"]
    )
    config.data.num_workers = 0
    datamodule = build(config)
    datamodule.setup()
    assert (datamodule.spec.num_train, datamodule.spec.input_shape) == (28, (3, 8, 8))


@pytest.mark.parametrize("option", ["mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_downloads_go_where_the_environment_says(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_DATA", raising=False)
    assert compose([f"data={option}"]).data.source.root == "datasets"
    monkeypatch.setenv("ASSAY_DATA", "/somewhere")
    assert compose([f"data={option}"]).data.source.root == "/somewhere"
    config = compose([f"data={option}", "data.source.root=here"])
    assert config.data.source.root == "here"
    assert build(config).source._name().lower() == option.replace("_", "")  # type: ignore[attr-defined]  # the source's own


def chosen(*overrides: str) -> tuple[str, str, str]:
    choices: Any = compose(overrides).hydra.runtime.choices
    return choices.model, choices.loss, choices.metrics


def test_the_command_line_wins() -> None:
    assert chosen("data=diabetes", "loss=huber", "model=linear") == ("linear", "huber", "regression")


@pytest.mark.parametrize("option", TRANSFORMS)
def test_every_transform_runs(option: str) -> None:
    datamodule = build(compose(["data=synthetic", IMAGES, f"data/transform={option}", "data.batch_size=4"]))
    datamodule.setup()
    size = {"imagenet": 224, "resized_crop": 256}.get(option, 32)
    train, _ = datamodule.on_after_batch_transfer(next(iter(datamodule.train_dataloader())), 0)
    assert train.shape == (4, 3, size, size)
    assert datamodule.spec.input_shape == (3, size, size)
    assert len(datamodule.spec.mean) == 3
