"""Every YAML under conf/ composes, says what it is, and mirrors src/ and tests/."""

from pathlib import Path

import pytest
from omegaconf import DictConfig, ListConfig

from assay.config.compose import compose, loader, compose_with
from assay.config.options import Option, list_options
from assay.paths import CONF_DIR

ROOT = Path(__file__).parents[2]
OPTIONS = list_options()
LISTED = ("callbacks", "logger")  # groups of which several options add up
NEEDS = {"teacher": ["augment.model.run=somewhere"], "digits_distillation": ["augment.model.run=somewhere"]}
NUM_OPTIONS = 0


def test_count() -> None:
    seen = len(OPTIONS)
    parts = [path for path in CONF_DIR.rglob("_*.yaml")]
    every = list(CONF_DIR.rglob("*.yaml"))
    assert seen + len(parts) + 1 == len(every), "an option nobody looked at"
    assert seen == NUM_OPTIONS


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.group}/{option.name}")
def test_composes(option: Option) -> None:
    choice = f"[{option.name}]" if option.group in LISTED else option.name
    plus = "+" if option.group not in known_groups() else ""
    compose([f"{plus}{option.group}={choice}", *NEEDS.get(option.name, [])])


def known_groups() -> set[str]:
    with loader() as hydra:
        chosen = compose_with(hydra, []).hydra.runtime.choices
    return {str(group) for group in chosen}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.group}/{option.name}")
def test_describes_itself(option: Option) -> None:
    assert 10 <= len(option.description) <= 160
    assert option.description[0].isupper() or option.description[0].isdigit()


def targets(node: object) -> list[str]:
    found = []
    if isinstance(node, DictConfig) and not node._is_none():
        if "_target_" in node:
            found.append(str(node._get_node("_target_")))
        for name in node:
            found += targets(node._get_node(name))
    elif isinstance(node, ListConfig) and not node._is_none():
        for index in range(len(node)):
            found += targets(node._get_node(index))
    return found


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.group}/{option.name}")
def test_mirror(option: Option) -> None:
    """A target assay.G.x.X lives in src/assay/G/x.py, and tests/G/test_x.py tests it."""
    from omegaconf import OmegaConf

    for target in targets(OmegaConf.load(option.path)):
        if not target.startswith("assay.") or target == "assay.load":
            continue
        package, _, name = target.rpartition(".")
        path = ROOT / "src" / (package.replace(".", "/") + ".py")
        assert path.is_file(), target
        assert f"class {name}" in path.read_text(encoding="utf-8") or f"def {name}" in path.read_text(encoding="utf-8")
        stem = package.split(".", 1)[1].replace(".", "/")
        group, _, module = stem.rpartition("/")
        assert (ROOT / "tests" / group / f"test_{module}.py").is_file(), f"no tests/{group}/test_{module}.py for {target}"
