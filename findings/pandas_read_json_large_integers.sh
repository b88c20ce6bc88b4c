#!/bin/bash
# pandas.read_json(lines=True) gives some integers above 2^64 modulo 2^64, without an error or a warning; it refuses
# others of the same length ("Value is too big!").
# pandas 3.0: 30000000000000000000 is read as 11553255926290448384; 18446744073709551621 is refused.
# Exits 0 while pandas behaves so.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "pandas==3.0.0"
"$folder/venv/bin/python" - <<'PYTHON'
import io
import json
import pandas as pd

line = '{"a": 30000000000000000000}\n'
read = int(pd.read_json(io.StringIO(line), lines=True)["a"][0])
print(pd.__version__, "read_json:", read, "json.loads:", json.loads(line)["a"])
raise SystemExit(int(read != 30000000000000000000 - 2**64))
PYTHON
