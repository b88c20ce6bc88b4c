#!/bin/bash
# torch.compile: the gradient of amax is NaN in bfloat16 and float16 where what it takes the maximum of is fused.
#
# torch 2.15.0 (CPU), valid input: the sum of the squared maxima of GELU of random numbers, compiled and not.
# Compiled code keeps the fused values in float32 and rounds only the maximum, so that in the backward no value
# equals it; the gradient is shared among those that do, of which there are 0. torch.max over one dimension, which
# keeps the place of the maximum, has the right gradient.
# Output seen (dtype, whether the gradient of amax and that of max are finite):
#   torch.float32 True True
#   torch.bfloat16 False True
#   torch.float16 False True
# Exits 0 while this is so. Needs a C++ compiler.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.15.0 numpy setuptools
cd "$work"
TORCHINDUCTOR_CACHE_DIR="$work/cache" "$work/venv/bin/python" - <<'PYTHON'
import torch
from torch.nn.functional import gelu

seen = {}
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    finite = []
    for largest in (lambda x: x.amax((2, 3)), lambda x: x.flatten(2).max(2).values):
        torch.compiler.reset()
        torch.manual_seed(0)
        values = torch.randn(6, 8, 9, 9).to(dtype).requires_grad_()

        def loss(x):
            return largest(gelu(x * 1.7)).float().square().sum()

        (eager,) = torch.autograd.grad(loss(values), values)
        assert eager.isfinite().all()
        (gradient,) = torch.autograd.grad(torch.compile(loss)(values), values)
        finite.append(bool(gradient.isfinite().all()))
    seen[dtype] = tuple(finite)
    print(dtype, *finite)
assert seen == {torch.float32: (True, True), torch.bfloat16: (False, True), torch.float16: (False, True)}, seen
PYTHON
