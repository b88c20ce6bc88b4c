from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.compose.completion import complete

if TYPE_CHECKING:
    from pathlib import Path

VERBS = {
    "train": ["--multirun", "-m", "--config-dir", "-cd"],
    "configs": ["--config-dir"],
    "info": ["--debug"],
}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("assay tr", ["train"]),
        ("assay ", ["configs", "info", "train"]),
        ("assay train optim", ["optimizer.", "optimizer="]),
        ("assay train optimizer=ad", ["optimizer=adagrad", "optimizer=adam", "optimizer=adamw"]),
        ("assay train optimizer.l", ["optimizer.lr="]),
        ("assay train optimizer=sgd optimizer.mom", ["optimizer.momentum="]),
        (
            "assay train -m optimizer=sgd,ad",
            ["optimizer=sgd,adagrad", "optimizer=sgd,adam", "optimizer=sgd,adamw"],
        ),
        ("assay train -m optimizer=sgd,adam optimizer.l", ["optimizer.lr="]),
        ("assay train callbacks=[default,em", ["callbacks=[default,ema"]),
        ("assay train data/tr", ["data/transform="]),
        ("assay train dat", ["data.", "data/", "data="]),
        ("assay train data/transform=re", ["data/transform=resize", "data/transform=resized_crop"]),
        ("assay train optimizer.lr=", ["optimizer.lr=auto"]),
        ("assay train --mul", ["--multirun"]),
        ("assay train --config-dir nowhere model=line", ["model=linear"]),
        ("assay configs schedu", ["scheduler"]),
        ("assay info opt", []),
        ("assay nonsense opt", []),
        ("assay train nonsense=1 optimizer.l", []),
    ],
)
def test_last_word(line: str, words: list[str]) -> None:
    assert complete(line, VERBS) == words


def test_parts_of_options_are_not_offered() -> None:
    assert not [word for word in complete("assay train data=", VERBS) if "_loading" in word]


def test_own_options_are_offered(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mlperf.yaml").write_text(
        "# Mine.\n_target_: torch.nn.Identity\n", encoding="utf-8"
    )
    words = complete(f"assay train --config-dir {tmp_path} model=ml", VERBS)
    assert words == ["model=mlp", "model=mlperf"]
