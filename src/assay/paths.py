"""Where assay's own configs lie: in the wheel beside the code, or at the top of a checkout."""

from __future__ import annotations

from pathlib import Path

CODE_DIR = Path(__file__).resolve().parent
"""Folder of the code."""

CONF_DIR: Path = (
    CODE_DIR / "conf" if (CODE_DIR / "conf").is_dir() else CODE_DIR.parents[1] / "conf"
)
"""Folder of the shipped config groups."""


def project_conf(folder: Path | None = None) -> Path | None:
    """The `conf` folder of a project, if there is one beside assay's own."""
    found = (folder or Path.cwd()) / "conf"
    if found.is_dir() and found.resolve() != CONF_DIR.resolve():
        return found
    return None


PROJECT = "project"
COMMAND_LINE = "command-line"
"""Who added a folder to Hydra's search path; the latter is Hydra's own name for --config-dir."""


def config_folders(config_dir: Path | None = None) -> list[Path]:
    """The folders of config groups beside assay's own: that of the project, and that of --config-dir."""
    folders = [folder for folder in (project_conf(), config_dir) if folder is not None]
    return list({folder.resolve(): folder for folder in folders}.values())


PACKAGES = {
    "experiment": "_global_",
    "debug": "_global_",
    "task": "_global_",
    "device": "trainer",
    "precision": "trainer",
}
"""Groups whose options are merged somewhere else than under their own name."""
