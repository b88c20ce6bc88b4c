from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from assay.compose import explain
from assay.compose.compose import compose
from assay.compose.explain import explained, say, show
from assay.compose.origin import origins
from assay.config.tree import walk
from assay.errors import ConfigError
from assay.terminal import Console

if TYPE_CHECKING:
    from pathlib import Path

Told = Callable[..., list[str]]
"""Calls `show` and gives the lines, without the spaces that align them."""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    def run(key: str, *overrides: str) -> list[str]:
        show(key, overrides)
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    return run


def test_value(told: Told) -> None:
    assert told("optimizer.lr", "experiment=digits_image", "optimizer.lr=0.1") == [
        "optimizer.lr = 0.1",
        "set by command line optimizer.lr=0.1",
        "over conf/experiment/digits_image.yaml:15 0.003",
        "over conf/optimizer/adamw.yaml:4 auto",
    ]
    assert told("optimizer.lr")[-1] == "with optimizer=adamw, chosen by conf/train.yaml:7"
    assert told("trainer.devices", "device=ddp")[-1] == "with device=ddp, chosen by command line"


def test_interpolations_raw_and_resolved(told: Told) -> None:
    assert told("data.seed", "seed=7")[0] == "data.seed = ${seed} → 7"
    assert (
        told("model.num_outputs")[0]
        == "model.num_outputs = ${spec.num_outputs} → known once the data is read"
    )
    assert told("name")[0].endswith("→ digits_small_cnn")
    assert (
        told("data.source.root", "data=mnist")[0]
        == "data.source.root = ${oc.env:ASSAY_DATA,datasets} → datasets"
    )
    assert told("run_dir", "hydra.run.dir=x")[0] == "run_dir = ${hydra.run.dir} → x"


def test_what_is_missing_and_what_was_taken_away(told: Told) -> None:
    assert (
        told("data.source.path", "data=table")[0]
        == "data.source.path = ??? must be given: data.source.path=…"
    )
    assert told("optimizer.lr", "~optimizer.lr")[:2] == [
        "optimizer.lr was taken away",
        "set by command line ~optimizer.lr",
    ]


def test_group(told: Told) -> None:
    assert told("loss", "data=diabetes") == [
        "loss = mse",
        "set by conf/data/diabetes.yaml:6 override /loss@_global_.loss: mse",
        "over conf/train.yaml:6 loss: cross_entropy",
        "",
        "loss._target_ torch.nn.MSELoss conf/loss/mse.yaml:2",
    ]
    assert told("param_groups")[-2:] == [
        "param_groups.rules [] conf/param_groups/all.yaml:3",
        "param_groups.layer_decay null conf/param_groups/all.yaml:4",
    ]
    assert "optimizer.betas [0.9, 0.999] conf/optimizer/adamw.yaml:5" in told("optimizer")
    assert told("experiment") == ["experiment = none", "set by conf/train.yaml:22 experiment: null"]
    assert told("data.transform") == told("data/transform")


def test_fragment_of_another_node_says_what_became_of_its_values(told: Told) -> None:
    lines = told("device", "device=ddp", "trainer.devices=2")
    assert "trainer.accelerator gpu conf/device/ddp.yaml:3" in lines
    assert "trainer.devices -1 conf/device/ddp.yaml:4 overridden: trainer.devices=2, command line" in lines


def test_node_shows_each_of_its_keys(told: Told) -> None:
    lines = told("callbacks.checkpoint", "callbacks.checkpoint.mode=force_max")
    assert lines[0] == "callbacks.checkpoint"
    assert "callbacks.checkpoint.mode force_max command line" in lines
    assert "callbacks.checkpoint.monitor val/loss conf/callbacks/checkpoint.yaml:6" in lines


def test_every_key_node_and_group_has_an_answer() -> None:
    config, found = compose(), origins()
    groups = [str(group) for group in config.hydra.runtime.choices if not str(group).startswith("hydra/")]
    for key in [*(entry.key for entry in walk(config)), *groups]:
        console = Console(file=io.StringIO(), width=1000)
        say(console, explained(key, config, found))
        text = console.file.getvalue()
        assert text.startswith(key) or key.replace(".", "/") in groups, key
        assert text.count("\n") > 1 or key.startswith("hydra."), key


@pytest.mark.parametrize("key", ["optimizer.lr=", "optimizer=", "optimizer.", "data/transform="])
def test_what_tab_completion_leaves_behind(key: str, told: Told) -> None:
    assert told(key)[0].startswith(f"{key.rstrip('=.')} = ")


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("optimizer.lrr", "did you mean 'optimizer.lr'?"),
        ("optimzer", "did you mean 'optimizer'?"),
        ("spec.num_classes", "known once the data is read"),
        ("", "no such key"),
        ("[", "no such key"),
    ],
)
def test_unknown(key: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        show(key)
    assert says in caught.value.message


def test_on_a_terminal_in_colour(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def terminal(**options: object) -> Console:
        return Console(force_terminal=True, color_system="standard", **options)  # type: ignore[arg-type]  # its own

    monkeypatch.setattr(explain, "Console", terminal)
    show("optimizer.betas", ["optimizer.betas=[1,2]"])
    text = capsys.readouterr().out
    assert "\x1b[" in text
    assert "[1,2]" in text, "brackets are no markup"


def test_what_follows_from_the_data(told: Told, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{n},{n / 7}\n" for n in range(40)))
    typed = ("data=table", "data.source.path=t.csv", "data.source.target=y")
    assert told("loss", *typed)[:3] == [
        "loss = mse",
        "set by conf/task/regression.yaml:4 override /loss: mse",
        "over conf/train.yaml:6 loss: cross_entropy",
    ]
    assert told("task", *typed)[:2] == [
        "task = regression",
        "set by what has to be predicted task=regression",
    ]
