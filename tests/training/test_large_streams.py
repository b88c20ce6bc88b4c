"""Data larger than memory is trained on in little of it: tars that are mostly holes take no disk."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest
from PIL import Image

if TYPE_CHECKING:
    from pathlib import Path

SIDE = 1024
MOST = 500e6
"""Bytes beyond what the process takes once all is imported."""
SCRIPT = """
import json, resource, sys
import assay, lightning, torch, torchvision
import assay.run.train
import assay.run.execute
import assay_lab.baseline
import assay.data.shards.image_shards
import pandas, sklearn.model_selection
def resident(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))
before = resident("VmRSS:")
result = assay.train(sys.argv[1:])
print(json.dumps([before, resident("VmHWM:"), result.metrics["test/accuracy"]]))
"""


def write_tar(path: Path, pictures: int) -> None:
    """Bitmaps of 3 MB each, black but for their first rows: the rest of a file is a hole."""
    file = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE)).save(file, "BMP")
    size = len(file.getvalue())
    with path.open("wb") as tar:
        for number in range(pictures):
            label = str(number % 2).encode()
            shade = bytes([250 * (number % 2)]) * 3 * SIDE * 300
            contents = {f"{number:06}.bmp": file.getvalue()[:54] + shade, f"{number:06}.cls": label}
            for name, content in contents.items():
                member = tarfile.TarInfo(name)
                member.size = size if name.endswith("bmp") else len(content)
                tar.write(member.tobuf())
                start = tar.tell()
                tar.write(content)
                tar.seek(start + -(-member.size // 512) * 512)
        tar.truncate(tar.tell() + 1024)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="holes, and the memory of a process, as Linux has them"
)
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("gigabytes", [0.1, 20])
def test_a_stream_takes_little_memory(tmp_path: Path, gigabytes: float) -> None:
    (tmp_path / "shards").mkdir()
    pictures, shards = int(gigabytes * 1e9 / (3 * SIDE * SIDE)), max(2, int(gigabytes / 2))
    for shard in range(shards):
        write_tar(tmp_path / "shards" / f"part-{shard}.tar", pictures // shards)
    logical = sum(path.stat().st_size for path in (tmp_path / "shards").iterdir())
    assert logical > 0.9 * gigabytes * 1e9
    words = (
        *("data=image_shards", "data.source.path=shards", "data.source.image_size=[16,16]", "device=cpu"),
        *("data.num_workers=0", "data.global_batch_size=16", "data.source.eval_rows=20", "model=linear"),
        *("trainer.max_epochs=1", "baseline=none", "hydra.run.dir=run", "augment=none", "optimizer.lr=0.01"),
    )
    command = [sys.executable, "-c", SCRIPT, *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    before, most, accuracy = json.loads(ended.stdout.splitlines()[-1])
    assert most - before < MOST, (before, most)
    assert accuracy == 1.0
    print(f"{logical / 1e9:.1f} GB: {(most - before) / 1e6:.0f} MB beyond {before / 1e6:.0f} MB")
