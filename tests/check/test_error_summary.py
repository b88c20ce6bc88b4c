from assay.check.error_summary import Failure, summary_of
from assay.errors import AssayError, ConfigError, DataError


def test_the_same_message_is_told_once() -> None:
    same = [(number, [f"seed={number}"], ConfigError("wrong", key="seed")) for number in (2, 4, 5)]
    lines = summary_of([*same, (7, ["data=x"], DataError("gone"))], 9).message.splitlines()
    assert lines[0] == "4 of 9 jobs cannot run; none was started"
    assert lines[1] == "job 2 and 2 more (seed=2)"
    assert [line for line in lines if "wrong" in line] == [f"  {ConfigError('wrong', key='seed')}"]
    assert lines[-2:] == ["job 7 (data=x)", "  gone"]


def test_of_many_ten_are_shown() -> None:
    failures: list[Failure] = [(number, [], AssayError(f"wrong {number}")) for number in range(13)]
    lines = summary_of(failures, 13).message.splitlines()
    assert sum(line.startswith("  wrong") for line in lines) == 10
    assert lines[-1] == "… and 3 other errors"


def test_the_highest_exit_code_counts() -> None:
    config, data = ConfigError("a"), DataError("b")
    codes = {config.exit_code, data.exit_code}
    assert len(codes) == 2
    for order in ((config, data), (data, config)):
        assert summary_of([(n, [], one) for n, one in enumerate(order)], 2).exit_code == max(codes)
