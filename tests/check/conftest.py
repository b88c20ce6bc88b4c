"""The default job, and a project folder with a little data of each kind."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from omegaconf import DictConfig, OmegaConf
from PIL import Image

from assay.compose.compose import compose, job_config

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory: `labels.npz` (multilabel), `table.csv`, its rows in `shards`, and `photos`."""
    folder = tmp_path_factory.mktemp("project")
    draw = np.random.default_rng(0)
    np.savez(
        folder / "labels.npz",
        inputs=draw.standard_normal((240, 12)).astype(np.float32),
        targets=draw.integers(0, 2, (240, 4)),
    )
    rows = [f"{n},{n % 5},{'xyz'[n % 3]}" for n in range(240)]
    (folder / "table.csv").write_text("\n".join(["a,b,kind", *rows]), encoding="utf-8")
    (folder / "shards").mkdir()
    pd.read_csv(folder / "table.csv").to_parquet(folder / "shards" / "0.parquet")
    for name in ("cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        for index in range(90):
            pixels = draw.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{index}.png")
    with chdir(folder):
        yield folder


@pytest.fixture(scope="module")
def composed() -> DictConfig:
    """The default job."""
    return job_config(compose())


@pytest.fixture
def job(composed: DictConfig) -> DictConfig:
    """A copy of the default job, to which keys may be added."""
    copy = composed.copy()
    OmegaConf.set_struct(copy, False)
    return copy


@pytest.fixture
def project_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules of `project/` can be imported."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "project"))
