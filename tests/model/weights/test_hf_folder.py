from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.errors import ConfigError
from assay.model.hf_folder import folder_of, network_of, weights_file

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_its_files_and_a_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "auto_map": {"AutoModel": "a.B"}, "_x": 1}')
    (tmp_path / "model.safetensors.index.json").touch()
    with pytest.raises(ConfigError, match="several files"):
        weights_file(str(tmp_path))
    (tmp_path / "pytorch_model.bin").touch()
    assert weights_file(str(tmp_path)) == tmp_path / "pytorch_model.bin"
    assert folder_of(tmp_path / "pytorch_model.bin") == tmp_path
    assert network_of(tmp_path) == {"model_type": "bert"}
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "best.ckpt").touch()
    (run / "config.yaml").write_text("model: {config: {model_type: mpnet}}")
    assert network_of(run / "checkpoints" / "best.ckpt") == network_of(run) == {"model_type": "mpnet"}


@pytest.mark.parametrize(
    ("weights", "is_known_there"),
    [("distilbert-base-uncased", True), ("org/bert.small", True), ("my weights", False), ("../bert", False)],
)
def test_only_a_name_of_the_hub_is_offered_for_download(weights: str, is_known_there: bool) -> None:
    with pytest.raises(ConfigError, match="is not a folder") as error:
        folder_of(weights)
    assert (f"hf download {weights} " in error.value.hint) == is_known_there
