"""What `assay check` answers to a broken or unusual value of every argument of every option.

It accepts the job, or refuses it with an error of assay's own that names the changed key or the node it
stands in. What it accepts is trained.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from typing import TYPE_CHECKING

import pytest
import torchmetrics
from omegaconf import DictConfig, OmegaConf
from tests.check.generated import bases, cases
from tests.check.known_faults import IN_TRAINING, OF_CHECK

from assay.check.checker import check_job
from assay.compose.compose import JobComposer, loader
from assay.config.tree import walk
from assay.errors import AssayError, ConfigError, NonFiniteError
from assay.targets.trust import trust_for
from assay_prove.prove import Prover

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tests.check.generated import Case
    from tests.conftest import Train

ALWAYS = ("", "optimizer/sgd", "scheduler/step", "model/small_cnn")
"""Options that are looked at in every run of the tests, at `FEW` of their cases each."""
FEW = 8
TRAINED = 40
"""One in so many accepted cases is trained."""


@pytest.fixture(scope="module")
def composer(project: Path) -> Iterator[JobComposer]:
    with loader() as hydra:
        yield JobComposer(hydra, trust_for(hydra, []), project / "sweep")


@pytest.fixture(scope="module")
def corpus(composer: JobComposer) -> list[Case]:
    return list(cases(composer))


@pytest.fixture(scope="module")
def prover() -> Prover:
    return Prover()


def drawn(case: Case) -> int:
    """A number that looks random and is the same in every run."""
    return int(hashlib.sha256(f"{case.option} {case.change}".encode()).hexdigest(), 16)


def fault(case: Case, composer: JobComposer, prover: Prover) -> str:
    """What is wrong with the answer; empty where it accepts the case or refuses it rightly."""
    try:
        config = OmegaConf.create(composer.job(case.typed, 0).config)
        assert isinstance(config, DictConfig)
        OmegaConf.set_struct(config, True)
        check_job(config)
        prover.prove(config)
    except AssayError as error:
        whole = OmegaConf.create(composer.job(case.base, 0).config)
        return fault_of(error, case.key, [*takers(whole, case.key), *givers(whole, case.key)])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def takers(config: DictConfig, key: str) -> list[str]:
    """The keys that take their values from this one, and those around it, by an interpolation."""
    entries = [entry for entry in walk(config) if entry.is_interpolation]
    return [_plain(one.key) for one in entries if f"${{{key}}}" in str(one.node._value())]


def givers(config: DictConfig, key: str) -> list[str]:
    """The keys that this one takes its value from: `fold` is said where `data.split.fold` is `${fold}`."""
    entries = [entry for entry in walk(config) if entry.is_interpolation and _plain(entry.key) == _plain(key)]
    return [name for entry in entries for name in re.findall(r"\$\{([\w.]+)\}", str(entry.node._value()))]


def fault_of(error: AssayError, key: str, taken_by: Sequence[str] = ()) -> str:
    """What a refusal does not say, or says as no person would."""
    raised = re.findall(r"\b[A-Z]\w+(?:Error|Exception)\b|Traceback", str(error))
    if any(not hasattr(torchmetrics, name) for name in raised):  # a mean squared error is none
        return f"a raw exception shows: {error}"
    named = _keys(error.key) if isinstance(error, ConfigError) else []
    # Two keys can be at odds: whichever is blamed, a full key in the text names the other one.
    named += [word for word in _keys(error.message) if "." in word]
    named += [word for word in _keys(error.hint or "") if word == key]
    named += re.findall(r"(?<!\S)(\w+)=\w", error.message)  # `model=small_cnn takes images`
    node, _, name = key.rpartition(".")
    fine = {key, node, *taken_by, *(one.rpartition(".")[0] for one in taken_by)}
    # What lies in a list, such as transforms, is tried as the whole that it makes up.
    lists = [match[1] for one in (key, *taken_by) if (match := re.match(r"(.+?)\.\d", one))]
    fine |= {*lists, *(one.rpartition(".")[0] for one in lists)}
    if any(one in fine or one.startswith(f"{key}.") for one in named):
        return ""
    # Arguments of one call can be at odds: the message names both, and its key is that of one of them.
    if any(one.rpartition(".")[0] == node for one in named[:1]) and re.search(rf"\b{name}\b", error.message):
        return ""
    return f"neither {key} nor its node is named: {error}"


def _keys(text: str) -> list[str]:
    return [_plain(word.lstrip("~")).rstrip(".") for word in re.findall(r"~?[\w.\[\]]+", text)]


def _plain(key: str) -> str:
    return key.replace("[", ".").replace("]", "")


def judged(some: Iterable[Case], composer: JobComposer, prover: Prover) -> list[str]:
    """Cases that are answered badly and not known to be, and known ones that no longer are."""
    found = []
    for case in some:
        wrong, known = fault(case, composer, prover), case.name in OF_CHECK
        if wrong and not known:
            found.append(f"{case}: {wrong}")
        if known and not wrong:
            found.append(f"{case}: answered well; take it out of known_faults.py")
    return found


@pytest.mark.always("optimizer/sgd")
@pytest.mark.parametrize("option", ALWAYS)
def test_a_few_are_answered_well(composer: JobComposer, prover: Prover, option: str) -> None:
    some = sorted(cases(composer, [option]), key=drawn)[:FEW]
    assert len(some) == FEW
    assert not judged(some, composer, prover)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("option", bases())
def test_all_are_answered_well(
    corpus: list[Case], composer: JobComposer, prover: Prover, option: str
) -> None:
    assert not judged((case for case in corpus if case.option == option), composer, prover)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings(
    "ignore:size_average and reduce args will be deprecated"
)  # torch says so, and trains
def test_what_is_accepted_can_be_trained(
    corpus: list[Case], composer: JobComposer, prover: Prover, train: Train, project: Path
) -> None:
    found = []
    for case in (case for case in corpus if case.trains and drawn(case) % TRAINED == 0):
        try:
            config = OmegaConf.create(composer.job(case.typed, 0).config)
            assert isinstance(config, DictConfig)
            check_job(config)
            prover.prove(config)
        except AssayError:
            continue
        wrong = ""
        shutil.rmtree(project / "run", ignore_errors=True)
        try:
            status = train(*case.typed, cwd=project).result.status
            wrong = "" if status == "finished" else status
        except NonFiniteError:
            pass  # which values diverge is known only when they have
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        if bool(wrong) is not (case.name in IN_TRAINING):
            found.append(f"{case}: {wrong or 'trains; take it out of known_faults.py'}")
    assert not found


@pytest.mark.long
def test_there_are_thousands(corpus: list[Case]) -> None:
    names = [case.name for case in corpus]
    assert len(names) >= 5000
    assert len(set(names)) == len(names)
    assert set(names) >= OF_CHECK.keys() | IN_TRAINING.keys()
