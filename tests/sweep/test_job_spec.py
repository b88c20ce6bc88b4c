"""A job on its way to another process or machine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay.sweep.job_spec import JobSpec

TEXT = st.text(max_size=20)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
MAPPING = st.dictionaries(TEXT, PLAIN, max_size=3)
ANY = st.builds(
    JobSpec,
    number=st.integers(0, 1 << 40),
    attempt=st.integers(1, 9),
    run_dir=TEXT,
    config=TEXT,
    overrides=st.lists(TEXT, max_size=3),
    choices=MAPPING,
    spec=MAPPING,
    resume=st.booleans(),
    output=TEXT,
    cwd=TEXT,
    environment=st.dictionaries(TEXT, st.none() | TEXT, max_size=3),
    processes=st.integers(1, 8),
    gpus=st.integers(0, 8),
    threads=st.integers(1, 8),
    memory_gb=st.none() | st.floats(0, 1e4),
    trial=st.none() | MAPPING,
)


@given(ANY)
def test_it_arrives_as_it_was_in_one_line(job_spec: JobSpec) -> None:
    text = job_spec.to_json()
    assert "\n" not in text
    assert JobSpec.from_json(text) == job_spec
