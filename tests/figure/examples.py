"""A figure of each mark, with names that mean something to HTML, to plotly and to matplotlib."""

from __future__ import annotations

import numpy as np

from assay.figure.figure import Bars, Figure, Heatmap, Line, ParallelCoordinates, Points

HOSTILE = "<a href='javascript:alert(1)'>$x^{$ & _</a></script><!--"
EXAMPLES = (
    Figure(
        "curves",
        HOSTILE,
        (
            Line("chance", [0, 1], [0, 1], is_reference=True),
            Line(HOSTILE, [0, 1, 2], [0.5, float("nan"), 1 / 3], low=[0, 0, 0], high=[1, 1, 1]),
            Line("_steps", np.arange(3), np.arange(3), is_step=True),
        ),
        x_label=HOSTILE,
        y_label="%{z} y",
    ),
    Figure(
        "scatter",
        "Scatter",
        (
            Points(HOSTILE, [1, 10], [2, 3], texts=[HOSTILE, "b\nc"]),
            Points("plain", [1, 100], [2, 3]),
        ),
        log="x",
        x_range=(1, 100),
    ),
    Figure(
        "bars",
        "Bars",
        (Bars(HOSTILE, [HOSTILE, "7"], [1, 2], low=[0, 1], high=[2, 4]), Bars("b", [HOSTILE, "7"], [1, 2])),
    ),
    Figure(
        "matrix",
        "Matrix",
        (Heatmap(np.array([[1, np.nan], [3, 4000]]), [HOSTILE, "same"], ["same", "same"]),),
    ),
    Figure(
        "parallel",
        "Parallel",
        (
            ParallelCoordinates(
                {HOSTILE: [HOSTILE, "b"], "lr": [0.001, 0.1], "score": [0.5, 0.7]},
                colour="score",
                log=frozenset({"lr"}),
                texts=["first", "second"],
            ),
        ),
    ),
)
