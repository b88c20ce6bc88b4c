"""Every option of `data` and `data/transform`, as composed from the command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf, open_dict
from tests.command import typed

from assay.compose.compose import compose
from assay.paths import CONF_DIR

if TYPE_CHECKING:
    from pathlib import Path

    from omegaconf import DictConfig

    from assay.data.data_module import DataModule

TRANSFORMS = sorted(path.stem for path in (CONF_DIR / "data" / "transform").glob("*.yaml"))
IMAGES = "data.source.num_samples=200"


def build(config: DictConfig) -> DataModule:
    node = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    with open_dict(node):
        node.data.pop("spec", None)
    built: DataModule = instantiate(node.data, _convert_="all")
    return built


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


@pytest.mark.parametrize(
    ("package", "words", "install"),
    [
        ("tokenizers", ["data=stdlib_docs", "model=bag_of_embeddings"], "pip install 'assay[text]'"),
        (
            "openpyxl",
            ["data=table", "data.source.path=t.xlsx", "data.source.target=b"],
            "pip install openpyxl",
        ),
    ],
)
def test_a_package_that_the_data_needs_is_named_where_it_is_missing(
    package: str, words: list[str], install: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pd.DataFrame({"a": range(40), "b": range(40)}).to_excel(tmp_path / "t.xlsx", index=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    told = typed("check", *words, code=1).stderr
    assert package in told
    assert install in told


@pytest.mark.parametrize("option", TRANSFORMS)
def test_every_transform_runs(option: str) -> None:
    datamodule = build(compose(["data=synthetic", IMAGES, f"data/transform={option}", "data.batch_size=4"]))
    datamodule.setup()
    size = {"imagenet": 224, "resized_crop": 256}.get(option, 32)
    train, _ = datamodule.on_after_batch_transfer(next(iter(datamodule.train_dataloader())), 0)
    assert train.shape == (4, 3, size, size)
    assert datamodule.spec.input_shape == (3, size, size)
    assert len(datamodule.spec.mean) == 3
