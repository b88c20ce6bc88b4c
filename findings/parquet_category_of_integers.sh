#!/bin/bash
# DataFrame.to_parquet and read_parquet give a category of texts back as a category, one of integers as integers,
# although the file's own pandas metadata says "categorical" of both. Feather gives both back.
# pandas 3.0, pyarrow 22: dtypes after the round trip are category (text) and int64 (integers).
# Exits 0 while they behave so.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "pandas==3.0.0" "pyarrow==22.0.0"
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import pandas as pd
import pyarrow.parquet as pq

frame = pd.DataFrame({"text": ["a", "b"], "shop": [7, 12]}).astype("category")
frame.to_parquet("a.parquet")
frame.to_feather("a.feather")
told = {c["name"]: c["pandas_type"] for c in json.loads(pq.read_schema("a.parquet").metadata[b"pandas"])["columns"]}
parquet = pd.read_parquet("a.parquet").dtypes.astype(str).to_dict()
feather = pd.read_feather("a.feather").dtypes.astype(str).to_dict()
print(pd.__version__, "metadata:", told, "parquet:", parquet, "feather:", feather)
expected = {"text": "category", "shop": "int64"}
raise SystemExit(parquet != expected or set(told.values()) != {"categorical"} or feather["shop"] != "category")
PYTHON
