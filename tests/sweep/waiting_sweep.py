"""A sweep of two seeds that tells when it is about to train, and waits until it may."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from lightning import Trainer

from assay.record import provenance
from assay_sweep.session import start_sweep


def main() -> None:
    fit = Trainer.fit

    def fit_once_told(*arguments: Any, **keywords: Any) -> None:
        Path("fits").touch()
        while not Path("go").exists():
            time.sleep(0.02)
        fit(*arguments, **keywords)

    Trainer.fit = fit_once_told  # type: ignore[method-assign]  # only here it waits
    provenance.assay_commit = lambda: "0123456789ab"  # type: ignore[assignment]  # only here it counts as committed
    start_sweep([*sys.argv[1:], "hydra.sweep.dir=outputs/other", "seed=1,2"])
