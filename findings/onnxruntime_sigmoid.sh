#!/usr/bin/env bash
# ONNX Runtime's Sigmoid on the CPU loses rare events, and is not monotonic.
#
# Versions: onnxruntime 1.23.2 and onnx 1.19.1, on x86-64.
# Expected: sigmoid(x) = exp(x) / (1 + exp(x)), in float32 some 1e-38 at x = -87, and never falling, as torch gives.
# Behaviour: the rational approximation has an absolute error of some 1e-7, so that
#   - from some -17 down the result is exactly 0: all rare events are the same one;
#   - above that it falls in places while x rises: an order of scores is not that of the logits;
#   - the relative error at -15 is 17 %, at -16 nearly half.
#   A comparison of probabilities with an absolute tolerance of 1e-4 or 1e-5, which is usual after an export, sees
#   nothing of it. exp(min(x, 0)) / (1 + exp(-|x|)) in its own nodes is exact.
# Output seen:
#   exactly 0: 200 of 200 logits from -60 to -20, expected 0 of 200
#   falls at 204 of 999 steps from -20 to -12
#   relative error at -15: 0.17
#   exp in its own nodes: 0 zeros, relative error 1.4e-07
# Exits non-zero if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "onnxruntime==1.23.2" "onnx==1.19.1" "numpy<3"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def run(nodes, x, constants=()):
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0][:, 0]


def column(low, high, count):
    return np.linspace(low, high, count, dtype=np.float32)[:, None]


def exact(x):
    return 1 / (1 + np.exp(-x[:, 0].astype(np.float64)))


sigmoid = [helper.make_node("Sigmoid", ["x"], ["y"])]
rare = column(-60, -20, 200)
zeros = int((run(sigmoid, rare) == 0).sum())
print(f"exactly 0: {zeros} of 200 logits from -60 to -20, expected {int((exact(rare) == 0).sum())} of 200")
falls = int((np.diff(run(sigmoid, column(-20, -12, 1000))) < 0).sum())
print(f"falls at {falls} of 999 steps from -20 to -12")
point = np.float32([[-15]])
error = float(np.abs(run(sigmoid, point) / exact(point) - 1)[0])
print(f"relative error at -15: {error:.2f}")
zero, one = (helper.make_tensor(name, TensorProto.FLOAT, [], [value]) for name, value in (("zero", 0), ("one", 1)))
nodes = [
    helper.make_node("Min", ["x", "zero"], ["low"]),
    helper.make_node("Exp", ["low"], ["above"]),
    helper.make_node("Abs", ["x"], ["size"]),
    helper.make_node("Neg", ["size"], ["minus"]),
    helper.make_node("Exp", ["minus"], ["small"]),
    helper.make_node("Add", ["small", "one"], ["below"]),
    helper.make_node("Div", ["above", "below"], ["y"]),
]
all_of = column(-80, 15, 1000)
by_exp = run(nodes, all_of, [zero, one])
worst = float(np.abs(by_exp / exact(all_of) - 1).max())
print(f"exp in its own nodes: {int((by_exp == 0).sum())} zeros, relative error {worst:.1e}")
assert zeros == 200 and falls > 0 and error > 0.1, "ONNX Runtime's sigmoid has changed"
assert worst < 1e-6 and (by_exp > 0).all() and (np.diff(by_exp) >= 0).all()
PYTHON
