"""Type what commands.yaml and mistakes.yaml say, and tell on a page what users saw and what was written."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from tests.forks import Forks
from tests.goldens import in_a_fork, inputs
from tests.goldens.masks import mask, mask_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE: Final = Path(__file__).parent
MISTAKES: Final = "mistakes"
_SHOWN: Final = re.compile(r"(^|/)(results|out_of_fold|predictions)\w*\.(csv|jsonl)$")
"""Files of which the first lines are on the page."""
_LINES: Final = 3


@dataclass(frozen=True)
class Scenario:
    """Commands that are typed one after another in a folder of their own; see commands.yaml."""

    family: str
    name: str
    steps: list[str]
    inputs: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    copy: str = ""


@dataclass(frozen=True)
class Observed:
    """What came of a scenario: its page, and the SHA-256 of the weights of each run."""

    page: str
    weights: dict[str, str]


def read_scenarios() -> dict[str, Scenario]:
    """Read commands.yaml; the key is FAMILY/NAME."""
    families = yaml.safe_load((HERE / "commands.yaml").read_text(encoding="utf-8"))
    words = {f"<{name}>": text for name, text in families.pop("words").items()}
    pattern = re.compile("|".join(words))
    scenarios = {}
    for family, named in families.items():
        for name, plain in named.items():
            steps = [pattern.sub(lambda match: words[match[0]], step) for step in plain.pop("steps")]
            scenarios[f"{family}/{name}"] = Scenario(family, name, steps, **plain)
    return scenarios


def read_mistakes() -> list[str]:
    """The command lines of mistakes.yaml."""
    typed: list[str] = _mistakes()["typed"]
    return typed


def _mistakes() -> dict[str, Any]:
    mistakes: dict[str, Any] = yaml.safe_load((HERE / "mistakes.yaml").read_text(encoding="utf-8"))
    return mistakes


def observe(scenario: Scenario, folder: Path) -> Observed:
    """Type the steps of a scenario.

    Args:
        scenario: One of `read_scenarios`.
        folder: An empty one.
    """
    given = _prepare(folder, scenario.inputs, scenario.files, scenario.copy)
    lines = []
    with _fork(folder) as forks:
        for step in scenario.steps:
            lines += [
                f"$ assay {step}".rstrip(),
                *_told(*_type(forks, shlex.split(step), folder), folder),
                "",
            ]
    written = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    written = {name: written[name] for name in sorted(written) if name not in given and not _unstable(name)}
    if written:
        lines += [
            "--- files",
            *dict.fromkeys(re.sub(r"\b\d+\b", "<n>", mask(name, folder)) for name in written),
        ]
    for name, path in written.items():
        if _SHOWN.search(name):
            shown = mask_numbers(mask(_read(path), folder)).splitlines()[:_LINES]
            lines += [f"--- {mask(name, folder)}", *shown]
    runs = [path.parent for name, path in written.items() if Path(name).name == "record.json"]
    if runs:
        lines += _describe_run(runs[0])
    weights = {}
    for run in runs:
        name = mask(str(run.relative_to(folder)), folder)
        weights[name] = json.loads(_read(run / "record.json"))["weights_sha256"]
    return Observed("\n".join(lines), weights)


def observe_mistakes(folder: Path, typed: Sequence[str]) -> dict[str, str]:
    """Type mistakes; the page of each by its command line.

    Args:
        folder: An empty one.
        typed: Command lines.
    """
    mistakes = _mistakes()
    _prepare(folder, mistakes["inputs"], {}, "")
    (folder / "empty").mkdir()
    lines = folder.parent / "typed.json"
    lines.write_text(json.dumps(typed), encoding="utf-8")
    with _fork(folder) as forks:
        for step in [*mistakes["before"], f"{in_a_fork.MANY}={shlex.quote(str(lines))}"]:
            code, _, stderr = _type(forks, shlex.split(step), folder)
            assert not code, stderr
    ends = json.loads(_read(lines))
    return {
        line: "\n".join(_told(end[0], end[1], end[2], folder)) for line, end in zip(typed, ends, strict=True)
    }


def _prepare(folder: Path, functions: Sequence[str], files: dict[str, str], copy: str) -> set[str]:
    if copy:
        shutil.copytree(HERE.parents[1] / copy, folder, dirs_exist_ok=True)
    for function in functions:
        getattr(inputs, function)(folder)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def _unstable(name: str) -> bool:
    """Whether a file is there by chance: how git stands, or what an interpreter keeps."""
    return name.endswith("code.patch") or "__pycache__" in name


def _fork(folder: Path) -> Forks:
    variables = {"COLUMNS": "100", "TERM": "dumb", "CUDA_VISIBLE_DEVICES": ""}
    return Forks(**variables, **{in_a_fork.STDERR: str(folder.parent / "stderr.txt")})


def _type(forks: Forks, words: Sequence[str], folder: Path) -> tuple[int, str, str]:
    output = folder.parent / "stdout.txt"
    output.unlink(missing_ok=True)
    ended = forks.command(*words, cwd=folder, module=in_a_fork.__name__, output=output)
    return ended.code, _read(output), _read(folder.parent / "stderr.txt")


def _told(code: int, stdout: str, stderr: str, folder: Path) -> Iterator[str]:
    if code:
        yield f"exit code {code}"
    if stdout.startswith("{"):
        stdout = _outline(json.loads(stdout))
    if stdout.strip():
        yield mask_numbers(mask(stdout.rstrip("\n"), folder))
    if stderr.strip():
        yield "--- stderr"
        yield mask_numbers(mask(stderr.rstrip("\n"), folder))


def _outline(value: Any, indent: str = "") -> str:
    """A JSON document without its fractions, and without entries of the same shape as one before them."""
    if isinstance(value, float):
        return "<float>"
    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    entries = (
        [(f'"{key}": ', one) for key, one in value.items()]
        if isinstance(value, dict)
        else [("", one) for one in value]
    )
    flat = not any(isinstance(one, dict | list) for _, one in entries)
    shapes = set()
    lines = []
    for name, one in entries:
        shape = _shape(one)
        lines.append(name + ("…" if shape in shapes else _outline(one, indent + " ")))
        if isinstance(one, dict):
            shapes.add(shape)
    begin, end = "{}" if isinstance(value, dict) else "[]"
    if flat:
        return begin + ", ".join(lines) + end
    return f"{begin}\n" + "".join(f"{indent} {line}\n" for line in lines) + indent + end


def _shape(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shape(one)}" for key, one in value.items()) + "}"
    return type(value).__name__


def _describe_run(run: Path) -> Iterator[str]:
    yield "--- keys of its record.json"
    words = []
    for key, value in json.loads(_read(run / "record.json")).items():
        keys = sorted(value) if isinstance(value, dict) and key not in ("packages", "files") else []
        words.append(f"{key}({' '.join(keys)})" if keys else key)
    yield textwrap.fill(" ".join(words), 110, break_long_words=False, break_on_hyphens=False)
    if (run / "metrics.csv").is_file():
        yield "--- columns of its metrics.csv"
        yield _read(run / "metrics.csv").partition("\n")[0]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
