from __future__ import annotations

import inspect

import pytest

from assay.sweep.launcher.launcher import Launcher
from assay.sweep.launcher.local import LocalLauncher
from assay.sweep.launcher.ray import RayLauncher
from assay.sweep.launcher.slurm import SlurmLauncher


@pytest.mark.parametrize("kind", [LocalLauncher, RayLauncher, SlurmLauncher])
def test_each_launcher_can_be_asked_what_the_interface_asks(kind: type[Launcher]) -> None:
    assert not inspect.isabstract(kind)
    for name, asked in vars(Launcher).items():
        if inspect.isfunction(asked) and not name.startswith("_"):
            assert inspect.signature(getattr(kind, name)) == inspect.signature(asked), name


def test_what_a_launcher_need_not_say() -> None:
    assert Launcher.waits(None, 3) is False  # type: ignore[arg-type]  # it looks at no launcher
    assert Launcher.kept(None) == ()  # type: ignore[arg-type]
    assert not Launcher.keeps_files
