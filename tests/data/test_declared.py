"""What a YAML or a source states of its data is what the data is."""

from __future__ import annotations

import copy
import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.assemble.assembly import add_spec, open_data
from assay.assemble.model import check_declared
from assay.check.checker import Checker
from assay.compose.compose import compose, job_config
from assay.data.core.source_info import SourceInfo, info_of
from assay.errors import ConfigError, DataError
from assay.targets.resolve import resolve
from assay.task.task_of import task_of
from assay_prove.prove import open_declared

CONF = Path(__file__).parents[2] / "conf" / "data"
DOWNLOADED = {"cifar10", "cifar100", "fashion_mnist", "mnist"}
HERE = sorted({one.stem for one in CONF.glob("*.yaml") if "\nspec:" in one.read_text("utf-8")} - DOWNLOADED)


@pytest.mark.parametrize(
    "typed",
    [
        [],
        pytest.param(["data.split.val=0.25"], marks=pytest.mark.long),
        pytest.param(["data.split.test=0.33", "data.batch_size=7"], marks=pytest.mark.long),
    ],
    ids=str,
)
@pytest.mark.parametrize("option", HERE)
def test_the_stated_spec_is_that_of_the_data(option: str, typed: list[str]) -> None:
    config = job_config(compose([f"data={option}", "device=cpu", *typed]))
    real: Any = open_data(config).spec  # type: ignore[attr-defined]  # ours has one
    stated: Any = open_declared(config).spec  # type: ignore[attr-defined]  # ours has one
    for name in ("task", "input_shape", "input_dtype", "num_classes", "num_targets", "class_names"):
        if name != "class_names" or "class_names" in config.data.spec:
            assert getattr(stated, name) == getattr(real, name), name
    assert stated.class_counts == real.class_counts or task_of(real.task).has_masks, "pixels are not stated"
    for subset in ("num_train", "num_val", "num_test"):
        assert getattr(stated, subset) == getattr(real, subset), subset


@pytest.mark.parametrize(
    ("option", "shape", "classes", "train"),
    [
        ("mnist", (1, 28, 28), 10, 54_000),
        ("fashion_mnist", (1, 28, 28), 10, 54_000),
        ("cifar10", (3, 32, 32), 10, 45_000),
        ("cifar100", (3, 32, 32), 100, 45_000),
    ],
)
def test_downloaded_data_is_known_before_the_download(
    option: str, shape: tuple[int, ...], classes: int, train: int
) -> None:
    spec: Any = open_declared(job_config(compose([f"data={option}"]))).spec  # type: ignore[attr-defined]  # ours has one
    assert (spec.input_shape, spec.num_classes, spec.num_train, spec.num_test) == (
        shape,
        classes,
        train,
        10_000,
    )


@pytest.mark.parametrize(
    "task", [["binary", "data.source.num_classes=2"], ["multilabel"], ["multiclass"], ["regression"]], ids=str
)
def test_each_task_is_trained_as_it_was_checked(task: list[str]) -> None:
    typed = [f"data.source.task={task[0]}", *task[1:], "data.source.num_samples=500", "data.source.noise=0.5"]
    config = job_config(compose(["data=synthetic", "device=cpu", *typed]))
    stated: Any = open_declared(copy.deepcopy(config)).spec  # type: ignore[attr-defined]  # ours has one
    add_spec(config, open_data(config).spec)  # type: ignore[attr-defined]  # ours has one
    check_declared(stated.as_config(), config)


def test_a_wrong_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"data\.spec: .*shape"):
        open_declared(job_config(compose(["data=digits", "+data.spec.shape=[8,8]"])))


def test_data_that_is_not_what_was_stated_is_refused() -> None:
    config = job_config(compose(["data=digits", "device=cpu"]))
    add_spec(config, open_data(config).spec)  # type: ignore[attr-defined]  # ours has one
    check_declared({}, config)
    with pytest.raises(DataError, match=r"data\.spec: num_classes should be 9, but the data has 10"):
        check_declared({"task": "multiclass", "input_shape": [1, 8, 8], "num_classes": 9}, config)


@pytest.mark.parametrize("path", sorted(Path("conf/data").glob("*.yaml")), ids=lambda path: path.stem)
def test_what_a_source_declares_is_known_before_its_class_is_imported(path: Path) -> None:
    target = yaml.safe_load(path.read_text()).get("source", {}).get("_target_")
    if target is None or not target.startswith("assay."):
        return
    source: Any = resolve("data.source", target)
    assert info_of(target) == getattr(source, "info", SourceInfo())
    assert {one.argument for one in info_of(target).paths} <= set(inspect.signature(source).parameters)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


def test_of_an_unknown_class_nothing_is_known() -> None:
    assert info_of("nobody.Knows") == info_of(None) == SourceInfo()


@pytest.fixture
def custom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is typed for a custom source, whose module has another name in each test: none has imported it."""
    module = "".join(filter(str.isalpha, tmp_path.name))
    write(
        tmp_path / f"{module}.py",
        """
        import numpy as np
        import torch
        from assay.data.core.samples import Samples
        from assay.data.core.source_files import SourcePath
        from assay.data.core.source_info import SourceInfo

        def _task(source):
            return "binary" if source["classes"] == 2 else "multiclass"

        class Marks:
            info = SourceInfo((SourcePath("path", "marks", "file"),), _task)

            def __init__(self, path, classes):
                self.path, self.classes = path, classes
                self.task = _task({"classes": classes})
                self.class_names = tuple(map(str, range(classes)))

            def read(self):
                marks = torch.from_numpy(np.loadtxt(self.path)).float()
                return {"all": Samples(marks, torch.arange(len(marks)) % self.classes)}
        """,
    )
    write(
        tmp_path / "conf/data/marks.yaml",
        f"""
        # Marks.
        defaults: [_loading, _self_]
        source: {{_target_: {module}.Marks, path: marks.txt, classes: 2}}
        """,
    )
    write(tmp_path / "conf/project.yaml", f"trusted_packages: [{module}]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return ["data=marks", "model=mlp"]


def test_files_of_a_custom_source_are_looked_for_before_it_reads(custom: list[str]) -> None:
    checker = Checker()
    job = checker.job([*custom, "task=binary"])
    with pytest.raises(ConfigError, match=r"data\.source\.path: there is no such file: .*marks\.txt"):
        checker.check(job)


def test_a_custom_source_finds_its_task(custom: list[str]) -> None:
    Path("marks.txt").write_text("1 2\n3 4\n" * 20)
    checker = Checker()
    assert checker.job([*custom, "data.source.classes=3"]).choices["loss"] == "cross_entropy"
    job = checker.job(custom)
    assert job.choices["loss"] == "bce_with_logits"
    assert checker.check(job).report.spec["task"] == "binary"
