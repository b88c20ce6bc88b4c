#!/bin/bash
# pandas.read_csv of integers from 2^63 to 2^64 - 1 beside an empty cell: the column becomes text, in which the
# empty cell is the text "" and not missing, so isna() and dropna() do not see it.
# pandas 3.0: ['18446744073709551615', ''], isna() is False twice. Without the gap the dtype is uint64.
# Exits 0 while pandas behaves so.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "pandas==3.0.0"
"$folder/venv/bin/python" - <<'PYTHON'
import io
import pandas as pd

column = pd.read_csv(io.StringIO("a,b\n18446744073709551615,1\n,2\n"))["a"]
print(pd.__version__, column.dtype, column.tolist(), column.isna().tolist())
raise SystemExit(int(column.isna().any()))
PYTHON
