"""A NaN stops the run in its step: what the message says, what is saved, what a batch left out leaves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, final

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn
from torch.utils.data import Dataset

from assay.callbacks.non_finite import NonFinite, non_finite_rows, non_finite_weights, note_non_finite
from assay.errors import AssayError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train


DIGITS = (
    *("data=digits", "model=mlp", "model.hidden=[16,16]", "optimizer=sgd", "trainer.max_epochs=2"),
    "data.batch_size=64",
)
ON = "callbacks=[last_checkpoint,non_finite]"
EVERY = ("callbacks.last_checkpoint.every_n_train_steps=1",)


@final
class Spoil(Callback):
    """Makes one batch, one gradient or one weight NaN."""

    def __init__(self, what: str, batch: int, value: float = math.nan) -> None:
        self.what, self.batch, self.value, self.seen = what, batch, value, 0

    def on_train_batch_start(self, _: Any, pl_module: Any, batch: tuple[Tensor, Tensor], *__: Any) -> None:
        self.seen += 1
        if self.seen - 1 != self.batch:
            return
        if self.what == "input":
            batch[0][5] = self.value
        elif self.what == "gradient":
            part = pl_module.model.get_submodule("layers.3")
            part.weight.register_hook(lambda grad: grad * self.value)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        weight = pl_module.get_parameter("model.layers.1.weight") if self.what == "weight" else None

        @torch.no_grad()
        def after_step(*_: object) -> None:
            if weight is not None and self.seen - 1 == self.batch:
                weight[0, 0] = self.value

        for optimizer in trainer.optimizers:
            optimizer.register_step_post_hook(after_step)


def failure(train: Train, spoil: Spoil, *overrides: str) -> Any:
    run = train(*DIGITS, ON, *EVERY, *overrides, callbacks=[spoil], keep_weights=True, raise_errors=False)
    assert (run.result.status, run.result.exit_code) == ("failed", 1)
    saved = run.checkpoint("last")
    assert all(bool(value.isfinite().all()) for value in saved["state_dict"].values())
    return run


def test_a_spoilt_sample_is_named(train: Train) -> None:
    run = failure(train, Spoil("input", 23, math.inf))
    reason = run.record["reason"]
    samples = run.trainer.train_dataloader.samples(1, 4)
    assert "the loss became" in reason
    assert f"batch 23 (epoch 2, batch 5 of it), sample {samples[5]};" in reason
    assert "the inputs are already not finite" in reason
    text = (run.run_dir / "log.txt").read_text()
    assert "holds the samples " + " ".join(str(int(one)) for one in samples) in text
    assert run.checkpoint("last")["global_step"] == len(run.watch.weights) == 23, "the step was not taken"


def test_a_gradient_is_named_before_the_weights_take_it_in(train: Train) -> None:
    run = failure(train, Spoil("gradient", 4), "trainer.accumulate_grad_batches=3")
    assert "the gradient of model.layers.3.weight is not finite in batch" in run.record["reason"]
    assert run.moved()


def test_weights_that_are_not_finite_are_not_saved(train: Train) -> None:
    run = failure(train, Spoil("weight", 3))
    assert "the weights are no longer finite: model.layers.1.weight" in run.record["reason"]
    assert run.checkpoint("last")["global_step"] == 3


@pytest.mark.parametrize(
    ("device", "precision"),
    [("cpu", "fp32"), *(pytest.param("gpu", one, marks=pytest.mark.gpu) for one in ("fp32", "fp16"))],
)
def test_looking_at_several_steps_together(train: Train, device: str, precision: str) -> None:
    spoil = Spoil("input", 9)
    run = train(
        *(
            *DIGITS,
            f"device={device}",
            f"precision={precision}",
            "callbacks=[non_finite]",
            "callbacks.non_finite.every_n_steps=4",
        ),
        callbacks=[spoil],
        raise_errors=False,
    )
    assert "batch 9 (epoch 1, batch 10 of it)" in run.record["reason"]
    assert spoil.seen == 12, "found at the end of the four"


def test_no_checkpoint_is_saved_before_all_steps_are_looked_at(train: Train) -> None:
    run = failure(train, Spoil("input", 5), "callbacks.non_finite.every_n_steps=16")
    assert run.checkpoint("last")["global_step"] == 5


def test_a_validation_loss_that_is_not_finite(train: Train) -> None:
    @final
    class Break(Callback):
        def on_validation_batch_start(self, _: Any, __: Any, batch: Any, *___: Any) -> None:
            batch[0].mul_(math.nan)

    run = train(*DIGITS, "callbacks=[checkpoint,non_finite]", callbacks=[Break()], raise_errors=False)
    assert run.record["reason"].startswith("val/loss became nan in epoch 1")
    assert not (run.run_dir / "checkpoints" / "best.ckpt").exists()


@final
class Rows(Dataset[Any]):
    """Samples of which one has a number that is not finite."""

    def __init__(self, seed: int, spoilt: int = -1, where: str = "inputs", value: float = math.nan) -> None:
        self.inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(seed))
        self.values = self.inputs.sum(1, keepdim=True)
        (self.inputs if where == "inputs" else self.values)[spoilt] = value if spoilt >= 0 else 0.0

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.values[index]


BAD_TRAIN = "+data.source.dataset.spoilt=7"
RAW = "data.transform.normalize=null"
BAD_TARGETS = "+data.source.dataset.where=targets"


@pytest.mark.parametrize(
    ("val", "options", "message"),
    [
        (
            ", spoilt: 50",
            (),
            r"val/loss became nan in epoch 1: the validation data holds .*, first in sample 50\n",
        ),
        (", spoilt: 50, value: inf", (), "the validation data holds NaN or infinity, first in sample 50\n"),
        (", spoilt: 7, where: targets", (), "the targets of the val subset hold NaN or .* in sample 7\n"),
        (
            "",
            (BAD_TRAIN, BAD_TARGETS),
            "the targets of the train subset hold NaN or infinity, first in sample 7\n",
        ),
        ("", (BAD_TRAIN,), "the inputs of the train subset hold NaN or infinity, first in sample 7\n"),
        ("", (BAD_TRAIN, RAW), r"the loss became nan in batch \d .*, sample 7; the inputs are already"),
        (
            "",
            (BAD_TRAIN, RAW, "callbacks.non_finite.every_n_steps=9"),
            r"became nan in batch \d .*, sample 7; the",
        ),
    ],
)
def test_data_that_is_not_finite_is_named(
    train: Train, val: str, options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(AssayError, match=message) as caught:
        train(
            *("data=custom", "data.source.task=regression", "model=mlp", "trusted_packages=[tests]"),
            *(f"data.source.dataset._target_={__name__}.Rows", "+data.source.dataset.seed=0"),
            f"data.source.val_dataset={{_target_: {__name__}.Rows, seed: 1{val}}}",
            *(
                "data.batch_size=16",
                "data.num_workers=0",
                "data.split.test=0",
                "callbacks=[non_finite]",
                *options,
            ),
        )
    assert caught.value.hint == "leave such samples out, or fill in what is missing"


def test_a_score_that_validation_leaves_undefined_stops_no_run(train: Train, tmp_path: Path) -> None:
    rows = [f"{row % 7},{'no' if row % 2 else 'yes'},train" for row in range(40)]
    rows += [f"{row},no,val" for row in range(4)] + ["1,yes,test", "2,no,test"]
    (tmp_path / "one.csv").write_text("\n".join(["a,y,part", *rows]))
    source = (f"data.source.path={tmp_path}/one.csv", "data.source.target=y", "data.split.column=part")
    run = train("data=table", *source, "trainer.max_epochs=1", "callbacks=[checkpoint,non_finite]")
    assert math.isnan(run.result.metrics["val/auroc"])


def test_a_monitored_score_that_is_undefined_is_not_blamed_on_the_learning_rate(train: Train) -> None:
    @final
    class Watch(Callback):
        monitor = "val/correlation"

        def on_validation_epoch_end(self, _: Any, pl_module: Any) -> None:
            pl_module.log(self.monitor, math.nan)

    run = train(*DIGITS, "callbacks=[non_finite]", callbacks=[Watch()], raise_errors=False)
    assert run.record["reason"].startswith(
        "val/correlation became nan in epoch 1, but val/loss is finite: val/correlation is undefined"
    )
    assert "optimizer.lr" not in (run.run_dir / "log.txt").read_text(encoding="utf-8").partition("nan")[2]


@pytest.mark.parametrize("kind", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_fp16_leaves_steps_with_infinite_gradients_to_its_scaler(kind: str) -> None:
    import lightning as L

    class Small(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model: Any = nn.Linear(2, 1)

        def training_step(self, batch: Tensor, *_: Any) -> Any:
            return self.model(batch).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = NonFinite(every_n_steps=1)
    trainer = L.Trainer(
        accelerator=kind, devices=1, logger=False, enable_checkpointing=False, callbacks=[callback]
    )
    module: Any = Small().to(kind)
    callback.on_train_start(trainer, module)
    module.model.weight.grad = torch.full((1, 2), math.inf, device=kind)
    optimizer = module.configure_optimizers()
    with pytest.raises(AssayError, match=r"gradient of model\.weight"):
        callback.on_before_optimizer_step(trainer, module, optimizer)
    trainer.precision_plugin.scaler = torch.amp.GradScaler(kind)  # type: ignore[attr-defined]  # as MixedPrecision has
    callback.on_train_start(trainer, module)
    callback.on_before_optimizer_step(trainer, module, optimizer)


def mark(tensors: list[torch.Tensor]) -> float:
    found = torch.zeros(())
    note_non_finite(tensors, found, torch.ones(()))
    return found.item()


def test_the_row_of_an_infinite_number_and_weights_that_are_only_large() -> None:
    batch = {"x": torch.ones(4, 2), "y": torch.ones(4, dtype=torch.long)}
    batch["x"][2, 1] = math.inf
    assert non_finite_rows(batch) == [2]
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, 3e38)
    assert non_finite_weights(model) == [], "large is not infinite"


def test_sparse_complex_and_empty_gradients() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 1, 3])).sum().backward()
    assert table.weight.grad is not None
    well = [table.weight.grad, torch.zeros(0), torch.complex(torch.ones(2), torch.ones(2))]
    assert mark(well) == 0
    assert mark([]) == 0
    table.weight.grad._values()[0] = math.nan
    assert mark([table.weight.grad]) == 1
    assert mark([*well, torch.tensor([1.0, -math.inf])]) == 1
    assert mark([torch.complex(torch.ones(2), torch.tensor([1.0, math.inf]))]) == 1
