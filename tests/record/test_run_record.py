"""`record.json` comes back as it was written, is JSON always, and is never mistaken for what it is not."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.errors import AssayError
from assay.record.run_record import SCHEMA_VERSION, RunRecord

ROOT = Path(__file__).parents[2]


def record(**fields: Any) -> RunRecord:
    given = {
        "run_id": "a",
        "name": "b",
        "status": "finished",
        "started": "2026-01-01T00:00:00+00:00",
        "seed": 0,
    }
    return RunRecord(**{**given, "fingerprint": "f" * 64, "config_fingerprint": "c" * 64, **fields})


def written(folder: Path) -> dict[str, Any]:
    """As any other program reads it."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    plain: dict[str, Any] = json.loads(
        (folder / "record.json").read_text(encoding="utf-8"), parse_constant=refuse
    )
    return plain


numbers = st.floats() | st.integers(-(2**53), 2**53)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.fixed_dictionaries(
        {
            "metrics": st.dictionaries(st.text(max_size=10), st.floats(), max_size=5),
            "best": st.fixed_dictionaries({"monitor": st.just("val/loss"), "value": numbers}),
            "matrices": st.dictionaries(
                st.text(max_size=5), st.lists(st.lists(st.floats(), max_size=3), max_size=3)
            ),
            "tags": st.lists(st.text(max_size=10), max_size=3),
            "seconds": st.floats(0, 1e9),
        }
    )
)
def test_comes_back_as_it_was(tmp_path: Path, fields: dict[str, Any]) -> None:
    one = record(**fields)
    one.save(tmp_path)
    written(tmp_path)
    assert repr(RunRecord.load(tmp_path)) == repr(one)  # by repr, since nan is not equal to nan


def test_every_field_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "record.md").read_text(encoding="utf-8")
    documented = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert documented == set(RunRecord.__struct_fields__)


def test_secrets_are_struck_out_and_json_stays_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "1234567")
    monkeypatch.setenv("B_TOKEN", '", "status": "')
    record(
        overrides=["logger.key=1234567", 'a=", "status": "x'],
        machine={"memory_bytes": 1234567},
        choices={"a": Path("1234567")},
    ).save(tmp_path)
    plain = written(tmp_path)
    assert plain["overrides"] == ["logger.key=***", "a=***x"]
    assert plain["machine"] == {"memory_bytes": 1234567}
    assert plain["choices"] == {"a": "***"}
    assert RunRecord.load(tmp_path).status == "finished"


def test_a_half_record_is_an_error_at_every_length(tmp_path: Path) -> None:
    record(metrics={"a": 1.0}).save(tmp_path)
    content = (tmp_path / "record.json").read_bytes().rstrip()
    for length in range(len(content)):
        (tmp_path / "record.json").write_bytes(content[:length])
        with pytest.raises(AssayError, match=r"record\.json"):
            RunRecord.load(tmp_path)


def test_no_record_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="is not a run directory"):
        RunRecord.load(tmp_path)
    (tmp_path / "record.json").mkdir()
    with pytest.raises(AssayError, match="cannot be read"):
        RunRecord.load(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "schema_version",
            SCHEMA_VERSION + 1,
            f"schema version {SCHEMA_VERSION + 1}; this assay reads {SCHEMA_VERSION}",
        ),
        ("status", "done", r"enum value 'done' - at `\$\.status`"),
        ("seed", "0", r"`int`, got `str` - at `\$\.seed`"),
        ("tags", [1], r"`\$\.tags\[0\]`"),
        ("resumed", [1], r"`\$\.resumed\[0\]`"),
        ("surprise", 1, "unknown field `surprise`"),
    ],
)
def test_wrong_types_and_unknown_fields(tmp_path: Path, field: str, value: Any, message: str) -> None:
    record().save(tmp_path)
    (tmp_path / "record.json").write_text(json.dumps({**written(tmp_path), field: value}))
    with pytest.raises(AssayError, match=message) as caught:
        RunRecord.load(tmp_path)
    assert str(tmp_path / "record.json") in caught.value.message


def test_how_a_run_ended_is_decided_where_the_exception_is() -> None:
    one = record()
    one.failed_by(ConnectionResetError("it is gone"))
    assert (one.outcome.status, one.cause, one.reason) == (
        "failed",
        "machine",
        "ConnectionResetError: it is gone",
    )
    one.interrupted_by("SIGHUP")
    assert (one.status, one.reason, one.signal) == ("interrupted", "stopped by SIGHUP", "SIGHUP")
