"""A model and data given to `assay.train` as objects train as configs of the same do, and say so."""

from __future__ import annotations

import json
from contextlib import chdir
from typing import TYPE_CHECKING, Any

import lightning as L
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_wine  # type: ignore[import-untyped]  # ships no types
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from typer.testing import CliRunner
from typing_extensions import override

import assay
from assay.cli.app import app
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from assay.run.result import RunResult

QUICK = ("device=cpu", "trainer.max_epochs=2", "callbacks.progress_bar=null", "callbacks.lr_monitor=null")
INPUTS: NDArray[np.float32]
INPUTS, TARGETS = load_wine(return_X_y=True)
INPUTS = INPUTS.astype(np.float32)


def frame() -> pd.DataFrame:
    named = pd.DataFrame(INPUTS.astype(float), columns=[f"x{at}" for at in range(13)])
    named["sort"] = np.array(["red", "white", "rose"])[TARGETS]
    named.loc[3, "x2"] = np.nan
    return named.set_index(pd.Index(range(1000, 1000 + len(named)), name=None))


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(13, 8), nn.ReLU(), nn.Linear(8, 3))


class Wine(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return len(TARGETS)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.from_numpy(INPUTS[index]), int(TARGETS[index])


class Endless(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        while True:
            yield torch.zeros(3)


class Loaders(L.LightningDataModule):
    @override
    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(Wine(), batch_size=16, shuffle=True)

    @override
    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(Wine(), batch_size=64)


class Classifier(L.LightningModule):
    def __init__(self, lr: float = 0.01) -> None:
        super().__init__()
        self.lr, self.network = lr, network()

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.network(inputs)
        return outputs

    @override
    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        return F.cross_entropy(self(batch[0]), batch[1])

    @override
    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        self.log("val/loss", F.cross_entropy(self(batch[0]), batch[1]))

    @override
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class LogsOtherNames(Classifier):
    @override
    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        self.log_dict({"val_loss": F.cross_entropy(self(batch[0]), batch[1]), "val_acc": 0.5})


def trained(folder: Path, *overrides: str, **objects: Any) -> RunResult:
    with chdir(folder):
        return assay.train([*QUICK, f"hydra.run.dir={folder / 'run'}", *overrides], **objects)


def weights_of(result: RunResult, name: str) -> dict[str, Tensor]:
    path = result.run_dir / "checkpoints" / name
    state: dict[str, Tensor] = torch.load(path, weights_only=True, map_location="cpu")["state_dict"]
    return state


def record_of(result: RunResult) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((result.run_dir / "record.json").read_text(encoding="utf-8"))
    return record


def test_a_frame_trains_as_its_file_does(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    frame().to_parquet(tmp_path / "wine.parquet")
    path = f"data.source.path={tmp_path / 'wine.parquet'}"
    of_file = trained(tmp_path / "file", "data=table", path, "data.source.target=sort", "model=linear")
    given, before = frame(), frame()
    result = trained(tmp_path, "data.source.target=sort", "model=linear", data=given)
    pd.testing.assert_frame_equal(given, before)
    assert result.metrics == of_file.metrics
    assert record_of(result)["weights_sha256"] == record_of(of_file)["weights_sha256"]
    assert record_of(result)["data_sha256"] == record_of(of_file)["data_sha256"]
    assert record_of(result)["objects"] == {"data": f"{pd.DataFrame.__module__}.DataFrame"}
    assert record_of(of_file)["objects"] == {}
    assert any("x2 (1, median)" in note for note in result.notes), result.notes
    rows = frame().drop(columns="sort").iloc[[0, 70, 170]]
    predicted = assay.load(of_file.run_dir, map_location="cpu")(rows).probabilities
    np.testing.assert_array_equal(result.predictor.to("cpu")(rows).probabilities, predicted)


def test_a_network_over_tensors_against_torch_alone(tmp_path: Path) -> None:
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = trained(
        tmp_path, model=model, data=TensorDataset(torch.from_numpy(INPUTS), torch.from_numpy(TARGETS))
    )
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items()), (
        "a copy trains"
    )
    assert record_of(result)["objects"] == {
        "model": "torch.nn.modules.container.Sequential",
        "data": "torch.utils.data.dataset.TensorDataset",
    }
    best = {
        name.removeprefix("model."): value
        for name, value in weights_of(result, "best.ckpt").items()
        if name.startswith("model.")
    }
    assert not torch.equal(best["0.weight"], before["0.weight"])
    by_hand = network()
    by_hand.load_state_dict(best)
    assert result.module is not None
    assert result.trainer is not None
    data: Any = result.trainer.datamodule  # type: ignore[attr-defined]  # a plain attribute
    train = torch.from_numpy(INPUTS[data.splits.rows["train"]])
    std, mean = torch.std_mean(train, 0, correction=0)
    with torch.no_grad():
        expected = by_hand((torch.from_numpy(INPUTS) - mean) / std).softmax(1)
    for predictor in (result.predictor, assay.load(result.run_dir, model=network())):
        found = torch.as_tensor(predictor.to("cpu")(INPUTS).probabilities)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    rows = data.splits.rows["test"]
    assert float((expected[rows].argmax(1).numpy() == TARGETS[rows]).mean()) == pytest.approx(
        result.metrics["test/accuracy"]
    )
    assert result.parameters == sum(value.numel() for value in before.values())
    for name, value in result.module.state_dict().items():
        assert torch.equal(value, weights_of(result, "best.ckpt")[name])


def test_a_lightning_module_and_data_module(tmp_path: Path) -> None:
    """There is no test: its module has the best checkpoint's weights nevertheless."""
    monitored = ("callbacks.checkpoint.monitor=val/loss", "callbacks.checkpoint.mode=force_max")
    result = trained(tmp_path, *monitored, model=Classifier(lr=0.01), data=Loaders())
    assert isinstance(result.module, Classifier)
    assert result.best["epoch"] == 1
    weights, last = weights_of(result, "best.ckpt"), weights_of(result, "last.ckpt")
    assert not torch.equal(weights["network.0.weight"], last["network.0.weight"])
    for module in (result.module, assay.load(result.run_dir, model=Classifier(), raw_input=False)):
        assert all(torch.equal(value.cpu(), weights[name]) for name, value in module.state_dict().items())


REFUSED = {
    "model": ("resume", "reproduce", "eval", "predict", "export"),
    "data": ("resume", "reproduce", "eval"),
}


@pytest.mark.parametrize("argument", ["model", "data"])
def test_what_would_have_to_make_it_again_says_why_not(tmp_path: Path, argument: str) -> None:
    data = ("data=wine",) if argument == "model" else ("data.source.target=sort", "model=linear")
    result = trained(tmp_path, *data, **{argument: network() if argument == "model" else frame()})
    run = result.run_dir
    rows = tmp_path / "rows.csv"
    frame().drop(columns="sort").head(2).to_csv(rows, index=False)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    words = {"resume": ["trainer.max_epochs=3"], "predict": [str(rows)]}
    with chdir(tmp_path):
        for verb in REFUSED[argument]:
            done = CliRunner().invoke(app, [verb, str(run), *words.get(verb, []), "--json"])
            error = json.loads(done.stdout)["error"]
            assert done.exit_code, verb
            assert f"assay.train({argument}=…)" in error["message"], (verb, error)
            assert error["key"].startswith(argument), (verb, error)
            assert error["hint"], verb
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
        if argument == "data":
            done = CliRunner().invoke(app, ["predict", str(run), str(rows), "--json"])
            assert len(json.loads(done.stdout)["rows"]) == 2
            frame().to_csv(tmp_path / "all.csv", index=False)
            again = [f"data.source.path={tmp_path / 'all.csv'}", "--json"]
            done = CliRunner().invoke(app, ["eval", str(run), *again])
            found = json.loads(done.stdout)
            assert found["metrics"]["test/accuracy"] == pytest.approx(result.metrics["test/accuracy"]), found
        done = CliRunner().invoke(app, ["report", str(run), "--json"])
        assert done.exit_code == 0, done.stderr


def test_what_is_given_twice_or_is_something_else(tmp_path: Path) -> None:
    for overrides, objects, message in (
        (("model=mlp",), {"model": network()}, "model: given twice"),
        (("model.hidden=[3]",), {"model": network()}, "model.hidden"),
        (("data=wine",), {"data": Loaders()}, "data: given twice"),
        (
            ("data.source.path=x.csv", "data.source.target=sort"),
            {"data": frame()},
            "data.source.path: given twice",
        ),
        ((), {"model": nn.Sequential}, "model takes a torch.nn.Module"),
        ((), {"data": INPUTS}, "data takes a pandas DataFrame"),
        ((), {"data": frame()}, "data.source.target"),
        (("data=wine",), {"model": nn.Linear(5, 3)}, "model"),
        ((), {"data": Endless()}, "data.source: Endless lacks __len__ or __getitem__"),
        (("data=wine", "device=ddp_cpu", "trainer.devices=2"), {"model": network()}, "2 processes"),
    ):
        with pytest.raises(ConfigError) as caught:
            trained(tmp_path, *overrides, **objects)
        assert message in str(caught.value)
        if message == "model":
            assert caught.value.file == "command line", "not the data's option, which chooses a model"
        if "Endless" in message:
            assert caught.value.file.startswith("conf/data/custom.yaml:")
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("more", [[], ["callbacks=[default,early_stopping]"]])
def test_a_monitor_that_the_module_does_not_log_names_what_it_logs(tmp_path: Path, more: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        trained(tmp_path, "data=wine", *more, model=LogsOtherNames())
    assert caught.value.key == "callbacks.checkpoint.monitor"
    assert "the module has not logged val/loss; it logged val_acc, val_loss" in caught.value.message
    (tmp_path / "again").mkdir()
    result = trained(tmp_path / "again", "data=wine", *more, caught.value.hint, model=LogsOtherNames())
    assert result.status == "finished"
