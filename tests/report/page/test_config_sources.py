from __future__ import annotations

import msgspec

from assay.record.run_record import RunRecord
from assay.report.run_parts import config_sources

RECORD = RunRecord(
    "a",
    "a",
    "finished",
    "2026-01-01T00:00:00+00:00",
    0,
    "f",
    "c",
    overrides=[
        "optimizer=sgd",
        "optimizer.lr=0.1",
        "device=cpu",
        "+model.extra={a: 1}",
        "data/transform=crop",
    ],
    choices={
        "optimizer": "sgd",
        "model": "mlp",
        "device": "cpu",
        "trainer": "default",
        "data": "digits",
        "data/transform": "crop",
        "callbacks": ["default", "ema"],
    },
    interpolations={"model.num_outputs": "${spec.num_outputs}"},
)


def test_typed_follows_option_default() -> None:
    keys = (
        *("optimizer.lr", "optimizer.momentum", "model.hidden", "model.num_outputs", "model.extra.a"),
        *("trainer.max_epochs", "data.transform.size", "data.batch_size", "spec.num_classes", "name"),
        "callbacks.ema.decay",
    )
    assert [row[2:] for row in config_sources(dict.fromkeys(keys, "1"), RECORD)] == [
        ("optimizer.lr=0.1", "typed"),
        ("optimizer=sgd", "typed"),
        ("model=mlp", "option"),
        ("${spec.num_outputs}", "follows"),
        ("+model.extra={a: 1}", "typed"),
        ("trainer=default device=cpu", "typed"),
        ("data/transform=crop", "typed"),
        ("data=digits", "option"),
        ("the data", "follows"),
        ("default", "default"),
        ("callbacks=[default,ema]", "option"),
    ]


def test_what_an_experiment_has_set() -> None:
    record = msgspec.structs.replace(
        RECORD,
        overrides=["experiment=mine", "optimizer.lr=0.1"],
        resumed=[{"overrides": ["trainer.max_epochs=9"]}],
        choices={**RECORD.choices, "experiment": "mine", "loss": "mse"},
        set_by={
            **dict.fromkeys(("optimizer", "optimizer.betas", "tags", "trainer.precision"), "experiment=mine"),
            "loss": "data=digits",
        },
    )
    keys = (
        *("optimizer.lr", "optimizer.betas[0]", "optimizer.eps", "tags", "loss.reduction"),
        *("trainer.precision", "trainer.max_epochs", "name"),
    )
    assert [row[2:] for row in config_sources(dict.fromkeys(keys, "1"), record)] == [
        ("optimizer.lr=0.1", "typed"),
        ("experiment=mine", "typed"),
        ("optimizer=sgd of experiment=mine", "option"),
        ("experiment=mine", "typed"),
        ("loss=mse of data=digits", "option"),
        ("experiment=mine", "typed"),
        ("trainer.max_epochs=9", "typed"),
        ("default", "default"),
    ]
