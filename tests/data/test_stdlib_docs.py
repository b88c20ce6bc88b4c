from __future__ import annotations

import sysconfig
from typing import TYPE_CHECKING, Any

import pytest

from assay.data.stdlib_docs import TOPICS, StdlibDocs
from assay.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def read() -> Any:
    return StdlibDocs().read()["all"]


def test_thousands_of_texts_of_each_topic_no_text_twice(read: Any) -> None:
    assert len(read) > 4000
    assert read.targets.bincount().min() > 200
    assert len(read.targets.bincount()) == len(TOPICS) == 8
    assert read.raw["text"].map(lambda text: " ".join(text.split()).casefold()).is_unique
    assert read.raw["text"].str.split().str.len().min() >= 5


def test_a_text_has_the_topic_of_its_module(read: Any) -> None:
    import json
    import smtplib

    topics = dict(zip(read.raw["text"], read.targets.tolist(), strict=True))
    for text, topic in ((json.dumps.__doc__, "markup"), (smtplib.SMTP.sendmail.__doc__, "mail")):
        (found,) = (label for known, label in topics.items() if known.split() == str(text).split())
        assert list(TOPICS)[found] == topic


def test_a_python_without_its_sources_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(DataError, match="has no sources for the topic 'concurrency'"):
        StdlibDocs().read()
