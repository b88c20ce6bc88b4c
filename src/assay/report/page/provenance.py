"""What a run was made of, for its page: the config and who set each value, the machine, the way back."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from assay.config.yaml_file import load_mapping
from assay.config.yaml_lines import shortened
from assay.errors import AssayError
from assay.files.sealed import yaml_is_whole
from assay.files.symlinks import check_inside, read_whole
from assay.record.run_directory import RunDirectory
from assay.report.difference import values_of
from assay.report.page.config_sources import config_sources
from assay.report.page.page import Block, Cell, Code, Facts, Note, Table, Tone

if TYPE_CHECKING:
    from pathlib import Path

    from assay.record.run_record import RunRecord

_PACKAGES: Final = ("assay", "torch", "torchvision", "lightning", "torchmetrics", "hydra-core", "numpy")


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
