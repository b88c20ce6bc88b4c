"""Every option of `data` and `data/transform`, and the ranges of their numbers."""

from __future__ import annotations

import re
import socket
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf, open_dict
from tests.command import typed

from assay.compose.compose import compose
from assay.data.core.options import NAMES, check_limits
from assay.errors import ConfigError, DataError
from assay.paths import CONF_DIR

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from assay.data.core.data_module import DataModule


TRANSFORMS = sorted(path.stem for path in (CONF_DIR / "data" / "transform").glob("*.yaml"))
IMAGES = "data.source.num_samples=200"


def build(config: DictConfig) -> DataModule:
    node = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    with open_dict(node):
        node.data.pop("spec", None)
    built: DataModule = instantiate(node.data, _convert_="all")
    return built


@pytest.mark.parametrize("option", ["mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_downloads_go_where_the_environment_says(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_DATA", raising=False)
    assert option != "mnist" or compose([f"data={option}"]).data.source.root == "datasets"
    monkeypatch.setenv("ASSAY_DATA", "/somewhere")
    config = compose([f"data={option}"])
    assert config.data.source.root == "/somewhere"
    config.data.source.update(root="here", download=False)
    source = build(config).source
    source.prepare()
    missing = rf"(?i)data.source.root=here: {option.replace('_', '')} is missing or damaged"
    with pytest.raises(DataError, match=missing) as caught:
        source.read()
    assert caught.value.hint.startswith("data.source.download=true, or set data.source.root")


@pytest.mark.parametrize(
    ("package", "words", "install"),
    [
        (
            "tokenizers",
            ["data=text_table", "data.source.path=t.xlsx", "data.source.text=c", "data.source.target=b"],
            "pip install 'assay[text]'",
        ),
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
    texts = [f"the {number}th text of some length" for number in range(40)]
    pd.DataFrame({"a": range(40), "b": ["u", "v"] * 20, "c": texts}).to_excel(
        tmp_path / "t.xlsx", index=False
    )
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
    assert train.shape == (4, 3, *[256 if option == "random_crop" else size] * 2)
    assert datamodule.spec.input_shape == (3, size, size)
    assert len(datamodule.spec.mean) == 3


FINE = {"batch_size": 64, "eval_batch_size": 512, "num_workers": 2, "split.val": 0.1, "split.test": 0.2}


@pytest.mark.parametrize(
    "values",
    [
        {},
        FINE,
        {"batch_size": "auto"},
        {"batch_size": 1, "num_workers": 0, "thin_classes": 1},
        {"split.val": 0, "split.test": 0},
        {"split.folds": 2, "split.fold": 1, "split.group": "a", "split.val": 0.4, "split.test": 0.9},
    ],
)
def test_what_is_taken(values: dict[str, Any]) -> None:
    check_limits(dict.fromkeys(NAMES) | values)
    check_limits(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_size": 0}, "batch_size: expected int >= 1, got 0"),
        ({"eval_batch_size": True}, "eval_batch_size: expected int, got true"),
        ({"num_workers": 2000}, "num_workers: expected int <= 1024, got 2000"),
        ({"prefetch_factor": 1.5}, "prefetch_factor: expected int, got 1.5"),
        *(({"split.val": share}, "split.val: expected float") for share in (1.0, -0.1, True, "x")),
        *(({"split.folds": n, "split.fold": 0}, "split.folds: expected int") for n in (1, True, 2.5)),
        ({"split.fold": 0}, "fold: got fold 0 without the number of folds"),
        ({"split.folds": 5}, "fold: none of the 5 folds is chosen"),
        *(({"split.folds": 5, "split.fold": n}, "fold: ") for n in (5, -1, 0.5)),
        ({"split.folds": 2, "split.fold": 0, "split.val": 0.5}, "split.val: 0.5 and one of 2 folds leave"),
        ({"split.group": "a", "split.time": "b"}, "group, data.split.time: samples can be divided by"),
        *(
            ({key: "a", "split.folds": 5, "split.fold": 0}, f"{key}: folds cannot")
            for key in ("split.time", "split.column")
        ),
        ({"split.val": 0.5, "split.test": 0.5}, "split.val: 0.5 and data.split.test=0.5 leave nothing"),
        *(({"thin_classes": ratio}, "thin_classes: expected float") for ratio in (0.0, 1.5, "x")),
    ],
    ids=str,
)
def test_what_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_limits(dict.fromkeys(NAMES) | values)


@pytest.mark.parametrize(
    "values",
    [{"split.val": 0.1, "split.test": 0.95}, {"split.folds": 2, "split.fold": 0, "split.val": 0.5}],
    ids=str,
)
def test_suggested_shares_leave_something_to_train_on(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        check_limits(values)
    for word in refused.value.hint.split():
        key, _, share = word.removeprefix("data.").partition("=")
        values = {**values, key: float(share)}
    check_limits(values)


@pytest.mark.parametrize("length", [75, 76])
def test_a_folder_for_temporary_files_leaves_room_for_the_sockets_of_workers(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        folder = Path(short) / ("x" * (length - len(short) - 1))
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        with socket.socket(socket.AF_UNIX) as listener:
            path = tempfile.mktemp(prefix="listener-", dir=tempfile.mkdtemp(prefix="pymp-"))  # noqa: S306 - as multiprocessing does
            with nullcontext() if length == 75 else pytest.raises(OSError, match="path too long"):
                listener.bind(path)
        with nullcontext() if length == 75 else pytest.raises(ConfigError, match=r"data\.num_workers: .*75"):
            check_limits({"num_workers": 1})
        check_limits({"num_workers": 0})
