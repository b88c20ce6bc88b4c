"""What the process of a job does, in real ones."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay.record.outcome import Outcome
from assay.record.run_record import RunRecord

if TYPE_CHECKING:
    from tests.sweep.conftest import MakeJobSpec

    from assay.sweep.job_spec import JobSpec
    from assay.sweep.worker.fork_client import ForkServer

LIMIT = """
import sys
from assay.sweep.worker.run_job import limit_memory
held = bytearray(200 << 20)
limit_memory(0.1)
more = bytearray(50 << 20)
try:
    bytearray(100 << 20)
except MemoryError:
    print("refused")
"""
PRINT = """
import os, sys
from assay.sweep.job_spec import JobSpec
from assay.sweep.worker.run_job import print_to
print_to(JobSpec(4, 2, "run", "{}", ["a=1", "b=\\udcff"], {}, output="out/4.txt", cwd=sys.argv[1]))
print("said")
sys.stderr.write("warned\\n")
sys.stdout.flush()
os.system("echo called")
"""


def run(fork_server: ForkServer, job_spec: JobSpec) -> Outcome:
    key = fork_server.start(job_spec)
    return Outcome.from_json(fork_server.wait([key], 60.0)[key].outcome)


def test_a_resumed_job_ends_as_one_that_was_never_interrupted(
    fork_server: ForkServer, make_job_spec: MakeJobSpec
) -> None:
    often = ("callbacks.last_checkpoint.every_n_train_steps=1", "trainer.max_epochs=2")
    whole = run(
        fork_server, make_job_spec("callbacks.poison.kind=exception", "callbacks.poison.times=0", *often)
    )
    job_spec = make_job_spec("callbacks.poison.kind=exception", "callbacks.poison.times=1", *often)
    assert run(fork_server, job_spec).status == "failed"
    outcome = run(fork_server, replace(job_spec, resume=True, attempt=2))
    assert outcome.status == "finished"
    assert outcome.metrics == whole.metrics
    record = RunRecord.load(Path(job_spec.run_dir))
    assert [entry["from_step"] for entry in record.resumed] == [2]
    assert record.cause == ""
    assert record.overrides == job_spec.overrides


def test_places_are_those_of_the_working_directory(
    fork_server: ForkServer, make_job_spec: MakeJobSpec
) -> None:
    job_spec = make_job_spec("hydra.run.dir=here/run", run_dir="here/run", output="logs/0.txt")
    assert run(fork_server, job_spec).status == "finished"
    assert RunRecord.load(Path(job_spec.cwd, "here", "run")).status == "finished"
    assert Path(job_spec.cwd, "logs", "0.txt").is_file()


def test_an_output_that_cannot_be_written_is_an_outcome(
    fork_server: ForkServer, make_job_spec: MakeJobSpec
) -> None:
    outcome = run(fork_server, make_job_spec(output="conf/project.yaml/0.txt"))
    assert (outcome.status, outcome.cause) == ("failed", "exception")
    assert "project.yaml" in outcome.reason


def test_data_that_is_not_what_the_check_saw_is_refused(
    fork_server: ForkServer, make_job_spec: MakeJobSpec
) -> None:
    spec = {"task": "multiclass", "num_classes": 9, "input_shape": [1, 8, 8]}
    outcome = run(fork_server, make_job_spec(spec=spec))
    assert (outcome.status, outcome.transient) == ("failed", False)
    assert "num_classes" in outcome.reason


def test_a_job_that_was_there_before_is_left_alone(
    fork_server: ForkServer, make_job_spec: MakeJobSpec
) -> None:
    job_spec = make_job_spec()
    assert run(fork_server, job_spec).status == "finished"
    before = Path(job_spec.run_dir, "record.json").read_bytes()
    outcome = run(fork_server, job_spec)
    assert (outcome.status, outcome.cause) == ("failed", "exception")
    assert Path(job_spec.run_dir, "record.json").read_bytes() == before


def test_a_limit_counts_from_what_is_held_already() -> None:
    said = subprocess.run([sys.executable, "-c", LIMIT], check=True, capture_output=True, text=True)
    assert said.stdout == "refused\n"


def test_everything_a_process_says_goes_to_its_file(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PRINT, str(tmp_path)], check=True)
    first, *rest = (tmp_path / "out" / "4.txt").read_text(encoding="utf-8").splitlines()
    assert first.startswith("--- job 4, attempt 2, ")
    assert first.endswith(r": a=1 b=\udcff")
    assert sorted(rest) == ["called", "said", "warned"]
