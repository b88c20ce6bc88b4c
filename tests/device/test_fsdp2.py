"""Training in shards: several processes come to what one comes to, and a run goes on as it would have."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from tests.forks import Forks
from tests.interrupting import STATE, digest, outcome

import assay
from assay.checkpoint.checkpoint_file import CheckpointFile, weights_sha256
from assay.run.predictor import read_weights
from assay_serve.evaluate import evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parents[1] / "training" / "project"
JOB = (
    *("data=digits", "data.drop_last=true", "trainer.max_epochs=1", "trainer.limit_train_batches=4"),
    *("trainer.limit_val_batches=2", "trainer.limit_test_batches=2", "trainer.val_check_interval=1.0"),
    *("callbacks=[]", "optimizer=sgd", "optimizer.lr=0.1", "scheduler=none", "baseline=none"),
    *("hydra.run.dir=run", "trusted_packages=[own_project]"),
)
TEXT = (
    *("data=text_files", "data.source.root=../texts", "data.source.context_length=16", "model=gpt"),
    *("model.embedding_size=16", "model.num_layers=2", "model.num_heads=2"),
)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    paths = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
    with Forks(PYTHONPATH=paths, GLOO_SOCKET_IFNAME=os.environ.get("GLOO_SOCKET_IFNAME", "lo")) as warm:
        yield warm


def train(
    forks: Forks,
    place: Path,
    ranks: int,
    *words: str,
    device: tuple[str, ...] = (),
    samples: int = 16,
    ends_well: bool = True,
) -> Path:
    """The run of a job with so many samples in a step, in so many processes; 0: without shards."""
    place.mkdir(exist_ok=True)
    texts = place.parent / "texts"
    texts.mkdir(exist_ok=True)
    for number in range(20):
        (texts / f"{number}.txt").write_text(
            f"the {number} of {number * number} is a number, and so on. " * 20
        )
    shards = ("device=fsdp2", "trainer.accelerator=cpu", f"trainer.devices={ranks}")
    device = device or (shards if ranks else ("device=cpu",))
    job = (*JOB, *device, f"data.batch_size={samples // max(1, ranks)}", *words)
    conf = ("--config-dir", str(PROJECT / "conf"))
    ended = forks.command("train", *conf, *job, cwd=place, forked_children=ranks if ranks > 1 else 0)
    said = (place / "output.txt").read_text()
    assert (ended.code == 0) == ends_well, said
    assert not ends_well or "Traceback" not in said
    return place / "run"


def weights(run: Path) -> dict[str, torch.Tensor]:
    return read_weights(run / "checkpoints" / "last.ckpt")


def assert_equal(one: Path, other: Path, within: float = 1e-6) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert (second[name] - value).abs().max() <= within, name


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "words",
    [
        ("model=mlp", "trainer.gradient_clip_val=0.1"),
        pytest.param(("model=mlp", "optimizer=adamw", "optimizer.lr=0.001"), marks=pytest.mark.long),
        pytest.param(("model=mlp", "trainer.accumulate_grad_batches=2"), marks=pytest.mark.long),
        pytest.param(TEXT, marks=pytest.mark.long),
        pytest.param((*TEXT, "trainer.strategy.activation_checkpointing=true"), marks=pytest.mark.long),
    ],
)
def test_equals_one_process(forks: Forks, tmp_path: Path, words: tuple[str, ...], ranks: int) -> None:
    plain = [word for word in words if "strategy" not in word]
    assert_equal(train(forks, tmp_path / "one", 0, *plain), train(forks, tmp_path / "shards", ranks, *words))


@pytest.mark.long
def test_batch_norm_equals_that_of_ddp(forks: Forks, tmp_path: Path) -> None:
    words = ("model=small_cnn", "trainer.channels_last=true")
    ddp = train(forks, tmp_path / "ddp", 2, *words, device=("device=ddp_cpu",))
    # Sums of convolutions are rounded differently, and the running statistics take them up.
    assert_equal(ddp, train(forks, tmp_path / "shards", 2, *words), within=5e-5)


def whole_outcome(run: Path) -> dict[str, str]:
    """As `outcome`, with the tensors that are in shards."""
    loaded = CheckpointFile().load_checkpoint(run / "checkpoints" / "last.ckpt")
    return {**outcome(run), **{name: digest(loaded[name]) for name in STATE if name in loaded}}


LONG = (
    *("model=mlp", "optimizer=adamw", "trainer.limit_train_batches=6", "trainer.max_epochs=2"),
    *("trainer.accumulate_grad_batches=2", "trainer.val_check_interval=3", "model.dropout=0.1"),
    *("callbacks=[dying]", "callbacks.last_checkpoint.every_n_train_steps=1", "optimizer.lr=0.01"),
)


@pytest.mark.parametrize("batch", [3, pytest.param(8, marks=pytest.mark.long)])
def test_goes_on_as_if_it_had_not_been_killed(forks: Forks, tmp_path: Path, batch: int) -> None:
    whole = whole_outcome(train(forks, tmp_path / "whole", 2, *LONG))
    run = train(forks, tmp_path / "killed", 2, *LONG, f"callbacks.dying.batch={batch}", ends_well=False)
    resume(forks, run)
    assert whole_outcome(run) == whole


def resume(forks: Forks, run: Path, *words: str, ranks: int = 2) -> str:
    words = ("resume", "run", "callbacks.dying.batch=null", "trusted_packages=[own_project]", *words)
    ended = forks.command(*words, cwd=run.parent, forked_children=ranks if ranks > 1 else 0)
    said = (run.parent / "output.txt").read_text()
    assert ended.code == 0, said
    return said


ANY_NUMBER = (*LONG, "data.batch_size=auto", "data.global_batch_size=16", "optimizer.lr=0.001")


@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [(2, 1), (4, 2), (2, 4)])
def test_goes_on_in_another_number_of_processes(
    forks: Forks, tmp_path: Path, before: int, after: int
) -> None:
    """In the middle of an epoch and of an optimizer step; the values are the same, their sums are rounded."""
    words = (*ANY_NUMBER, "model.dropout=0")
    whole = train(forks, tmp_path / "whole", before, *words)
    run = train(forks, tmp_path / "killed", before, *words, "callbacks.dying.batch=9", ends_well=False)
    resume(forks, run, f"trainer.devices={after}", ranks=after)
    notes = json.loads((run / "record.json").read_bytes())["resumed"][-1]["notes"]
    assert f"{before} processes until here, {after} from here on" in "\n".join(notes)
    assert_equal(whole, run)


@pytest.mark.long
def test_every_verb_takes_it_on_one_machine(forks: Forks, tmp_path: Path) -> None:
    run = train(forks, tmp_path / "run", 2, "model=mlp", "trainer.limit_test_batches=1.0")
    record = json.loads((run / "record.json").read_bytes())
    assert record["weights_sha256"] == weights_sha256(weights(run))
    scores = evaluate(run, ["device=cpu"]).metrics
    assert scores == pytest.approx({name: record["metrics"][name] for name in scores}, abs=1e-6)
    predictor = assay.load(run)
    assert predictor(torch.zeros(1, 8, 8)).label in [str(digit) for digit in range(10)]
    for words in (("export", "run", "--format", "safetensors"), ("reproduce", "run")):
        ended = forks.command(*words, cwd=run.parent, forked_children=0)
        assert ended.code == 0, (run.parent / "output.txt").read_text()
    assert (
        "identical: 4 rows of metrics.csv, all scores and the weights"
        in (run.parent / "output.txt").read_text()
    )


@pytest.mark.long
@pytest.mark.parametrize("model", [("model=small_cnn",), TEXT])
def test_bfloat16_is_near_that_of_one_process(forks: Forks, tmp_path: Path, model: tuple[str, ...]) -> None:
    runs = [train(forks, tmp_path / str(ranks), ranks, *model, "precision=bf16") for ranks in (0, 2)]
    losses = [json.loads((run / "record.json").read_bytes())["metrics"]["val/loss"] for run in runs]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    assert {value.dtype for value in weights(runs[1]).values() if value.is_floating_point()} == {
        torch.float32
    }
