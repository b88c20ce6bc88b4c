from __future__ import annotations

import importlib.metadata
import platform
from types import SimpleNamespace

import pytest

from assay.report import info


def test_versions_are_those_installed() -> None:
    versions = info.machine()["versions"]
    assert versions["python"] == platform.python_version()
    assert versions["torch"] == importlib.metadata.version("torch")
    assert versions["assay"] == importlib.metadata.version("assay")


@pytest.mark.parametrize(("count", "told"), [(1, "1 CUDA GPU"), (4, "3 more stay idle: device=ddp")])
def test_with_cuda(count: int, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    card = SimpleNamespace(name="H200", total_memory=141 * 2**30, major=9, minor=0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: card.name)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: card)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda: True)
    assert info.auto_choice()["chooses"] == "cuda:0 (H200)"
    assert told in info.auto_choice()["why"]
    gpus = info.machine()["gpu"]
    assert [name for name in gpus if name.startswith("cuda:")] == [f"cuda:{index}" for index in range(count)]
    assert gpus["cuda:0"] == "H200, 141 GiB, compute capability 9.0"


def test_auto_is_what_lightning_takes() -> None:
    import lightning as L

    trainer = L.Trainer(accelerator="auto", devices=1, logger=False, enable_checkpointing=False)
    assert info.auto_choice()["chooses"].partition(":")[0] == trainer.strategy.root_device.type
