"""Weights that a library publishes: said before they are downloaded, checked by their hash, kept once."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch

_log = logging.getLogger("assay")


@final
@dataclass(frozen=True)
class Published:
    """A file of weights on the internet.

    Attributes:
        url: Where it lies.
        name: Of the file in torch's cache.
        digest: SHA-256, or the beginning of it; empty where only the server knows.
        megabytes: Its size; 0 where only the server knows.
    """

    url: str
    name: str
    digest: str = ""
    megabytes: float = 0.0

    @property
    def path(self) -> Path:
        """Where it is kept: in the folder `checkpoints` of `torch.hub.get_dir()`."""
        return Path(torch.hub.get_dir()) / "checkpoints" / self.name

    def in_words(self) -> str:
        """Name, size and address, for messages."""
        size = f"{self.megabytes:,.0f} MB" if self.megabytes else "size unknown"
        return f"{self.name} ({size}) from {self.url}"

    def fetch(self) -> Path:
        """The file, downloaded if it is not there yet.

        Raises:
            ValueError: It cannot be downloaded, or is not what its hash says.
        """
        if not self.path.is_file():
            _log.warning("downloading %s to %s", self.in_words(), self.path)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                torch.hub.download_url_to_file(
                    self.url, str(self.path), hash_prefix=self.digest or None, progress=False
                )
            except RuntimeError as error:  # torch's word for another hash
                raise ValueError(
                    f"the weights from {self.url} are not what was published: {error}"
                ) from error
            except OSError as error:
                raise ValueError(
                    f"the weights {self.in_words()} cannot be downloaded ({error}); on a machine without "
                    f"network put the file at {self.path}, or give the path of one by model.weights=…"
                ) from error
        with self.path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if not found.startswith(self.digest):
            raise ValueError(
                f"{self.path} is damaged or something else: its SHA-256 begins with {found[:12]}, that of "
                f"the published file with {self.digest[:12]}; remove it"
            )
        return self.path
