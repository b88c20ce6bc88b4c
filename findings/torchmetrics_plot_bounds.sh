#!/usr/bin/env bash
# torchmetrics 1.9.0: `plot_lower_bound` and `plot_upper_bound` are not the range of a metric. Cohen's kappa, Matthews'
# correlation and cosine similarity declare 0 and 1 and reach -1; the hinge loss declares 0 and 1 and has no upper bound.
# Seen: CohenKappa -1.0, MatthewsCorrCoef -1, CosineSimilarity -1.0 and HingeLoss 2.0, all with bounds (0.0, 1.0).
# Who writes scores in per cent, or scales an axis, by these bounds is wrong for such metrics.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "torchmetrics==1.9.0" "torch>=2.11" "numpy"
"$folder/venv/bin/python" - <<'PYTHON'
import torch, torchmetrics
from torchmetrics import CohenKappa, CosineSimilarity, HingeLoss, MatthewsCorrCoef

assert torchmetrics.__version__ == "1.9.0"
first, second = torch.tensor([0, 1, 0, 1]), torch.tensor([1, 0, 1, 0])
for metric in (CohenKappa("binary"), MatthewsCorrCoef("binary")):
    assert (metric.plot_lower_bound, metric.plot_upper_bound) == (0.0, 1.0)
    assert float(metric(first, second)) == -1.0
cosine = CosineSimilarity(reduction="mean")
assert (cosine.plot_lower_bound, cosine.plot_upper_bound) == (0.0, 1.0)
assert abs(float(cosine(torch.tensor([[1.0, 0.0]]), torch.tensor([[-1.0, 0.0]]))) + 1) < 1e-6
hinge = torchmetrics.classification.MulticlassHingeLoss(num_classes=2)
assert (hinge.plot_lower_bound, hinge.plot_upper_bound) == (0.0, 1.0)
value = float(hinge(torch.tensor([[1.0, 0.0]]), torch.tensor([1])))
print("hinge", value)
assert value > 1.0
PYTHON
echo "as described"
