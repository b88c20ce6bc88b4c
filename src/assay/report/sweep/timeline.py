"""What ran where and when: one row per place, or several where jobs ran there side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.figure.figure import Figure, Spans
from assay.quoting import counted, duration

if TYPE_CHECKING:
    from assay.report.sweep.contents import Contents, Job, Span


def timeline(contents: Contents) -> Figure | None:
    """The times in which jobs ran; None where none is known."""
    ran = sorted(((span, job) for job in contents.jobs for span in job.spans), key=lambda pair: pair[0].start)
    if not ran:
        return None
    begin = ran[0][0].start
    lanes = _lanes([span for span, _ in ran])
    hosts = list(dict.fromkeys(span.place for span, _ in ran))
    several = {
        place: max(lane for (span, _), lane in zip(ran, lanes, strict=True) if span.place == place)
        for place in hosts
    }
    order = sorted(
        range(len(ran)), key=lambda at: (hosts.index(ran[at][0].place), lanes[at], ran[at][0].start)
    )
    rows = [
        f"{ran[at][0].place or 'unknown host'}{f' · {lanes[at] + 1}' if several[ran[at][0].place] else ''}"
        for at in order
    ]
    spans = Spans(
        rows,
        [(ran[at][0].start - begin).total_seconds() for at in order],
        [(ran[at][0].end - begin).total_seconds() for at in order],
        [_text(*ran[at], is_sweep=contents.is_sweep) for at in order],
        [ran[at][0].status for at in order],
    )
    busy = sum((span.end - span.start).total_seconds() for span, _ in ran)
    length = (max(span.end for span, _ in ran) - begin).total_seconds()
    caption = (
        f"From {begin:%Y-%m-%d %H:%M:%S} UTC on: {duration(busy)} of "
        f"{counted(len(contents.jobs), 'job' if contents.is_sweep else 'run')} in {duration(length)}."
    )
    return Figure(
        "timeline",
        "What ran where",
        (spans,),
        x_label="seconds since the first start",
        is_wide=True,
        caption=caption,
    )


def _lanes(spans: list[Span]) -> list[int]:
    """The first row of its place in which each span has room; spans in the order of their starts."""
    ends: dict[str, list[Span]] = {}
    lanes = []
    for span in spans:
        here = ends.setdefault(span.place, [])
        free = next((lane for lane, before in enumerate(here) if before.end <= span.start), len(here))
        here[free : free + 1] = [span]
        lanes.append(free)
    return lanes


def _text(span: Span, job: Job, *, is_sweep: bool) -> str:
    attempt = f", attempt {span.attempt}" if span.attempt > 1 else ""
    lasted = duration((span.end - span.start).total_seconds())
    seed = f" seed={job.seed}" if job.seed else ""
    name = f"job {job.name}" if is_sweep else job.name
    return f"{name}{attempt}: {span.status}, {lasted}\n{job.label if job.values else ''}{seed}"
