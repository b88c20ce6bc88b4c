from __future__ import annotations

import random
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from assay.callbacks.seed_each_step import SeedEachStep


def test_each_step_and_each_generator_draws_anew() -> None:
    progress = SimpleNamespace(total=SimpleNamespace(completed=0))
    loop = SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=progress))
    trainer: Any = SimpleNamespace(global_rank=0, fit_loop=loop)
    module: Any = SimpleNamespace(device=torch.device("cpu"))
    draws = []
    for step in (*range(12), 3):
        progress.total.completed = step
        SeedEachStep(3).on_train_batch_start(trainer, module, None, 0)
        draws.append((float(torch.rand(())), float(np.random.rand()), random.random()))
    assert draws.pop() == draws[3]
    assert all(len(set(generator)) == 12 for generator in zip(*draws, strict=True))


def test_ranks_and_stages_differ() -> None:
    callback = SeedEachStep(3)
    stages = ["step", "epoch", "val", "test"]
    seeds = {callback.seed_for(*moment) for moment in product(stages, range(8), range(500))}
    assert len(seeds) == 4 * 8 * 500
    # torch's CPU generator takes the lower half of a seed, NumPy the upper one.
    assert len({seed & 0xFFFFFFFF for seed in seeds}) > 0.999 * len(seeds)
    assert len({seed >> 32 for seed in seeds}) > 0.999 * len(seeds)
