"""Parts of configs, in `rules/`: each is refused with its key, or, where none is given, let through."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from assay.check.signature import check_signatures
from assay.check.values import check_data_root, check_numbers
from assay.errors import ConfigError
from assay_prove.fit import check_callbacks, check_checkpoint_names, check_monitors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _pytest.mark import ParameterSet

RULES = Path(__file__).parent / "rules"
BASE = {"run_dir": "/run", "spec": {"total_steps": 10_000, "num_val": 10}}
BASE |= {"trainer": {}, "callbacks": {}, "logger": {}}
VAL = ["val/loss", "val/accuracy"]
CHECKS: dict[str, Callable[[DictConfig], None]] = {
    "callbacks": check_callbacks,
    "checkpoints": lambda config: check_checkpoint_names(config, VAL),
    "monitors": lambda config: check_monitors(
        config, {"train": ["train/loss", "train/accuracy"], "val": VAL}
    ),
    "ranges": check_numbers,
    "signatures": check_signatures,
    "sources": check_data_root,
}


def cases() -> Iterator[ParameterSet]:
    for path in sorted(RULES.glob("*.yaml")):
        for number, case in enumerate(yaml.safe_load(path.read_text(encoding="utf-8"))):
            yield pytest.param(path.stem, case, id=f"{path.stem}-{number}-{case.get('key', 'fine')}")


@pytest.fixture(autouse=True)
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kind of data one, in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in ("photos/cat", "run", "empty", "x.csv"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("table.csv", "rest.CSV.gz", "a.npz", "note.txt", "table.parquet", "run/config.yaml"):
        (tmp_path / file).touch()


@pytest.mark.parametrize(("rule", "case"), list(cases()))
def test_rule(rule: str, case: dict[str, Any]) -> None:
    base = BASE if rule in ("callbacks", "checkpoints", "monitors") else {}
    config = OmegaConf.create(base | case["config"])
    if "key" not in case:
        CHECKS[rule](config)
        return
    with pytest.raises(ConfigError) as caught:
        CHECKS[rule](config)
    assert caught.value.key == case["key"]
    assert case.get("says", "") in caught.value.message
    assert case.get("hint", "") in caught.value.hint
    assert len(caught.value.message) < 400
