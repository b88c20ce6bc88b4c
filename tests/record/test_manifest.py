from pathlib import Path

import torch

from assay.checkpoint.checkpoint_file import CheckpointFile
from assay.record.run_directory import changed_since, files_of


def test_what_changes_after_the_run_is_named(tmp_path: Path) -> None:
    for name in ("config.yaml", "metrics.csv", "code.patch", "notes.txt"):
        (tmp_path / name).write_text(name)
    CheckpointFile().save_checkpoint({"x": torch.ones(2)}, tmp_path / "checkpoints" / "last.ckpt")
    (tmp_path / "checkpoints" / "also.ckpt").symlink_to("last.ckpt")
    files = files_of(tmp_path)
    assert sorted(files) == ["checkpoints/last.ckpt", "code.patch", "config.yaml", "metrics.csv"]
    assert changed_since(tmp_path, files) == []
    (tmp_path / "metrics.csv").write_text("metrics,csv")
    (tmp_path / "code.patch").unlink()
    CheckpointFile().save_checkpoint({"x": torch.zeros(2)}, tmp_path / "checkpoints" / "last.ckpt")
    assert sorted(changed_since(tmp_path, files)) == ["checkpoints/last.ckpt", "code.patch", "metrics.csv"]
