from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from omegaconf import OmegaConf

from assay.check.output_paths import check_data_root
from assay.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

IMAGES = {"_target_": "assay.data.image_folder.ImageFolder"}
ARRAYS = {"_target_": "assay.data.arrays.Arrays"}
TABLE = {"_target_": "assay.data.table.Table"}
CIFAR = {"_target_": "assay.data.torchvision_images.TorchvisionImages"}
MNIST = {"_target_": "torchvision.datasets.MNIST"}
LOAD = {"_target_": "assay.load"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kind one, in the current directory."""
    monkeypatch.chdir(tmp_path)
    for folder in ("photos/cat", "run", "empty"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("table.csv", "rest.CSV.gz", "a.npz", "note.txt", "table.parquet", "run/config.yaml"):
        (tmp_path / file).touch()


def check(node: dict[str, Any]) -> None:
    check_data_root(OmegaConf.create({"data": {"source": node}}))


@pytest.mark.parametrize(
    "node",
    [
        IMAGES | {"root": "photos"},
        IMAGES | {"root": None},
        IMAGES | {"root": "${nothing}"},
        IMAGES | {"root": "???"},
        ARRAYS | {"root": "a.npz"},
        ARRAYS | {"root": "photos"},
        TABLE | {"path": "table.csv", "test_path": "rest.CSV.gz"},
        TABLE | {"path": "table.parquet", "test_path": None},
        CIFAR | {"root": "to/come"},
        CIFAR | {"root": "to/come", "download": True},
        CIFAR | {"root": "photos", "download": False},
        MNIST | {"root": "to/come", "download": True},
        MNIST | {"root": "photos"},
        MNIST | {"root": "to/come", "_partial_": True},
        {"_target_": "my_project.Data", "root": "nowhere"},
        {"_target_": "torchvision.datasets.FakeData", "size": 3},
        LOAD | {"run": "run"},
        LOAD | {"run": "run/"},
    ],
    ids=str,
)
def test_what_is_there_passes(node: dict[str, Any]) -> None:
    check(node)


@pytest.mark.parametrize(
    ("node", "name", "says", "hint"),
    [
        (IMAGES | {"root": "photo"}, "root", "did you mean 'photos'?", "root/<class>/*.jpg"),
        (IMAGES | {"root": "photos/train/x"}, "root", "photos has no 'train'", "one folder per class"),
        (IMAGES | {"root": "note.txt"}, "root", "note.txt is not a folder", "root=FOLDER"),
        (ARRAYS | {"root": "b.npz"}, "root", "did you mean 'a.npz'?", ".npz archive"),
        (TABLE | {"path": "tabel.csv"}, "path", "did you mean 'table.csv'?", ".csv, .tsv, .jsonl"),
        (TABLE | {"path": "table.csv", "test_path": "no.csv"}, "test_path", "no such file", ".csv"),
        (TABLE | {"path": "note.txt"}, "path", ".feather or .xlsx file was expected", "convert"),
        (CIFAR | {"root": "no", "download": False}, "root", "no such folder", "data.source.download=true"),
        (CIFAR | {"root": "note.txt"}, "root", "is not a folder", "FOLDER"),
        (MNIST | {"root": "no"}, "root", "no such folder", "download=true"),
        (LOAD | {"run": "rum"}, "run", "did you mean 'run'?", "outputs/<name>"),
        (LOAD | {"run": "empty"}, "run", "no config.yaml", "outputs/<name>"),
    ],
    ids=str,
)
def test_what_is_not_there_is_told(
    tmp_path: Path, node: dict[str, Any], name: str, says: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(node)
    assert caught.value.key == f"data.source.{name}"
    assert says in caught.value.message
    assert hint in caught.value.hint
    if "expected" not in says:
        assert str(tmp_path) in caught.value.message, "the absolute path"


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_a_folder_is_no_table(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        check(TABLE | {"path": name})


def test_what_no_source_expands_is_not_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="has no '~'"):
        check(IMAGES | {"root": "~/photos"})
    check(MNIST | {"root": "~/photos"})


def test_a_run_deep_inside_is_found() -> None:
    config = {"augment": {"_target_": "x.Teacher", "models": [{"_target_": "assay.load", "run": "gone"}]}}
    with pytest.raises(ConfigError) as caught:
        check_data_root(OmegaConf.create(config))
    assert caught.value.key == "augment.models[0].run"
