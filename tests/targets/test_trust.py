"""A config says what to compute; never where to write, whom to contact or what to execute."""

from __future__ import annotations

import inspect
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from lightning.pytorch import callbacks, loggers, profilers
from omegaconf import OmegaConf

from assay.compose.compose import compose
from assay.errors import ConfigError
from assay.sweep.session import plan_sweep
from assay.targets.external_values import check_external_values, collect_texts, may_reach_out
from assay.targets.trust import Trust, project_packages, trust, typed_keys

if TYPE_CHECKING:
    from pathlib import Path


def project(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / "conf" / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "conf"


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
    assert [job.trusted_packages for job in plan_sweep(["seed=1,2", *typed])] == [
        ["another.part", "my_project"]
    ] * 2
    monkeypatch.chdir(tmp_path)
    assert compose().trusted_packages == ["my_project"], "./conf is found by itself"
    assert compose([], conf).trusted_packages == ["my_project"]


@pytest.mark.parametrize(
    "typed",
    [
        *("my_project", "null,a", "[os.path]", "[torch]", "[assay]", "[hydra_plugins]", "[_io]", "[a..b]"),
        *("[1]", "[[a]]", "{a: b}", "['${oc.env:HOME}']", "${seed}", "[a],[b]", "['']"),
    ],
)
def test_no_such_names(typed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_sweep([f"trusted_packages={typed}"])
    assert caught.value.key == "trusted_packages"
    assert "trusted_packages=[" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "trusted_packages: [my_project]\nseed: 1\n",
        "trusted_packages: [subprocess]\n",
        "trusted_packages: ['${oc.env:HOME}']\n",
        "- my_project\n",
        "trusted_packages: !!python/name:os.system\n",
    ],
)
def test_no_such_project_file(tmp_path: Path, text: str) -> None:
    conf = project(tmp_path, project=text)
    with pytest.raises(ConfigError, match=r"project\.yaml"):
        compose([], conf)


@pytest.mark.parametrize(
    "text",
    [
        "trusted_packages: [evil]",
        "trusted_packages: ${oc.create:[evil]}",
        "trusted_packages: [evil]\nhydra: {overrides: {task: ['trusted_packages=[evil]']}}",
    ],
)
def test_an_experiment_cannot_trust(tmp_path: Path, text: str) -> None:
    conf = project(tmp_path, experiment__evil=f"# @package _global_\n{text}\n")
    for compose_all, typed in ((compose, ["experiment=evil"]), (plan_sweep, ["experiment=evil", "seed=1,2"])):
        with pytest.raises(ConfigError, match="must not choose what is trusted"):
            compose_all(typed, conf)
    mine = "trusted_packages=[mine]"  # what is typed takes the place of what was written
    assert compose(["experiment=evil", mine], conf).trusted_packages == ["mine"]


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


NOBODY = Trust()
OUTSIDE = {
    "logger.csv.path": "conf/model/mlp.yaml",
    "logger.tensorboard.version": "../../../up",
    "logger.mlflow.tracking_uri": "http://evil/x",
    "logger.wandb.api_key": "0123456789",
    "callbacks.checkpoint.dirpath": "${run_dir}/../other",
    "callbacks.checkpoint.filename": "../../best",
    "callbacks.x.deep[0].file": "/etc/x",
    "trainer.strategy.init_method": "tcp://10.0.0.1:1",
    "model.weights": "https://evil/w.safetensors",
    "model.network.weights": "DEFAULT",
    "data.source.path": "s3://evil/rows.csv",
}
INSIDE = {
    "logger.csv.path": "${run_dir}/metrics.csv",
    "logger.mlflow.tracking_uri": "sqlite:///outputs/mlflow.db",
    "logger.wandb.notes": "see https://example.org",
    "callbacks.checkpoint.dirpath": "${run_dir}/checkpoints",
    "callbacks.checkpoint.filename": "{epoch}-best",
    "callbacks.x.steps": "${spec.total_steps}",
    "data.source.root": "/datasets/mine",
    "tags": "https://example.org/ticket",
}


def job_with(key: str, value: Any) -> Any:
    config = OmegaConf.create({"name": "x", "run_dir": "outputs/run"})
    outer, is_list, inner = key.partition("[0].")
    OmegaConf.update(config, outer, [OmegaConf.create({inner: value})] if is_list else value)
    return config


@pytest.mark.parametrize(("key", "value"), OUTSIDE.items())
def test_outside_needs_a_person(key: str, value: str) -> None:
    config = job_with(key, value)
    with pytest.raises(ConfigError, match="was not given") as caught:
        check_external_values(config, NOBODY)
    assert caught.value.key == key
    typed = caught.value.hint.removeprefix("to allow this, type it: ").partition(", or list it under")[0]
    (word,) = shlex.split(typed)
    assert word.startswith(f"{key}=")
    assert may_reach_out(key, value)
    check_external_values(config, Trust(keys=frozenset([key])))
    check_external_values(config, Trust(said=collect_texts(config)))


@pytest.mark.parametrize(("key", "value"), INSIDE.items())
def test_what_stays_inside_needs_nobody(key: str, value: str) -> None:
    check_external_values(job_with(key, value), NOBODY)


@pytest.mark.parametrize(
    ("said", "value", "is_fine"),
    [
        ("/scratch/me", "/scratch/me/a", True),
        ("/scratch/me", "/scratch/me", True),
        ("/scratch/me", "/scratch/men", False),
        ("/scratch/me", "/scratch/me/../you", False),
        ("http://lab:5000", "http://lab:5000/x", True),
        ("http://lab", "http://lab@evil/x", False),
    ],
)
def test_trusted_values_of_the_project(said: str, value: str, *, is_fine: bool) -> None:
    config = job_with("callbacks.checkpoint.dirpath", value)
    if is_fine:
        check_external_values(config, Trust(values=(said,)))
    else:
        with pytest.raises(ConfigError):
            check_external_values(config, Trust(values=(said,)))


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("++a.b=/x", {"a.b"}),
        ("a={b: /x, c: [/y]}", {"a.b", "a.c", "a.c[0]"}),
        ("a.0=/x", {"a[0]"}),
        ("a=/x,/y", {"a"}),
        ("a=/${oc.env:HOME}/${name}", {"a"}),
        ("a={b: '${evil}'}", set()),
        ("a=/x,${evil}", set()),
        ("a=${oc.env:X,${evil}}", set()),
        ("a=[", set()),
    ],
)
def test_what_was_typed(typed: str, keys: set[str]) -> None:
    assert typed_keys([typed]) == keys


@pytest.mark.parametrize("name", ["../../up", "/var/x", ".hidden", "", "a\nb", "~", "-x"])
def test_a_name_is_made_of_words(name: str) -> None:
    config = job_with("seed", 1)
    config.name = name
    with pytest.raises(ConfigError, match="cannot be part of a path"):
        check_external_values(config, NOBODY)


def test_a_trusted_class_may_have_a_path_but_no_address() -> None:
    config = OmegaConf.create({"name": "x", "run_dir": "run", "trusted_packages": ["mine"], "callbacks": {}})
    config.callbacks.x = {"_target_": "mine.Notes", "deep": {"folder": "${run_dir}/../notes"}}
    check_external_values(config, NOBODY)
    for name, value in (("_target_", "mined.Notes"), ("folder", "http://evil")):
        tried = config.copy()
        tried.callbacks.x[name] = value
        with pytest.raises(ConfigError, match="was not given"):
            check_external_values(tried, NOBODY)


def test_an_experiment_and_the_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/experiment").mkdir(parents=True)
    evil = tmp_path / "conf/experiment/evil.yaml"

    def says(text: str, *typed: str) -> Any:
        evil.write_text(f"# @package _global_\n{text}\n", encoding="utf-8")
        return compose(["experiment=evil", *typed])

    path = "logger: {csv: {path: notes.txt}}"
    with pytest.raises(ConfigError, match=r"logger\.csv\.path: 'notes.txt' was not given"):
        says(path)
    with pytest.raises(ConfigError, match=r"logger\.csv\.path"):
        says(f"{path}\nmine: notes.txt", "logger.csv.path=${mine}")
    assert says(path, "logger.csv.path=notes.txt").logger.csv.path == "notes.txt"
    for place in ("/var/x", "../x", ".git/x", "."):
        with pytest.raises(ConfigError, match=r"hydra\.run\.dir"):
            says(f"hydra: {{run: {{dir: {place}}}}}")
    assert says("hydra: {run: {dir: runs/x}}").run_dir == "runs/x"
    with pytest.raises(ConfigError, match=r"hydra\.launcher\.setup\[0\]: 'touch x' was not given") as caught:
        says("hydra: {launcher: {setup: [touch x]}}")
    assert "'hydra.launcher.setup=[touch x]'" in caught.value.hint
    (tmp_path / "conf/project.yaml").write_text("trusted_values: [touch x, notes.txt]\n", encoding="utf-8")
    says(f"{path}\nhydra: {{launcher: {{setup: [touch x]}}}}")
    assert trust([]).values == ("touch x", "notes.txt")


def test_every_such_argument_of_lightning_is_known() -> None:
    """Whatever value it has: a plain word is taken from the current directory, a host has no scheme."""
    meant = re.compile(r"dir|path|file|folder|uri|url|host|addr|server|location|token|api_key|entity|space")
    rooms = {"callbacks": callbacks, "logger": loggers, "trainer": profilers}
    found = {
        f"{root}.{name}.{argument}"
        for root, room in rooms.items()
        for name, kind in inspect.getmembers(room, inspect.isclass)
        for argument in inspect.signature(kind.__init__).parameters
        if meant.search(argument) and argument not in ("filename", "add_file_policy", "profiler_kwargs")
    }
    assert len(found) >= 10
    for key in sorted(found):
        with pytest.raises(ConfigError, match="was not given"):
            check_external_values(job_with(key, "word"), NOBODY)
