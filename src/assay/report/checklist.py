"""`assay report --checklist`: a venue's questions, answered from records; what they do not say is unknown."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from assay.analysis.comparison import compare
from assay.analysis.objective import describe_baseline
from assay.analysis.read_runs import read_runs
from assay.analysis.run import ConfigValues, plain_value, value_of
from assay.config.serialize import REPETITIONS, is_number, is_whole
from assay.errors import AssayError
from assay.quoting import command, format_duration, join_first
from assay.record.journal import Journal
from assay.record.run_directory import find_runs
from assay.record.run_record import RunRecord
from assay.report.comparison_formats import to_markdown
from assay.report.page import load_templates
from assay.terminal import escape_markdown, single_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from assay.analysis.comparison import Comparison
    from assay.analysis.run import Run

    Totals: TypeAlias = dict[str, tuple[int, float, float]]


TITLE: Final = "# Checklist"
"""How every checklist begins; nothing else is replaced by one."""
_SHOWN: Final = 12


def write_checklist(venue: str, paths: Sequence[Path]) -> str:
    """The checklist of a venue as Markdown: a template, in which each value is escaped.

    Raises:
        AssayError: The paths hold no run that has finished.
    """
    from markupsafe import Markup

    runs = read_runs(paths, lost=True)
    configs = ConfigValues()
    comparison = compare(runs, configs=configs)
    records = dict(_load(runs))
    finished = [run for run in runs if run.status == "finished" and run.path in records]
    if not finished:
        raise AssayError("no run has finished", hint=f"{command('ls', *paths)} shows why")
    best = comparison.best_run
    chosen = best if best in finished else finished[-1]
    record = records[chosen.path]

    def escape(value: Any) -> Markup:  # before HTML would be escaped, which leaves `Markup` as it is
        return value if isinstance(value, Markup) else Markup(escape_markdown(value))  # noqa: S704 - escaped

    template = load_templates().overlay(finalize=escape).get_template(f"checklist_{venue}.md")
    return template.render(
        all_runs=runs,
        places=join_first(paths),
        comparison=comparison,
        scores=Markup(to_markdown(comparison).strip()),  # noqa: S704 - escaped
        tried=list(_list_tried(comparison)),
        searches=list(_list_searches(paths)),
        devices=_add_up(runs, records, configs).items(),
        duration=format_duration,
        models=dict.fromkeys(map(_describe_model, records.values())),
        sources=Counter((_name_source(run, configs), run.data_sha256) for run in runs).most_common(_SHOWN),
        path=chosen.path,
        repeat=Markup(single_line(command("reproduce", chosen.path))),  # noqa: S704 - a block of code
        record=record,
        value=partial(value_of, chosen, configs=configs),
        baseline=describe_baseline(record.baseline) if record.baseline else "",
    )


def _load(runs: Iterable[Run]) -> Iterable[tuple[Path, RunRecord]]:
    for run in runs:
        with suppress(AssayError):  # a job that never had a directory, or a damaged record
            yield run.path, RunRecord.load(run.path)


def _list_tried(comparison: Comparison) -> Iterable[tuple[str, int, str, str | None]]:
    """Each hyperparameter that differs: how many values, these or their bounds, and what was selected."""
    best = comparison.rows[comparison.best or 0].values
    for key in (key for key in comparison.columns if key not in REPETITIONS):
        values = list(dict.fromkeys(row.values.get(key) for row in comparison.rows))
        numbers = [value for value in map(plain_value, values) if is_number(value)]
        bounds = f"{min(numbers):g} to {max(numbers):g}" if len(numbers) == len(values) > 2 else ""
        yield key, len(values), bounds or join_first(values, _SHOWN), best.get(key)


def _list_searches(paths: Sequence[Path]) -> Iterable[str]:
    sweeps: list[Path] = []
    for path in paths:
        list(find_runs(path, sweeps=sweeps))
    for sweep in dict.fromkeys(sweeps):
        for words in Journal.open(sweep, repair=False).commands:
            yield command("train", "-m", *words)


def _describe_model(record: RunRecord) -> tuple[str, tuple[int, ...]]:
    size = tuple(record.model[key] for key in ("trainable_parameters", "parameters") if record.model)
    return str(record.choices.get("model") or record.objects.get("model")), size


def _add_up(runs: Sequence[Run], records: Mapping[Path, RunRecord], configs: ConfigValues) -> Totals:
    """Runs, seconds and device-seconds by device, however the runs ended; `auto` is all GPUs of a machine."""
    used: Totals = {}
    for run in runs:
        machine: Mapping[str, Any] = records[run.path].machine if run.path in records else {}
        gpus = [] if value_of(run, "trainer.accelerator", configs) == "cpu" else machine.get("gpus", [])
        asked = plain_value(value_of(run, "trainer.devices", configs))
        nodes = plain_value(value_of(run, "trainer.num_nodes", configs))
        listed = asked.count(",") + 1 if str(asked)[:1] == "[" else max(1, len(gpus))
        count = (asked if is_whole(asked) and asked > 0 else listed) * (nodes if is_whole(nodes) else 1)
        device = str(gpus[0] if gpus else machine.get("cpu", "unknown"))
        number, time, hours = used.get(device, (0, 0, 0))
        used[device] = number + 1, time + run.seconds, hours + count * run.seconds
    return used


def _name_source(run: Run, configs: ConfigValues) -> str:
    places = (value_of(run, f"data.source.{key}", configs) for key in ("path", "root"))
    return " ".join(filter(None, (str(run.choices.get("data")), *places)))
