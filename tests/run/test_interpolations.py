"""What a resolved config referred to can be put back, and nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from omegaconf import OmegaConf, open_dict

from assay.compose.compose import compose, job_config
from assay.compose.listing import list_options
from assay.config.serialize import fingerprint, known, to_yaml
from assay.data.spec import Spec
from assay.run.resume import change
from assay.run.saved_config import as_written, interpolations

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {"lr": 0.1, "run_dir": "a", "s": {"max_lr": "${lr}", "path": "${run_dir}/x", "l": [1, "${lr}"]}}


def test_there_and_back() -> None:
    config = OmegaConf.create(CONFIG)
    written = interpolations(config)
    assert written == {"s.max_lr": "${lr}", "s.path": "${run_dir}/x", "s.l[1]": "${lr}"}
    resolved: Any = OmegaConf.create(OmegaConf.to_container(config, resolve=True))
    again = as_written(resolved, written, references_only=True)
    assert again == as_written(resolved, written) == config
    assert "${" not in str(resolved), "left as it is"
    again.lr = 0.5
    assert again.s.max_lr == again.s.l[1] == 0.5


def test_somebody_elses_record_brings_no_calls_and_no_targets() -> None:
    config = OmegaConf.create({"a": 1, "m": {"_target_": "torch.nn.Linear"}})
    theirs = {"a": "${oc.env:HOME}", "m._target_": "${a}", "new": "${a}"}
    assert as_written(config, theirs, references_only=True) == config


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


@pytest.mark.parametrize("option", OPTIONS)
def test_of_every_option_the_run_directory_tells_the_fingerprint(option: str, tmp_path: Path) -> None:
    """What `resume` and `reproduce` ask of it, once the data has been read and all is resolved."""
    config = job_config(compose([option, "hydra.run.dir=run"]))
    fingerprints, written = fingerprint(config), interpolations(config)
    with open_dict(config):
        config.spec = SPEC
    read: Any = OmegaConf.create(to_yaml(known(config)))
    assert "${" not in to_yaml(OmegaConf.to_container(read, resolve=False))
    moved = change(tmp_path / "moved", read.copy(), written, [])
    assert not moved.changed
    assert fingerprint(as_written(moved.config, written)) == fingerprints
    with open_dict(read):
        del read["spec"]
    assert fingerprint(as_written(read, written)) == fingerprints


def test_what_asks_the_data_asks_it_anew() -> None:
    read = OmegaConf.create({"size": 8, "spec": {"input_shape": [1, 28, 28]}})
    again = as_written(read, {"size": "${oc.select:spec.input_shape.1,0}"}, references_only=True)
    assert again.size == 28
