from __future__ import annotations

from tests.cli.typed import in_an_empty_folder, typed

__all__ = ["in_an_empty_folder"]

from assay.compose.listing import groups


def test_help_of_train_names_every_group_and_shows_examples() -> None:
    text = typed("train", "--help").stdout
    for group in groups():
        if "/" not in group:
            assert f" {group} " in text.replace("\n", " "), group
    assert "assay configs" in text
    assert text.count("  assay train") >= 3
