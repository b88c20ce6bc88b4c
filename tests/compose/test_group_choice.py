"""Which setting decides the option of a group: Hydra's own composition says what it came to."""

from __future__ import annotations

import pytest

from assay.compose.compose import compose
from assay.compose.origin import origins
from assay.config.source_location import COMMAND_LINE


@pytest.mark.parametrize(
    "typed",
    [
        [],
        ["optimizer=sgd", "scheduler=none", "callbacks=[default,ema]"],
        ["experiment=digits_longtail"],
        ["experiment=digits_longtail", "model=mlp"],
        ["~augment"],
    ],
    ids=" ".join,
)
def test_the_last_setting_is_what_hydra_took(typed: list[str]) -> None:
    hydras = compose(typed).hydra.runtime.choices
    found = origins(typed).choices
    assert {"data", "model", "optimizer", "callbacks", "experiment"} <= set(found)
    assert set(found) - set(hydras) <= {
        "callbacks",
        "logger",
        "augment",
    }  # Hydra keeps none of several, nor what was left out
    for group in set(found) & set(hydras):
        assert found[group].option == (hydras[group] or ""), group
    for override in typed:
        group = override.lstrip("~").partition("=")[0]
        assert found[group].settings[-1].where == COMMAND_LINE
        assert found[group].settings[-1].override == override


def test_an_experiment_names_the_file_and_line_of_its_choice() -> None:
    model = origins(["experiment=digits_longtail"]).choices["model"]
    assert [setting.path is not None and setting.path.name for setting in model.settings] == [
        "train.yaml",
        "digits_longtail.yaml",
    ]
    last = model.settings[-1]
    assert last.path is not None
    assert model.option in last.path.read_text().splitlines()[last.line - 1]
