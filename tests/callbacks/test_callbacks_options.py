"""The YAMLs, composed by Hydra and used by Lightning."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from lightning.pytorch import callbacks as stock
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from typing_extensions import override

from assay.callbacks.batch_norm import BatchNormStatistics
from assay.callbacks.deferred_reweighting import DeferredReweighting
from assay.callbacks.ema import EMA
from assay.callbacks.lr_monitor import LRMonitor
from assay.callbacks.non_finite import NonFinite
from assay.callbacks.progress_bar import ProgressBar
from assay.callbacks.swa import SWA

if TYPE_CHECKING:
    from collections.abc import Iterator

# Lightning flattens its loaders with a class that torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec:FutureWarning")

CONF = Path(__file__).parents[2] / "conf"
CLASSES = {
    "batch_norm": BatchNormStatistics,
    "checkpoint": stock.ModelCheckpoint,
    "last_checkpoint": stock.ModelCheckpoint,
    "early_stopping": stock.EarlyStopping,
    "lr_monitor": LRMonitor,
    "device_stats": stock.DeviceStatsMonitor,
    "ema": EMA,
    "swa": SWA,
    "model_summary": stock.RichModelSummary,
    "non_finite": NonFinite,
    "progress_bar": ProgressBar,
    "drw": DeferredReweighting,
}


def options(names: str, run_dir: object = "/run", *overrides: str) -> dict[str, Any]:
    given = [f"+run_dir={run_dir}", "+optimizer.lr=0.1", "+spec.class_counts=[9,1]", f"+callbacks={names}"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(overrides=[*given, *overrides])
    for node in config.callbacks.values():
        if node.get("mode") == "auto":  # as assay.build.monitor_mode has it, of a loss
            node.mode = "min"
    return {name: instantiate(node) for name, node in config.callbacks.items()}


class Batches:
    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(4):
            inputs = torch.randn(8, 3, generator=generator)
            yield inputs, inputs.sum(1, keepdim=True)


class Regressor(L.LightningModule):
    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = nn.Linear(3, 1)
        self.lr = lr
        self.trajectory: list[Tensor] = []
        self.validated_with: list[Tensor] = []

    @override
    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return nn.functional.mse_loss(self.model(batch[0]), batch[1])

    def on_train_batch_end(self, *_: Any) -> None:
        self.trajectory.append(self.flat())

    @override
    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        if batch_idx == 0:
            self.validated_with.append(self.flat())
        self.log("val/loss", nn.functional.mse_loss(self.model(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.lr)

    def flat(self) -> Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.parameters()])


def fit(callbacks: dict[str, L.Callback], tmp_path: Path, lr: float = 0.1, **settings: Any) -> Regressor:
    module = Regressor(lr)
    trainer = L.Trainer(
        accelerator="cpu",
        callbacks=list(callbacks.values()),
        enable_checkpointing="checkpoint" in callbacks,
        enable_progress_bar="progress_bar" in callbacks,
        enable_model_summary="model_summary" in callbacks,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
        logger=CSVLogger(tmp_path),
        **settings,
    )
    trainer.fit(module, Batches(0), Batches(1))
    return module


@pytest.mark.parametrize("path", sorted((CONF / "callbacks").glob("*.yaml")), ids=lambda path: path.stem)
def test_each_is_described_and_composes_under_its_own_name(path: Path) -> None:
    # Hydra reads `@package` only above any other comment.
    lines = path.read_text(encoding="utf-8").splitlines()
    description = lines[0] if path.stem == "default" else lines[1]
    assert description.startswith("# ")
    assert len(description) > 20
    if path.stem != "default":
        assert lines[0] == f"# @package callbacks.{path.stem}"
        assert {name: type(callback) for name, callback in options(path.stem).items()} == {
            path.stem: CLASSES[path.stem]
        }


def test_lists_of_options_add_up() -> None:
    default = ["checkpoint", "batch_norm", "last_checkpoint", "lr_monitor", "non_finite", "progress_bar"]
    assert list(options("default")) == default
    assert list(options("[default,ema,drw]")) == [*default, "ema", "drw"]
    assert list(options("[early_stopping,checkpoint]")) == ["early_stopping", "checkpoint"]


def test_checkpoint_keeps_the_best_and_the_last_in_the_run_directory(tmp_path: Path) -> None:
    callbacks = options("default", tmp_path)
    module = fit(callbacks, tmp_path, max_epochs=3)
    folder = tmp_path / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["best.ckpt", "last.ckpt"]
    last = torch.load(folder / "last.ckpt", weights_only=True)
    assert last["global_step"] == 12
    assert torch.equal(last["state_dict"]["model.weight"], module.model.weight.detach())
    assert Path(callbacks["checkpoint"].best_model_path) == folder / "best.ckpt"


def test_checkpoint_best_is_the_one_with_the_least_validation_loss(tmp_path: Path) -> None:
    # With this lr each epoch is worse than the one before.
    fit(options("[checkpoint,last_checkpoint]", tmp_path), tmp_path, lr=3.0, max_epochs=3)
    best = torch.load(tmp_path / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["global_step"] == 4
    last = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 12


def test_early_stopping_stops(tmp_path: Path) -> None:
    callbacks = options("early_stopping", tmp_path, "callbacks.early_stopping.patience=2")
    module = fit(callbacks, tmp_path, lr=3.0, max_epochs=20)
    assert module.trainer.current_epoch == 3


def test_ema_is_what_validates_and_what_remains(tmp_path: Path) -> None:
    callbacks = options(
        "[default,ema]", tmp_path, "callbacks.ema.decay=0.7", "callbacks.ema.warmup_fraction=null"
    )
    module = fit(callbacks, tmp_path, max_epochs=2)
    averages = [module.trajectory[0]]
    for weights in module.trajectory[1:]:
        averages.append(0.7 * averages[-1] + 0.3 * weights)
    torch.testing.assert_close(module.validated_with, [averages[3], averages[7]])
    torch.testing.assert_close(module.flat(), averages[7])
    last = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)

    def flat(state: dict[str, Tensor]) -> Tensor:
        return torch.cat([state["model.weight"].flatten(), state["model.bias"]])

    torch.testing.assert_close(flat(last["state_dict"]), averages[7])
    torch.testing.assert_close(flat(last["current_model_state"]), module.trajectory[7])


def test_device_stats_and_learning_rates_are_logged(tmp_path: Path) -> None:
    fit(options("[lr_monitor,device_stats]", tmp_path), tmp_path, max_epochs=1)
    (table,) = tmp_path.glob("lightning_logs/*/metrics.csv")
    header = table.read_text(encoding="utf-8").splitlines()[0]
    assert "lr-SGD" in header
    assert "DeviceStatsMonitor.on_train_batch_end" in header
