"""What a run was made of, for its page: the config and who set each value, the machine, the way back."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from assay.config.source_location import shortened
from assay.config.yaml_file import load_mapping
from assay.errors import AssayError
from assay.files.checksum import yaml_is_whole
from assay.files.symlinks import check_inside, read_whole
from assay.record.run_directory import RunDirectory
from assay.report.difference import values_of
from assay.report.page.page import Block, Cell, Code, Facts, Note, Table, Tone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from assay.record.run_record import RunRecord

_PACKAGES: Final = ("assay", "torch", "torchvision", "lightning", "torchmetrics", "hydra-core", "numpy")

_INTO_TRAINER = ("trainer", "device", "precision")


def read_values(run_dir: Path) -> tuple[dict[str, str], str]:
    """Values as they stand in the file: an interpolation in somebody's config is not resolved here.

    Returns:
        By full key, and what is wrong with the file; nothing of what cannot be read.
    """
    path = RunDirectory(run_dir).config
    try:
        check_inside(path, run_dir)
        whole = yaml_is_whole(read_whole(path))
        return values_of(load_mapping(path)), "" if whole else f"{path} is not as the run has written it"
    except OSError as error:
        return {}, f"{path} cannot be read: {error.strerror}"
    except AssayError as error:
        return {}, error.message


def config_blocks(values: dict[str, str], problem: str, record: RunRecord) -> list[Block]:
    """What was typed, and every value of the config with where it came from.

    Args:
        values: From `read_values`.
        problem: From `read_values`.
        record: Of the run.
    """
    typed = Code(shlex.join(record.overrides) or "nothing: all defaults", "Typed")
    warnings = [Note(problem, "warn")] if problem else []
    if not values:
        return [*warnings, typed]
    kept = {key: value for key, value in values.items() if not key.startswith("hydra.")}
    tones: dict[str, Tone] = {"typed": "best", "option": "", "follows": "dim", "default": "dim"}
    rows: list[list[Cell | str]] = [
        [key, Cell(shortened(value), title=value), Cell(source, tone=tones[kind]), Cell(kind, tone="dim")]
        for key, value, source, kind in config_sources(kept, record)
    ]
    caption = (
        "typed: on the command line, as a value or as an option of a group. option: of a group that nobody "
        "chose by hand. follows: from the data or another value. default: of the main config."
    )
    return [
        *warnings,
        typed,
        Table(("key", "value", "from", "how"), rows, caption, filtered=True, wraps=True),
    ]


def environment_blocks(record: RunRecord) -> list[Block]:
    """The machine, the packages, and what the code and the data were."""
    machine, git = record.machine, record.git or {}
    gpus = machine.get("gpus") or []
    memory = machine.get("memory_bytes")
    state = (
        f"{str(git.get('commit'))[:12]}{', with changes' if git.get('dirty') else ''}"
        if git
        else "no repository"
    )
    facts = [
        ("machine", str(machine.get("hostname", ""))),
        ("system", str(machine.get("platform", ""))),
        ("processor", f"{machine.get('cpu', '')}, {machine.get('cores', '?')} cores"),
        ("memory", f"{memory / 2**30:.1f} GiB" if isinstance(memory, int | float) else ""),
        ("GPU", ", ".join(map(str, gpus)) if isinstance(gpus, list) and gpus else "none"),
        ("Python", str(machine.get("python", ""))),
        *((name, str(record.packages[name])) for name in _PACKAGES if name in record.packages),
        ("code", state),
        ("branch", str(git.get("branch") or "")),
        ("data", record.data_sha256[:16]),
        ("weights", record.weights_sha256[:16]),
    ]
    packages = "\n".join(f"{name}=={version}" for name, version in sorted(record.packages.items()))
    blocks: list[Block] = [Facts([(name, value) for name, value in facts if value])]
    return (
        [*blocks, Code(packages, f"All {len(record.packages)} packages", folded=True)] if packages else blocks
    )


def reproduce_blocks(run_dir: Path, record: RunRecord) -> list[Block]:
    """What to type to do it again."""
    kept = [word for word in record.overrides if not word.startswith("hydra.run.dir=")]
    lines = [
        "# the same run again, bit for bit where the machine allows it",
        f"assay reproduce {shlex.quote(str(run_dir))}",
        "",
        "# a new run with the same words, and with other seeds",
        shlex.join(["assay", "train", *kept]),
        shlex.join(
            ["assay", "train", "-m", *(word for word in kept if not word.startswith("seed=")), "seed=1,2,3"]
        ),
    ]
    git = record.git or {}
    notes: list[Block] = []
    if not git.get("commit"):
        notes.append(Note("The code was not in a git repository: only the config says what ran."))
    elif git.get("dirty"):
        whole = git.get("patch_complete")
        notes.append(
            Note("The code had changes; code.patch has them" + (", as a whole." if whole else " in part."))
        )
    return [Code("\n".join(lines)), *notes]


def config_sources(values: Mapping[str, str], record: RunRecord) -> list[tuple[str, str, str, str]]:
    """Key, value, where it came from, and in which of four ways: `typed`, `follows`, `option` or `default`.

    Args:
        values: Value by full key.
        record: Of the run.
    """
    again = (str(word) for entry in record.resumed for word in entry.get("overrides", ()))
    typed = _typed([*record.overrides, *again])
    return [(key, value, *_source(key, typed, record)) for key, value in values.items()]


def _source(key: str, typed: Mapping[str, str], record: RunRecord) -> tuple[str, str]:
    whole = key.partition("[")[0]
    parts = whole.split(".")
    for end in range(len(parts), 0, -1):
        above = ".".join(parts[:end])
        if above in typed and above not in record.choices:
            return typed[above], "typed"
    if whole in record.interpolations:
        return record.interpolations[whole], "follows"
    if parts[0] == "spec":
        return "the data", "follows"
    for end in range(len(parts), 0, -1):
        above = ".".join(parts[:end])
        if above in record.set_by and above not in record.choices:
            option = record.set_by[above]
            return option, "typed" if option.partition("=")[0] in typed else "option"
    groups = _INTO_TRAINER if parts[0] == "trainer" else (f"{parts[0]}/{'/'.join(parts[1:2])}", parts[0])
    chosen = [(group, record.choices[group]) for group in groups if record.choices.get(group)]
    if not chosen:
        return "default", "default"
    if parts[0] != "trainer":
        chosen = chosen[:1]
    by_hand = any(group in typed for group, _ in chosen)
    told = (f"{group}={_text(option)}{_chosen_by(group, record)}" for group, option in chosen)
    return " ".join(told), "typed" if by_hand else "option"


def _chosen_by(group: str, record: RunRecord) -> str:
    return f" of {record.set_by[group]}" if group in record.set_by else ""


def _typed(overrides: Sequence[str]) -> dict[str, str]:
    """What was typed, by the key or group before the equals sign."""
    return {override.partition("=")[0].lstrip("+~").partition("@")[0]: override for override in overrides}


def _text(option: Any) -> str:
    return f"[{','.join(map(str, option))}]" if isinstance(option, list) else str(option)
