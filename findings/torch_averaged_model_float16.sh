#!/bin/bash
# torch.optim.swa_utils.AveragedModel in half precision: an exponential moving average stops half-way.
#
# torch 2.15.0 (CPU), valid input: a float16 model whose weight moves from 0 to 1, decay 0.999 as in the docs.
# The average is kept in the dtype of the model. Each step adds a thousandth of the difference, which is rounded
# away once it is below half a unit in the last place: the average never reaches the weights, without a warning.
# Output seen, after 6,000 steps:
#   torch.float32 0.9975289106369019
#   torch.float16 0.755859375
#   torch.bfloat16 0.25
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.15.0 numpy
"$work/venv/bin/python" - <<'PYTHON'
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

ends = {}
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    model = torch.nn.Linear(1, 1, bias=False, dtype=dtype)
    torch.nn.init.zeros_(model.weight)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    average.update_parameters(model)
    torch.nn.init.ones_(model.weight)
    for _ in range(6_000):
        average.update_parameters(model)
    ends[dtype] = average.module.weight.item()
    print(dtype, ends[dtype])
assert ends[torch.float32] > 0.99
assert ends[torch.float16] < 0.8
assert ends[torch.bfloat16] < 0.3
PYTHON
