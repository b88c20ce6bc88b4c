"""The config of a run directory: whole, judged, as it was before it was resolved, and with overrides."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf, open_dict

from assay.compose.compose import compose, job_config
from assay.config.serialize import fingerprint, to_resolved_dict, to_yaml
from assay.data.core.spec import Spec
from assay.errors import AssayError, ConfigError
from assay.files.checksum import seal_yaml
from assay.record.run_record import RunRecord
from assay.run.execute import reattach_loggers
from assay.run.resume import Change, change
from assay.run.saved_config import interpolations, load_checked_config, read_config, restore_interpolations
from assay_explain.listing import list_options

TEXT = "seed: 1\nmodel:\n  _target_: assay.model.mlp.MLP\ntrusted_packages: [os]\nhydra: {job: {name: x}}\n"


def test_it_is_read_without_hydras_node_and_without_its_own_trust(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(seal_yaml(TEXT))
    config = read_config(tmp_path, ["mine"], must_be_whole=True)
    assert config.seed == 1
    assert "hydra" not in config
    assert [*config.trusted_packages] == ["mine"]


def test_one_without_its_sum(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "config.yaml").write_text(TEXT)
    assert read_config(tmp_path).seed == 1
    assert "has no SHA-256 in its last line" in caplog.text
    with pytest.raises(AssayError, match=r"config\.yaml is damaged or was changed"):
        read_config(tmp_path, must_be_whole=True)


def test_a_target_that_is_not_trusted_names_key_and_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(seal_yaml(TEXT.replace("assay.model.mlp.MLP", "elsewhere.Net")))
    with pytest.raises(ConfigError, match=r"model\._target_") as refused:
        read_config(tmp_path)
    assert str(tmp_path / "config.yaml") in str(refused.value)


def test_what_the_data_told_is_never_looked_up(tmp_path: Path) -> None:
    """The name of a class is predicted, exported and drawn."""
    text = f"{TEXT}spec: {{task: multiclass, class_names: ['${{oc.env:HOME}}', b]}}\n"
    (tmp_path / "config.yaml").write_text(seal_yaml(text))
    with pytest.raises(ConfigError, match=r"spec\.class_names.*expected a value, got \$\{oc\.env:HOME\}"):
        read_config(tmp_path)


def test_a_task_of_ones_own_is_imported_only_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab_of_tasks.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "config.yaml").write_text(seal_yaml(f"{TEXT}spec: {{task: lab_of_tasks.Mine}}\n"))
    load_checked_config(tmp_path, ["lab_of_tasks"])
    assert "lab_of_tasks" not in sys.modules
    with pytest.raises(AssayError, match="imported"):
        read_config(tmp_path, ["lab_of_tasks"])


def test_somebody_elses_record_brings_no_calls_and_no_targets() -> None:
    config = OmegaConf.create({"a": 1, "m": {"_target_": "torch.nn.Linear"}})
    theirs = {"a": "${oc.env:HOME}", "m._target_": "${a}", "new": "${a}"}
    assert restore_interpolations(config, theirs, references_only=True) == config


SPEC = {
    **Spec(
        task="multiclass",
        input_shape=(3, 8, 8),
        vocab_size=9,
        num_classes=3,
        class_names=("a", "b", "c"),
        class_counts=(5, 4, 3),
        mean=(0.0,),
        std=(1.0,),
        target_mean=(0.0,),
        target_std=(1.0,),
    ).as_config(),
    **dict.fromkeys(("num_outputs", "steps_per_epoch", "total_steps"), 3),
}
EVERY = [one for one in list_options() if not one.group.startswith(("hydra", "sweep"))]
"""Always tried are those that call a resolver, and a tenth of the others."""
OPTIONS = [
    pytest.param(
        f"{one.group}={one.name}",
        marks=[] if re.search(r"\$\{[\w.]+:", one.path.read_text()) or not number % 10 else pytest.mark.long,
    )
    for number, one in enumerate(EVERY)
]


@pytest.mark.always(
    "data=table", "experiment=digits_image", "finetune=lora", "model=gpt", "scheduler=plateau"
)
@pytest.mark.parametrize("option", OPTIONS)
def test_of_every_option_the_run_directory_tells_the_fingerprint(option: str, tmp_path: Path) -> None:
    """What `resume` and `reproduce` ask of it, once the data has been read and all is resolved."""
    config = job_config(compose([option, "hydra.run.dir=run"]))
    fingerprints, written = fingerprint(config), interpolations(config)
    with open_dict(config):
        config.spec = SPEC
    read: Any = OmegaConf.create(to_yaml(to_resolved_dict(config)))
    assert "${" not in to_yaml(OmegaConf.to_container(read, resolve=False))
    moved = change(tmp_path / "moved", read.copy(), written, [])
    assert not moved.changed
    assert fingerprint(restore_interpolations(moved.config, written)) == fingerprints
    with open_dict(read):
        del read["spec"]
    assert fingerprint(restore_interpolations(read, written)) == fingerprints


@pytest.fixture(scope="module")
def run() -> tuple[DictConfig, dict[str, str]]:
    """The config of a run directory, and what is on record of it."""
    typed = "data=iris model=linear scheduler=onecycle hydra.run.dir=run +mine.lr=1 tags=[${mine.lr}]"
    config = job_config(compose(typed.split()))
    written = interpolations(config)
    with open_dict(config):
        config.spec = SPEC
    read: Any = OmegaConf.create(to_yaml(to_resolved_dict(config)))
    return read, written


def changed(run: tuple[DictConfig, dict[str, str]], *overrides: str) -> Change:
    return change(Path("moved"), run[0].copy(), run[1], overrides)


def test_what_refers_to_a_changed_value_follows_it(run: tuple[DictConfig, dict[str, str]]) -> None:
    rate = run[0].optimizer.lr
    job = changed(run, "optimizer.lr=0.5")
    assert job.config.scheduler.max_lr == 0.5
    assert job.changed == {"optimizer.lr": (rate, 0.5), "scheduler.max_lr": (rate, 0.5)}


def test_what_was_asked_of_the_data_and_is_now_given_is_told(run: tuple[DictConfig, dict[str, str]]) -> None:
    job = changed(run, "scheduler.total_steps=99")
    assert job.changed == {"scheduler.total_steps": (3, 99)}
    assert job.notes == ["scheduler.total_steps: 3 until here, 99 from here on"]


def test_what_the_length_of_the_run_decides_is_told(run: tuple[DictConfig, dict[str, str]]) -> None:
    epochs = run[0].trainer.max_epochs
    job = changed(run, f"trainer.max_epochs={epochs + 1}")
    assert job.changed == {"trainer.max_epochs": (epochs, epochs + 1), "scheduler.total_steps": (3, None)}
    assert "decides scheduler.total_steps (${spec.total_steps})" in job.notes[1]


def record(**fields: Any) -> RunRecord:
    return RunRecord("run", "x", "interrupted", "2026-01-01T00:00:00+00:00", 1, "fingerprint", "", **fields)


def test_a_logger_goes_on_with_the_run_it_knows() -> None:
    config = OmegaConf.create(
        {
            "logger": {
                "mlflow": {"_target_": "lightning.pytorch.loggers.MLFlowLogger"},
                "wandb": {"_target_": "lightning.pytorch.loggers.WandbLogger"},
                "tensorboard": {"_target_": "lightning.pytorch.loggers.TensorBoardLogger"},
            }
        }
    )
    OmegaConf.set_struct(config, True)
    known = {"MLFlowLogger": "0a1b2c", "WandbLogger": "../../else where"}
    reattach_loggers(config, record(loggers=known, resumed=[{"from_step": 7}]))
    assert config.logger.mlflow.run_id == "0a1b2c"
    assert "id" not in config.logger.wandb  # a record could say anything; an id is a short word
    assert config.logger.tensorboard.purge_step == 8
