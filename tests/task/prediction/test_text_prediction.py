from __future__ import annotations

import numpy as np

from assay.task.generate import TextPrediction, TextPredictions


def test_several_are_a_sequence_and_a_table() -> None:
    one = TextPrediction("a", "b\x1b\n", np.array([1.0, 2.0], np.float32))
    both = TextPredictions.of([one, TextPrediction("c", "", np.zeros(0, np.float32))])
    assert (len(both), both[0], both[1:][0].prompt) == (2, one, "c")
    frame = both.to_frame()
    assert list(frame["prediction"]) == ["b\x1b\n", ""]
    assert list(frame["num_tokens"]) == [2, 0]
    assert frame["bits_per_token"][0] == 1.5
    assert np.isnan(frame["bits_per_token"][1])
    assert "\x1b" not in str(one)
