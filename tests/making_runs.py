"""Run directories as `train` leaves them, made without training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.config.serialize import REPETITIONS, fingerprint_of, to_yaml
from assay.files.atomic import write_text
from assay.files.checksum import seal_yaml
from assay.record.run_directory import create_run_directory
from assay.record.run_record import RunRecord
from assay_analysis.run import plain_value

if TYPE_CHECKING:
    from pathlib import Path

CONFIG: dict[str, Any] = {
    "name": "digits_mlp",
    "seed": 0,
    "model": {"_target_": "assay.model.mlp.MLP", "hidden": [128]},
    "optimizer": {"_target_": "torch.optim.AdamW", "lr": 0.001},
    "data": {"source": {"_target_": "assay.data.image.digits.Digits"}, "batch_size": 64},
    "trainer": {"max_epochs": 5},
}
CHOICES = {
    "sweep": None,
    "experiment": None,
    "data": "digits",
    "model": "mlp",
    "optimizer": "adamw",
    "loss": "ce",
}
PRESETS = ("sweep", "experiment")
"""They set values of others, and no node of a config is theirs."""
METRICS = "epoch,step,val/loss,val/accuracy\n1,10,0.9,0.5\n2,20,0.5,0.75\n"


def make_run(
    path: Path,
    *typed: str,
    config: dict[str, Any] | None = None,
    csv: str | None = METRICS,
    **fields: Any,
) -> RunRecord:
    """Write the directory of a run for which this was typed: keys of `CONFIG`, options of groups."""
    plain: dict[str, Any] = {**CONFIG, **(config or {}), "run_dir": str(path)}
    choices = dict(CHOICES)
    for override in typed:
        key, _, text = override.partition("=")
        if key in choices:
            choices[key] = text
            if key in PRESETS:
                continue
            plain[key] = {**plain.get(key, {}), "_target_": f"somewhere.{text}"}
        else:
            first, _, last = key.partition(".")
            value = plain_value(text)
            plain[first] = {**plain.get(first, {}), last: value} if last else value
    record = RunRecord(
        run_id=path.name,
        name=str(plain["name"]),
        status="finished",
        started="2026-11-22T12:00:00+00:00",
        seed=int(plain["seed"]),
        fingerprint=fingerprint_of(plain),
        config_fingerprint=fingerprint_of(plain, REPETITIONS),
        overrides=list(typed),
        choices=choices,
        finished="2026-11-22T12:01:00+00:00",
        seconds=60.0,
        directions={"val/loss": "min", "val/accuracy": "max", "test/accuracy": "max"},
        packages={f"package-{number}": "1.0" for number in range(5)},
    )
    for name, value in fields.items():
        setattr(record, name, value)
    create_run_directory(path)
    write_text(path / "config.yaml", seal_yaml(to_yaml(plain)))
    write_text(path / "overrides.yaml", to_yaml(list(typed)))
    record.save(path)
    if csv is not None:
        (path / "metrics.csv").write_text(csv, encoding="utf-8")
    return record
