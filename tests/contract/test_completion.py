"""Tab completion answers in a shell: verbs, groups, options, keys."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.config.completion import complete

ROOT = Path(__file__).parents[2]
VERBS = {
    "train": ["--multirun", "-m", "--config-dir", "-cd"],
    "configs": ["--config-dir"],
    "info": ["--debug"],
}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("assay tr", ["train"]),
        ("assay ", ["configs", "info", "train"]),
        ("assay train optim", ["optimizer.", "optimizer="]),
        ("assay train optimizer=ad", ["optimizer=adagrad", "optimizer=adam", "optimizer=adamw"]),
        ("assay train optimizer.l", ["optimizer.lr="]),
        ("assay train optimizer=sgd optimizer.mom", ["optimizer.momentum="]),
        (
            "assay train -m optimizer=sgd,ad",
            ["optimizer=sgd,adagrad", "optimizer=sgd,adam", "optimizer=sgd,adamw"],
        ),
        ("assay train -m optimizer=sgd,adam optimizer.l", ["optimizer.lr="]),
        ("assay train callbacks=[default,em", ["callbacks=[default,ema"]),
        ("assay train data/tr", ["data/transform="]),
        ("assay train dat", ["data.", "data/", "data="]),
        ("assay train data/transform=re", ["data/transform=resize"]),
        ("assay train optimizer.lr=", ["optimizer.lr=0.001"]),
        ("assay train --mul", ["--multirun"]),
        ("assay train --config-dir nowhere model=line", ["model=linear"]),
        ("assay configs schedu", ["scheduler"]),
        ("assay info opt", []),
        ("assay nonsense opt", []),
        ("assay train nonsense=1 optimizer.l", []),
    ],
)
def test_last_word(line: str, words: list[str]) -> None:
    assert complete(line, VERBS) == words


def test_parts_of_options_are_not_offered() -> None:
    assert not [word for word in complete("assay train data=", VERBS) if "_loading" in word]


def test_own_options_are_offered(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mlperf.yaml").write_text(
        "# Mine.\n_target_: torch.nn.Identity\n", encoding="utf-8"
    )
    words = complete(f"assay train --config-dir {tmp_path} model=ml", VERBS)
    assert words == ["model=mlp", "model=mlperf"]


def ask_bash(line: str, folder: Path) -> list[str]:
    """Install the function in a real bash, let it complete a line, and read what bash would offer."""
    script = (
        'eval "$(assay -sc install=bash)"; '
        'COMP_LINE="$1"; COMP_POINT=${#1}; COMP_CWORD=$2; hydra_bash_completion; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [str(shutil.which("bash")), "-c", script, "bash", line, str(len(line.split()) - 1)],
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="the test types into bash")
def test_in_bash(tmp_path: Path) -> None:
    command = tmp_path / "assay"
    command.write_text(f"#!{sys.executable}\nfrom assay.cli import main\nmain()\n", encoding="utf-8")
    command.chmod(0o755)
    assert ask_bash("assay tr", tmp_path) == ["train"]
    assert ask_bash("assay train optimizer=ad", tmp_path) == [
        "optimizer=adagrad",
        "optimizer=adam",
        "optimizer=adamw",
    ]
    assert ask_bash("assay train optimizer.l", tmp_path) == ["optimizer.lr="]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_prints_a_script(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.cli import main

    monkeypatch.setattr(sys, "argv", ["assay", "-sc", f"install={shell}"])
    main()
    assert "assay" in capsys.readouterr().out


def test_fish_gets_a_word_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.cli import main

    monkeypatch.setenv("COMP_LINE", "assay train optimizer=ad")
    monkeypatch.setattr(sys, "argv", ["assay", "-sc", "query=fish"])
    main()
    assert capsys.readouterr().out.splitlines() == ["optimizer=adagrad", "optimizer=adam", "optimizer=adamw"]
