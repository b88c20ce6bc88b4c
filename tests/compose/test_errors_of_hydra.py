"""A mistake in a config file, or in what is asked of Hydra, is one message with the file and the line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from omegaconf import OmegaConf

from assay.compose.compose import compose
from assay.compose.hydra_node import SWEEP_PARTS, check_hydra
from assay.compose.origin import name_source
from assay.errors import ConfigError
from assay.targets.trust import Trust

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("typed", "key", "message", "hint"),
    [
        ("optimizr.lr=1", "optimizr.lr", "did you mean 'optimizer.lr'?", ""),
        ("data.bach_size=1", "data.bach_size", "did you mean 'data.batch_size'?", "data has: "),
        ("data=table data.file=a data.target=b", "data.file", "'data.source.path'?", "data.source.path=a"),
        ("data=csv", "data", "did you mean 'table' or 'text_table'?", "choose from: arrays"),
        ("modle=mlp", "modle", "did you mean 'model'?", "model=mlp"),
        ("trainer.zzz=1", "trainer.zzz", "unknown key", "in all"),
        ("optimizer=null", "optimizer", "got null", "choose from: adagrad"),
        ("augment=null", "augment", "got null", "~augment"),
        ("optimizer.lr", "optimizer.lr", "has no value", "optimizer.lr=VALUE"),
        ("optimizer.lr=1,2", "optimizer.lr", "several values", "-m optimizer.lr=1,2"),
        ("~optimizer.lr=7", "optimizer.lr", "is auto and not 7", "~optimizer.lr"),
        ("hydra/sweeper/pruner=median", "hydra/sweeper/pruner", "belongs to", "hydra/sweeper=optuna"),
        ("name=${nowhere}", "name", "'nowhere' not found", ""),
    ],
)
def test_key_message_and_hint(typed: str, key: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(typed.split())
    assert caught.value.key == key
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


HEAD = "# @package _global_\n# Mine.\n"


@pytest.mark.parametrize(
    ("name", "text", "where", "says"),
    [
        ("model/x", "# X.\na: 1\n  b: 2\n", ":3", "invalid YAML: mapping values are not allowed here"),
        ("model/x", "# X.\na:\n\tb: 1\n", ":3", "indent with spaces"),
        ("model/x", "# X.\na: 1\na: 2\n", ":3", "duplicate key a"),
        ("model/x", "# X.\na: !!python/object/apply:os.getcwd []\n", ":2", "expected plain YAML"),
        ("model/x", "# @package a b\n# X.\na: 1\n", ":1", "invalid first line"),
        ("model/x", "# X.\ndefaults:\n  - _self_\n  - nothing\na: 1\n", "", "unknown option 'nothing'"),
        ("model/x", "# X.\ndefaults:\n  - /augment@a: mixxup\n", "", "did you mean 'mixup'?"),
        ("model/x", "# X.\na: ${oops\n", "", "invalid interpolation"),
        (
            "experiment/x",
            f"{HEAD}defaults:\n  - override /model: mpl\n",
            "",
            "model: unknown option 'mpl'",
        ),
        ("experiment/x", f"{HEAD}defaults:\n  - override /modle: mlp\n", "", "did you mean 'model'?"),
        ("experiment/x", f"{HEAD}defaults:\n  - model: mlp\n", "", "override /model: mlp"),
        ("experiment/x", f"{HEAD}defaults:\n  override /model: mlp\n", "", "defaults must be a list"),
        ("experiment/x", f"{HEAD}defaults:\n  - override /model: 3\n", "", "defaults"),
        ("experiment/x", f"{HEAD}defaults:\n  - a: b\n    c: d\n", "", "Too many keys"),
        ("experiment/x", f"{HEAD}model: [a]\n", "", "Cannot merge"),
        ("experiment/x", f"{HEAD}hydra:\n  searchpath: [a]\n", "", "hydra.searchpath"),
        ("experiment/x", f"{HEAD}trusted_packages: [a]\n", ":3", "trusted_packages: "),
    ],
)
def test_own_file(name: str, text: str, where: str, says: str, project: Path) -> None:
    path = project / "conf" / f"{name}.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    typed = [name.replace("/", "=")]
    with pytest.raises(ConfigError) as caught, name_source(typed):
        compose(typed)
    assert caught.value.file == f"conf/{name}.yaml{where}"
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "model" / "x.yaml"
    path.parent.mkdir()
    path.write_bytes(b"# X.\na: \xff\xfe\n")
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(.*model/x\.yaml\)"):
        compose(["model=x"], tmp_path)


def test_the_file_that_was_typed_is_named_before_others_with_the_same_fault(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "model" / f"{name}.yaml").write_text("# @package a b\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"model/b\.yaml:1"):
        compose(["model=b"], tmp_path)


def node(key: str, value: Any) -> Any:
    config = OmegaConf.create({"hydra": {"runtime": {"output_dir": "x"}}, "hidden": value})
    OmegaConf.update(config, f"hydra.{key}", value, force_add=True)
    return config


@pytest.mark.parametrize(
    ("key", "value"),
    [(f"{key.removeprefix('hydra.')}._target_", name) for key, names in SWEEP_PARTS.items() for name in names]
    + [("sweeper.sampler._target_", "optuna.samplers.TPESampler"), ("job.name", "my-job_2")],
)
def test_what_hydra_may_be_asked(key: str, value: Any) -> None:
    check_hydra(node(key, value).hydra, Trust())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("launcher._target_", "os.system"),
        ("launcher._target_", "assay.sweep.search.grid.GridSearch"),
        ("sweeper._target_", "assay.sweep.launcher.local.LocalLauncher"),
        ("sweeper.sampler._target_", "optuna.storages.RDBStorage"),
        ("sweeper.sampler._target_", "optuna.samplers.os.system"),
        ("sweeper.sampler._target_", ["optuna.samplers.TPESampler"]),
        ("callbacks.mine._target_", "my_package.Callback"),
        ("job.env_set.LD_PRELOAD", "x.so"),
        ("job_logging.handlers.file.class", "logging.handlers.SocketHandler"),
        ("hydra_logging.formatters.simple.()", "os.system"),
    ],
)
def test_what_it_may_not_be_asked(key: str, value: Any) -> None:
    hidden = node(key, "${hidden}")
    hidden.hidden = value
    for config in (node(key, value), hidden):
        with pytest.raises(ConfigError) as refused:
            check_hydra(config.hydra, Trust())
        assert f"hydra.{key}".startswith(str(refused.value.key))
        assert refused.value.hint
