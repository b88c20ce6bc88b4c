from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import AssayError, ConfigError
from assay.run.predict.texts import check_prompts


def test_prompts_and_their_options_are_for_models_that_write() -> None:
    check_prompts(["x"], [], {"seed": 1}, generates=True)
    check_prompts([], [Path("x.txt")], {}, generates=True)
    check_prompts([], [Path("x.csv")], {}, generates=False)
    for options in ({"max_tokens": 1}, {"seed": 0}):
        with pytest.raises(ConfigError, match="does not write texts") as caught:
            check_prompts([], [Path("x.csv")], options, generates=False)
        assert caught.value.key == f"--{next(iter(options)).replace('_', '-')}"
    for generates in (True, False):
        with pytest.raises(AssayError, match="nothing to predict"):
            check_prompts([], [], {}, generates=generates)
