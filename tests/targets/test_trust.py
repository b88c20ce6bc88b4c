from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from assay.compose.compose import compose, compose_with, job_config, loader
from assay.config.serialize import fingerprint
from assay.errors import ConfigError
from assay.sweep.session import plan
from assay.targets.trust import checked_names, project_packages, typed_packages

if TYPE_CHECKING:
    from pathlib import Path


def project(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / "conf" / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "conf"


def test_nothing_is_trusted_at_first() -> None:
    assert compose().trusted_packages == []


def test_named_by_the_project_and_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = project(tmp_path, project="trusted_packages: [my_project]\n")
    assert project_packages(conf) == ("my_project",)
    typed = ["trusted_packages=[another.part,my_project]"]
    assert compose(typed, conf).trusted_packages == ["another.part", "my_project"]
    with pytest.raises(ConfigError, match="asks to trust my_project") as caught:
        compose([], conf)
    assert "trusted_packages=[my_project]" in caught.value.hint
    assert compose(["trusted_packages=[]"], conf).trusted_packages == []
    assert [job.trusted_packages for job in plan(["seed=1,2", *typed])] == [
        ["another.part", "my_project"]
    ] * 2
    monkeypatch.chdir(tmp_path)
    assert compose().trusted_packages == ["my_project"], "./conf is found by itself"
    assert compose([], conf).trusted_packages == ["my_project"]


@pytest.mark.parametrize(
    "overrides",
    [
        ["trusted_packages=[a]", "trusted_packages=[b]"],
        ["++trusted_packages=[b]"],
        ["trusted_packages=[b,b]"],
    ],
)
def test_the_last_one_typed_holds(overrides: list[str]) -> None:
    assert compose(overrides).trusted_packages == ["b"]


@pytest.mark.parametrize(
    "typed",
    [
        *(
            "my_project",
            "null,a",
            "[os]",
            "[os.path]",
            "[torch]",
            "[assay]",
            "[builtins]",
            "[hydra_plugins]",
            "[_io]",
        ),
        *(
            "[a..b]",
            "[1]",
            "[a-b]",
            "[[a]]",
            "{a: b}",
            "['${oc.env:HOME}']",
            "${seed}",
            "[a],[b]",
            "['a b']",
            "['']",
        ),
    ],
)
def test_no_such_names(typed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan([f"trusted_packages={typed}"])
    assert caught.value.key == "trusted_packages"
    assert "trusted_packages=[" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "trusted_packages: [my_project]\nseed: 1\n",
        "trusted_packages: my_project\n",
        "trusted_packages: [subprocess]\n",
        "trusted_packages: ['${oc.env:HOME}']\n",
        "- my_project\n",
        "trusted_packages: [\n",
        "trusted_packages: !!python/name:os.system\n",
        "my_project\n",
    ],
)
def test_no_such_project_file(tmp_path: Path, text: str) -> None:
    conf = project(tmp_path, project=text)
    with pytest.raises(ConfigError, match=r"project\.yaml"):
        compose([], conf)


def test_a_project_that_trusts_nothing(tmp_path: Path) -> None:
    assert project_packages(project(tmp_path, project="")) == ()
    assert project_packages(project(tmp_path, project="trusted_packages:\n")) == ()
    assert project_packages(tmp_path) == ()
    assert project_packages(None) == ()


@pytest.mark.parametrize(
    "option",
    [
        "# @package _global_\ntrusted_packages: [evil]\n",
        "# @package _global_\ntrusted_packages: evil\n",
        "# @package _global_\ntrusted_packages: ${oc.create:[evil]}\n",
        "# @package _global_\ntrusted_packages: [evil]\n"
        "hydra: {overrides: {task: ['trusted_packages=[evil]']}}\n",
    ],
)
@pytest.mark.parametrize("typed", [[], ["trusted_packages=[mine]"]])
def test_an_experiment_cannot_trust(tmp_path: Path, option: str, typed: list[str]) -> None:
    conf = project(tmp_path, experiment__evil=option)
    overrides = ["experiment=evil", *typed]
    if typed:  # what is typed comes last, and takes the place of what was written
        assert compose(overrides, conf).trusted_packages == ["mine"]
    else:
        with pytest.raises(ConfigError, match="must not choose what is trusted"):
            compose(overrides, conf)
        with pytest.raises(ConfigError, match="must not choose what is trusted"):
            plan([*overrides, "seed=1,2"], conf)


@pytest.mark.parametrize("value", ["{a: evil}", "[[evil]]"])
def test_nor_in_another_way(tmp_path: Path, value: str) -> None:
    conf = project(tmp_path, experiment__evil=f"# @package _global_\ntrusted_packages: {value}\n")
    with pytest.raises(ConfigError):
        compose(["experiment=evil"], conf)


def test_nor_by_leaving_it_open(tmp_path: Path) -> None:
    conf = project(tmp_path, experiment__evil="# @package _global_\ntrusted_packages: ???\n")
    assert compose(["experiment=evil"], conf).trusted_packages == []


@pytest.mark.parametrize(
    "place", ["pkg://evil", "structured://evil", "${oc.env:HOME}", "pkg://my_project_evil"]
)
def test_configs_are_not_looked_for_in_a_package_that_is_not_trusted(place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([f"hydra.searchpath=['{place}']", "trusted_packages=[my_project]"])
    assert caught.value.key == "hydra.searchpath"


def test_configs_of_a_trusted_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trusted_configs/model").mkdir(parents=True)
    (tmp_path / "trusted_configs/__init__.py").touch()
    (tmp_path / "trusted_configs/model/mine.yaml").write_text(
        "# Mine.\n_target_: torch.nn.Identity\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    typed = ["hydra.searchpath=[pkg://trusted_configs]", "model=mine"]
    assert compose([*typed, "trusted_packages=[trusted_configs]"]).model._target_ == "torch.nn.Identity"
    plain = ["hydra.searchpath=[file://trusted_configs]", "model=mine"]
    assert compose(plain).model._target_ == "torch.nn.Identity"


def test_it_is_no_part_of_what_a_job_is() -> None:
    one, two = job_config(compose()), job_config(compose(["trusted_packages=[my_project]"]))
    two.run_dir = one.run_dir
    assert fingerprint(one) == fingerprint(two)


def test_names() -> None:
    assert checked_names(["a", "b.c"]) == ("a", "b.c")
    assert checked_names(None) == ()
    assert (
        typed_packages(["model.trusted_packages=[a]", "trusted_packagesx=[b]", "a=[trusted_packages"]) == ()
    )
    assert typed_packages(["trusted_packages=[a]", "~trusted_packages"]) == ()


def test_the_loader_alone_imports_nothing_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, project="trusted_packages: [my_project]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with loader() as hydra:
        compose_with(hydra, [])
    assert str(tmp_path) not in sys.path
