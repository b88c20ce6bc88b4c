"""`assay report --checklist`: a venue's questions, answered from records; what they do not say is unknown."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Final

from assay.analysis.comparison import compare, default_metric
from assay.analysis.objective import describe_baseline
from assay.analysis.read_runs import read_runs
from assay.analysis.run import ConfigValues, plain_value
from assay.config.serialize import REPETITIONS, is_number
from assay.errors import AssayError
from assay.quoting import format_duration, join_first, pluralize
from assay.record.journal import Journal
from assay.record.run_directory import find_runs
from assay.record.run_record import RunRecord
from assay.report.comparison_formats import best_run, to_markdown
from assay.terminal import escape_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.analysis.comparison import Comparison
    from assay.analysis.run import Run

    Records = Mapping[Path, RunRecord]


TITLE: Final = "# Checklist"
"""How every checklist begins; nothing else is replaced by one."""
UNKNOWN: Final = "**Unknown**"
_AUTHORS: Final = f"{UNKNOWN}: no record says this; the authors answer."
_PACKAGES: Final = ("assay", "torch", "lightning", "torchmetrics", "scikit-learn", "numpy")
_SHOWN: Final = 12


def write_checklist(venue: str, paths: Sequence[Path]) -> str:
    """The checklist of a venue as Markdown.

    Raises:
        AssayError: The paths hold no run that has finished.
    """
    all_runs, configs = read_runs(paths, lost=True), ConfigValues()
    comparison = compare(all_runs, sort=default_metric(paths, all_runs), configs=configs)
    records = dict(_load(all_runs))
    chosen = best_run(comparison)
    finished = [run.path for run in all_runs if run.status == "finished" and run.path in records]
    if not finished:
        place = shlex.join(map(str, paths))
        raise AssayError(f"{place}: no run has finished", hint=f"assay ls {place} shows how they ended")
    path = chosen if chosen in records else finished[-1]
    facts = {
        "authors": _AUTHORS,
        "runs": _count_runs(all_runs, comparison, paths),
        "scores": to_markdown(comparison).strip(),
        "search": _describe_search(comparison, paths),
        "uncertainty": _describe_repetitions(comparison),
        "compute": _add_up(all_runs, records, configs),
        "data": _list_data(all_runs, configs),
        **_describe_run(path, records[path], next(run for run in all_runs if run.path == path), configs),
        "models": _list_models(records),
    }
    template = Path(__file__).parent / "templates" / f"checklist_{venue}.md"
    return Template(template.read_text(encoding="utf-8")).substitute(facts)


def _load(runs: Iterable[Run]) -> Iterable[tuple[Path, RunRecord]]:
    for run in runs:
        try:
            yield run.path, RunRecord.load(run.path)
        except AssayError:  # a job that never had a directory, or a damaged record
            continue


def _list_items(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _count_runs(runs: Sequence[Run], comparison: Comparison, paths: Sequence[Path]) -> str:
    states = Counter(f"{run.status} ({run.cause})" if run.cause else run.status for run in runs)
    ends = ", ".join(f"{count} {state}" for state, count in states.most_common())
    of = f"{pluralize(len(runs), 'run')} of {pluralize(len(comparison.rows), 'configuration')}"
    return (
        f"{of} in {escape_markdown(join_first(paths))}: {ends}. {UNKNOWN}: runs elsewhere, and removed ones."
    )


def _describe_search(comparison: Comparison, paths: Sequence[Path]) -> str:
    """Each hyperparameter that differs: how many values, their bounds, and what was selected."""
    best = None if comparison.best is None else comparison.rows[comparison.best]
    lines = ["| hyperparameter | values | tried | selected |", "|---|---:|---|---|"]
    for key in (key for key in comparison.columns if key not in REPETITIONS):
        values = list(dict.fromkeys(row.values.get(key) for row in comparison.rows))
        numbers = [value for value in map(plain_value, values) if is_number(value)]
        bounds = f"{min(numbers):g} to {max(numbers):g}" if len(numbers) == len(values) > 2 else ""
        tried = bounds or join_first([str(value) for value in values], _SHOWN)
        selected = UNKNOWN if best is None else escape_markdown(best.values.get(key))
        lines.append(f"| {escape_markdown(key)} | {len(values)} | {escape_markdown(tried)} | {selected} |")
    ranking, how = comparison.ranking, f"Selected: {UNKNOWN}; no metric decides between these runs."
    if ranking is not None and best is not None:
        on_test = ", **of the test subset**, which makes its test score too good"
        on_test *= ranking.metric.startswith("test/")
        how = (
            f"Selected by the best mean of {escape_markdown(ranking.metric)} ({ranking.direction}){on_test}."
        )
    differ = [*lines, "", how] if len(lines) > 2 else ["No hyperparameter differs."]
    sweeps: list[Path] = []
    for path in paths:
        list(find_runs(path, sweeps=sweeps))
    typed = [
        command for sweep in dict.fromkeys(sweeps) for command in Journal.open(sweep, repair=False).commands
    ]
    searches = _list_items(escape_markdown(shlex.join(["assay", "train", "-m", *words])) for words in typed)
    rest = "The `config.yaml` of each run has the value of every other hyperparameter."
    return "\n".join([*differ, *(["", "Searches, as typed:", "", searches] if typed else []), "", rest])


def _describe_repetitions(comparison: Comparison) -> str:
    counts = Counter(row.repetitions for row in comparison.rows)
    of = ", ".join(f"{n} in {pluralize(count, 'configuration')}" for n, count in sorted(counts.items()))
    bars = "± is half a 95 % interval of the mean over them (Student's t)."
    if max(counts) == 1:
        bars = "There are no error bars: no configuration was trained with another seed or fold."
    return f"Repetitions (seeds or folds): {of}. {bars} {escape_markdown(comparison.test.verdict)}".strip()


def _list_models(records: Records) -> str:
    sizes: dict[str, None] = {}
    for record in records.values():
        name, size = record.choices.get("model") or record.objects.get("model"), record.model
        trained = f"{size['trainable_parameters']:,} of {size['parameters']:,}" if size else UNKNOWN
        sizes[f"{escape_markdown(name)}: {trained}"] = None
    return "\n".join(["Trainable parameters, of all, by model:", "", _list_items(sizes)])


def _add_up(runs: Sequence[Run], records: Records, configs: ConfigValues) -> str:
    """Time and device-hours of all runs, however they ended."""
    used: dict[str, list[float]] = {}
    for run in runs:
        device, count = _find_device(run, records.get(run.path), configs)
        times = used.setdefault(device, [0, 0, 0])
        for place, amount in enumerate((1, run.seconds, count * run.seconds)):
            times[place] += amount
    rows = [
        f"| {escape_markdown(device)} | {count} | {format_duration(seconds)} | {hours / 3600:.3g} |"
        for device, (count, seconds, hours) in used.items()
    ]
    whole = format_duration(sum(run.seconds for run in runs))
    untimed = sum(not run.seconds for run in runs)
    missing = f"the time of {pluralize(untimed, 'run')} that left none; " * bool(untimed)
    more = f"In all {whole}, failed, interrupted and pruned runs included. {UNKNOWN}: {missing}removed runs; "
    more += "what `assay tune`, `profile` and `eval` took; energy."
    return "\n".join(["| device | runs | time | device-hours |", "|---|---:|---:|---:|", *rows, "", more])


def _find_device(run: Run, record: RunRecord | None, configs: ConfigValues) -> tuple[str, int]:
    """Name and number of a run's devices; all GPUs of the machine where `auto` or -1 asks for them."""
    if record is None or not record.machine:
        return "unknown", 1
    gpus = record.machine.get("gpus") or []
    if _value(configs, run, "trainer.accelerator") == "cpu":
        gpus = []
    asked, nodes = (plain_value(_value(configs, run, f"trainer.{key}")) for key in ("devices", "num_nodes"))
    several = asked.count(",") + 1 if str(asked)[:1] == "[" else max(1, len(gpus))
    count = asked if isinstance(asked, int) and asked > 0 else several
    return str(gpus[0] if gpus else record.machine.get("cpu")), count * (
        nodes if isinstance(nodes, int) else 1
    )


def _value(configs: ConfigValues, run: Run, key: str) -> str | None:
    try:
        return configs.value(run, key)
    except AssayError:  # the config is damaged
        return None


def _list_data(runs: Sequence[Run], configs: ConfigValues) -> str:
    seen: Counter[tuple[str, str]] = Counter()
    for run in runs:
        paths = (_value(configs, run, f"data.source.{key}") for key in ("path", "root"))
        seen[" ".join(filter(None, (str(run.choices.get("data")), *paths))), run.data_sha256] += 1
    return _list_items(
        f"{escape_markdown(source)} ({pluralize(count, 'run')}): SHA-256 with its split {digest or UNKNOWN}"
        for (source, digest), count in seen.most_common(_SHOWN)
    )


def _describe_run(path: Path, record: RunRecord, run: Run, configs: ConfigValues) -> dict[str, str]:
    """What is said of one run alone, the selected one."""
    git: Mapping[str, Any] = record.git or {}
    patch = ", with the changes that `code.patch` holds" if git.get("dirty") else ""
    packages = [f"{name} {record.packages[name]}" for name in _PACKAGES if name in record.packages]
    sizes = {name: _value(configs, run, f"spec.num_{name}") or UNKNOWN for name in ("train", "val", "test")}
    keys = ("val", "test", "group", "time", "column", "dedup", "folds")
    split = {key: _value(configs, run, f"data.split.{key}") for key in keys}
    typed = ", ".join(f"{key}={text}" for key, text in split.items() if text not in (None, "null", "false"))
    notes = [escape_markdown(note) for note in record.notes if note.startswith("data")]
    return {
        "run": escape_markdown(path),
        "repeat": f"    assay reproduce {shlex.quote(str(path))}",
        "code": f"commit {git['commit']}{patch}" if git.get("commit") else f"{UNKNOWN}: no commit",
        "software": escape_markdown(", ".join([f"Python {record.machine.get('python')}", *packages])),
        "split": f"{', '.join(f'{size} {name}' for name, size in sizes.items())} ({escape_markdown(typed)})",
        "notes": _list_items(notes) or f"{UNKNOWN}: the run noted nothing.",
        "baseline": escape_markdown(describe_baseline(record.baseline)) if record.baseline else _AUTHORS,
    }
