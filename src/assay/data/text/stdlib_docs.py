"""Documentation strings of Python's own standard library, by topic."""

from __future__ import annotations

import ast
import sysconfig
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

import pandas as pd
import torch

from assay.data.core.samples import Samples
from assay.data.core.source import Source
from assay.data.text.tokenizer import TextEncoder
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from assay.data.text.tokenizer import Kind

TOPICS = {
    "concurrency": "asyncio concurrent multiprocessing queue sched selectors signal subprocess threading "
    "_threading_local",
    "files": "_pyio bz2 codecs dbm filecmp fileinput fnmatch genericpath glob gzip io lzma ntpath os "
    "pathlib pickle posixpath shelve shutil stat tarfile tempfile zipapp zipfile",
    "language": "_collections_abc abc ast code codeop collections contextlib copy copyreg dataclasses dis "
    "enum functools importlib inspect opcode operator pickletools pkgutil pyclbr pydoc "
    "reprlib runpy symtable tokenize types typing weakref zipimport",
    "mail": "base64 email imaplib mailbox mimetypes netrc poplib quopri smtplib",
    "markup": "argparse cmd configparser csv difflib getopt gettext html json locale optparse plistlib "
    "pprint re shlex string textwrap tomllib xml",
    "network": "ftplib getpass http ipaddress socket socketserver ssl urllib uuid webbrowser wsgiref xmlrpc",
    "numbers": "_pydatetime _pydecimal _strptime bisect calendar colorsys datetime fractions graphlib "
    "hashlib heapq hmac numbers random secrets statistics zoneinfo",
    "testing": "bdb cProfile doctest faulthandler logging pdb profile pstats timeit trace traceback "
    "tracemalloc unittest warnings",
}
"""Modules and packages of each topic, as far as a version of Python has them."""
_FEWEST_WORDS = 5
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@final
class StdlibDocs(Source):
    """Some 5,000 documentation strings of modules, classes and functions; 8 topics to tell them by.

    The same ones for the same version of Python. Each text is there once: one that occurs in several topics
    is left out, and so are those of fewer than five words, and of the library's own tests.

    Args:
        tokenizer: As for `assay.data.table.table.Table`.
        vocab_size: As `tokenizer`.
        max_length: As `tokenizer`.
        lowercase: As `tokenizer`.

    Attributes:
        text_encoder: Makes token ids of the texts.
        fitted: An encoder that has learned, set before `read()`.
    """

    task: str = "multiclass"
    class_names = tuple(TOPICS)

    def __init__(
        self,
        *,
        tokenizer: Kind | Literal["auto"] = "auto",
        vocab_size: int = 8192,
        max_length: int = 256,
        lowercase: bool = True,
    ) -> None:
        self.text_encoder = TextEncoder(
            "text",
            tokenizer=tokenizer,
            vocab_size=vocab_size,
            max_length=max_length,
            lowercase=lowercase,
        )

    def read(self) -> Mapping[str, Samples]:
        """All texts, to be encoded once the training rows are known."""
        frame = pd.DataFrame(list(find_docstrings()), columns=["topic", "text"])
        words = frame["text"].map(lambda text: " ".join(text.split()).casefold())
        is_of_one_topic = frame["topic"].groupby(words).transform("nunique") == 1
        frame = frame[is_of_one_topic & ~words.duplicated()].reset_index(drop=True)
        if frame.empty:
            raise DataError(
                f"data=stdlib_docs: this Python has no sources in {sysconfig.get_paths()['stdlib']}",
                hint="use a Python with its standard library, or your own texts: data=text_table",
            )
        labels = torch.tensor([self.class_names.index(topic) for topic in frame.pop("topic")])
        return {"all": Samples(frame, labels, encoder=self.fitted or self.text_encoder)}


def find_docstrings() -> Iterator[tuple[str, str]]:
    """Topic and text of each documentation string, in the order of the files."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for topic, names in TOPICS.items():
        for name in names.split():
            files = sorted((library / name).rglob("*.py")) or [library / f"{name}.py"]
            for file in files:
                if file.is_file() and not {"test", "tests"} & set(
                    file.relative_to(library).parts
                ):
                    yield from ((topic, text) for text in _docstrings_in(file))


def _docstrings_in(file: Path) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in strings, which are the library's own
        tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            text = ast.get_docstring(node) or ""
            if len(text.split()) >= _FEWEST_WORDS:
                yield text
