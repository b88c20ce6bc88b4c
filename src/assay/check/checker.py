"""Jobs are checked before they run: what a config tells without torch, then the rest, each thing once."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from assay.assemble.trainer_options import refuse_foreign_ranks
from assay.check.values import SEED, check_data_root, check_output_paths, check_values
from assay.compose.compose import SweepRequested, compose_job
from assay.compose.recipe import check_fused
from assay.config.did_you_mean import did_you_mean, list_names
from assay.config.omegaconf_internals import root_of
from assay.config.serialize import fingerprint_of
from assay.config.tree import OF_SPEC, places
from assay.config.unread_keys import OPTIONAL_GROUPS, OUR_DATA, OUR_MODULE
from assay.errors import AssayError, ConfigError, first_line
from assay.quoting import reads_as_number
from assay.record.run_directory import refuse_existing
from assay.record.secrets import STRUCK, holds_secret, remember_secrets
from assay.rooms import entries, name_source
from assay.targets.allowed_targets import check_targets
from assay.targets.annotation import check_value
from assay.targets.resolve import check_installed, check_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.check.report import Proof, Report
    from assay.compose.compose import Job
    from assay.config.tree import Entry


@final
class Checker:
    """Checks jobs: names and values first, without torch, then everything else."""

    def __init__(
        self,
        config_dir: Path | None = None,
        *,
        curve: bool = False,
        prove: Callable[[Job], Proof] | None = None,
        accept: Callable[[Report], None] = lambda _: None,
    ) -> None:
        self._config_dir = config_dir
        self._curve = curve
        self._accept = accept
        self._prove = prove or self._prove_here
        self._prover: Any = None
        self._words: set[tuple[str, str]] = set()
        self._named: set[tuple[str, str]] = set()
        self._proven: dict[str, Report] = {}

    def job(self, overrides: Sequence[str]) -> Job:
        """Compose a job and refuse what can be seen without torch: a mistyped word costs no wait."""
        job = compose_job(overrides, self._config_dir)
        self.names({0: job})
        refuse_existing(Path(job.config["run_dir"]))
        return job

    def single_job(self, overrides: Sequence[str]) -> Job | None:
        """The same; None where the config asks for a sweep."""
        try:
            return self.job(overrides)
        except SweepRequested:
            return None

    def names(self, jobs: Mapping[int, Job]) -> None:
        """Refuse errors that can be found without torch; skip a job whose words were all checked before."""
        for job in jobs.values():
            # A number is not a mistyped word: what is wrong with it is seen soon enough.
            words = (
                text for text in job.overrides if not reads_as_number(text.partition("=")[2])
            )
            if new := {(job.shared, word) for word in (*words, "")} - self._words:
                with name_source(job.overrides, self._config_dir):
                    self._check_names(job)
                self._words |= new

    def report(self, job: Job) -> Report:
        """Check a job; reuse the report of a job that differs only in the seed."""
        alike = _fingerprint_without_seed(job)
        if alike not in self._proven:
            report = self.check(job).report
            if alike and not report.data_read:
                self._proven[alike] = report
            return report
        with name_source(job.overrides, self._config_dir):
            check_value("seed", job.config.get("seed"), SEED)
        return replace(
            self._proven[alike],
            overrides=job.overrides,
            name=str(job.config["name"]),
            seconds=0.0,
        )

    def check(self, job: Job) -> Proof:
        """Check a job, and return the proof, whose objects its run can use."""
        with name_source(job.overrides, self._config_dir):
            self._check_names(job)
            proof = self._prove(job)
            self._accept(proof.report)
        return proof

    def _check_names(self, job: Job) -> None:
        key = (job.fingerprint, str(job.config["run_dir"]))
        if key not in self._named:
            check_job(job.view())
            self._named.add(key)

    def _prove_here(self, job: Job) -> Proof:
        if self._prover is None:
            self._prover = make_prover()
        proof: Proof = self._prover.prove(job.view(), job.overrides, curve=self._curve)
        return proof


@final
class SignatureProver:
    """Looks at signatures alone, where no room proves a step."""

    def prove(
        self, job: DictConfig, overrides: Sequence[str] = (), *, curve: bool = False
    ) -> Proof:
        """Refuse a job whose parts cannot be called with their arguments."""
        from assay.check.report import Proof, Report
        from assay.check.signature import check_signatures

        del curve
        check_signatures(job)
        unproven = "assay_prove, which tries one, is not installed"
        return Proof(Report(list(overrides), str(job.name), data_read=True, unproven=unproven))


def make_prover() -> Any:
    """What proves jobs: the prover of a room; it imports torch."""
    provers = entries("prove")
    if provers:
        return provers[-1]()
    return SignatureProver()


def _fingerprint_without_seed(job: Job) -> str:
    """Fingerprint of a job without its seed; empty if other values depend on the seed."""
    text = json.dumps(job.config, default=str)
    inside = text.count("${seed}") - (job.config.get("data", {}).get("seed") == "${seed}")
    if inside:
        return ""
    return fingerprint_of(job.config, without=("seed",))


_NAMES_OF_FILES = ("name", "run_dir", "dirpath", "filename", "save_dir", "path")


def _name_columns(config: DictConfig) -> str:
    """The columns that a user may choose from; empty where the file is not a table, or cannot be read."""
    with suppress(AssayError, OmegaConfBaseException, OSError):
        source = config.data.source
        path = str(source.path)  # raises where it is missing, too

        # pandas takes half a second
        from assay.data.table.table_file import FILE_OPTIONS, read_table

        options = {name: source[name] for name in FILE_OPTIONS if source.get(name) is not None}
        return f"; columns: {list_names(map(str, read_table(path, **options)))}"
    return ""


def check_job(config: DictConfig) -> None:
    """Refuse a job with holes, dangling interpolations, values out of range, or things that are not here."""
    refuse_foreign_ranks()
    entries = [entry for entry in places(config) if not entry.is_followed]
    if missing := sorted(entry.key for entry in entries if entry.is_missing):
        message = "each of these must be given"
        if len(missing) == 1:
            message = "this must be given"
        hint = f"add {' '.join(f'{key}=…' for key in missing)}"
        if not {"data.source.target", "data.source.text", "data.source.image"}.isdisjoint(
            missing
        ):
            hint += _name_columns(config)
        raise ConfigError(message, key=", ".join(missing), hint=hint)
    _check_secrets(entries)
    check_targets(config)
    check_tasks(config)
    for entry in entries:
        if entry.is_interpolation and entry.value == entry.raw:
            _check_interpolation(entry, [other.key for other in entries])
    _check_targets(config)
    check_values(config)
    check_fused(config)
    check_installed(config)
    check_data_root(config)
    check_output_paths(config)


def _check_secrets(entries: list[Entry]) -> None:
    """Refuse secrets in names of files, and redacted placeholders."""
    for entry in entries:
        text = None
        if not entry.is_container:
            text = entry.raw
        if not isinstance(text, str):
            continue
        remember_secrets(text, entry.key.rpartition(".")[2].partition("[")[0])
        if text == STRUCK or f"://{STRUCK}@" in text:
            raise ConfigError(
                "a secret was here, which the run directory does not keep",
                key=entry.key,
                hint=f"{entry.key}=${{oc.env:NAME}}, with the secret in the environment variable NAME",
            )
        if entry.name in _NAMES_OF_FILES and holds_secret(text):
            key = entry.key
            if entry.key == "run_dir":
                key = "hydra.run.dir"
            raise ConfigError(
                "the name of a file or folder would contain a secret",
                key=key,
                hint="remove the secret from the name",
            )


def _check_interpolation(entry: Entry, keys: list[str]) -> None:
    """Refuse interpolations of keys that do not exist; `${spec.…}` comes with the data."""
    if OF_SPEC.fullmatch(str(entry.raw)) and "spec" not in root_of(entry.node):
        return  # most of them, and OmegaConf's errors are slow
    try:
        entry.parent[entry.name]
    except InterpolationKeyError as error:
        missing = str(error).partition("Interpolation key '")[2].partition("'")[0]
        if missing.partition(".")[0] == "spec":
            return
        guess = did_you_mean(missing, [key for key in keys if key != entry.key], "; ")
        raise ConfigError(
            f"it refers to the key {missing!r}, which does not exist{guess}",
            key=entry.key,
            hint=f"{entry.key}=VALUE, or ${{…}} of a key that `assay train --cfg` shows",
        ) from error
    except OmegaConfBaseException as error:
        text = first_line(error).rpartition("resolving interpolation: ")[2]
        raise ConfigError(text, key=entry.key, hint=f"{entry.key}=VALUE") from error


def _check_targets(config: DictConfig) -> None:
    """The nodes that no run can do without, and those of groups whose options add up."""
    ours = OmegaConf.select(config, "module._target_") == OUR_MODULE
    needed = ["trainer", "module", "data"]
    if OmegaConf.select(config, "data._target_") == OUR_DATA and "source" in config.data:
        needed.append("data.source")
    if ours:
        needed += ["model", "loss", "optimizer", "metrics.train", "metrics.eval"]
        needed += [key for key in OPTIONAL_GROUPS if config.get(key)]
    for group in ("callbacks", "logger"):
        needed += [
            f"{group}.{name}"
            for name, node in (config.get(group) or {}).items()
            if node is not None
        ]
    for key in needed:
        node = OmegaConf.select(config, key)
        if not isinstance(node, DictConfig) or not node.get("_target_"):
            may_go = key.startswith(("callbacks.", "logger."))
            hint = f"{key}._target_=…, or leave {key} as it is"
            if may_go:
                hint = f"~{key}"
            if isinstance(node, str) and "." not in key:
                hint = f"a file chooses an option under `defaults`: - override /{key}: {node}"
            raise ConfigError("does not name a class: it has no _target_", key=key, hint=hint)
