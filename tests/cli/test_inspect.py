from __future__ import annotations

from tests.cli.typed import in_an_empty_folder, typed

__all__ = ["in_an_empty_folder"]


def test_info() -> None:
    lines = typed("info").stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["versions", "cpu", "gpu", "device=auto"]
    assert len({line.index(line.split()[1]) for line in lines if line.startswith("  ")}) == 1, "aligned"


def test_explain() -> None:
    result = typed("explain", "optimizer.lr", "experiment=digits_image", "optimizer.lr=0.1")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["optimizer.lr", "=", "0.1"],
        ["set", "by", "command", "line", "optimizer.lr=0.1"],
        ["over", "conf/experiment/digits_image.yaml:15", "0.003"],
        ["over", "conf/optimizer/adamw.yaml:4", "auto"],
    ]
    wrong = typed("explain", "optimzer")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "did you mean 'optimizer'?" in wrong.stderr


def test_diff() -> None:
    result = typed("diff", "", "seed=1")
    assert result.exit_code == 0, "a report, whatever it says"
    assert result.stdout.splitlines()[-1].split() == ["seed", "0", "1"]
    assert typed("diff", "", "").stdout == "no difference\n"
    wrong = typed("diff", "nowhere", "")
    assert (wrong.exit_code, wrong.stdout) == (1, "")
    assert len(wrong.stderr.splitlines()) == 2


def test_configs_of_a_group() -> None:
    lines = typed("configs", "device").stdout.splitlines()
    assert lines[0] == "device"
    assert lines[1].split()[0] == "auto"
