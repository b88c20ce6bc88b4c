from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, Self, final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray


Kind = Literal["bytes", "characters"]
END: Final = 0
"""The id between two texts; as a byte, one that no text has."""
UNKNOWN: Final = 1
"""The id of a character that training texts lack."""
_LAST: Final = 0x10FFFF


@final
class Alphabet:
    """Token ids of texts: those of UTF-8's bytes, or the position of a character among the known ones."""

    def __init__(self, characters: str | None = None) -> None:
        self.characters = characters
        self.end, self.never = END, () if characters is None else (UNKNOWN,)
        self._known = np.array([], np.uint32) if characters is None else _code_points(characters)
        if characters is not None and not (np.diff(self._known.astype(np.int64)) > 0).all():
            raise ValueError("its characters are not ascending")

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> Self:
        """The characters of some texts."""
        found: set[str] = set()
        for text in texts:
            found.update(text)
        return cls("".join(sorted(found)))

    @property
    def vocab_size(self) -> int:
        """Ids go from 0 to below this."""
        return 256 if self.characters is None else 2 + len(self.characters)

    @property
    def token_bytes(self) -> list[int]:
        """How many bytes of UTF-8 each id stands for; none: the end of a text, and what is unknown."""
        if self.characters is None:
            return [0] + [1] * 255
        return [0, 0, *(len(one.encode()) for one in self.characters)]

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Token ids of each text."""
        if self.characters is None:
            return [np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in texts]
        return [self._of_characters(text) for text in texts]

    def _of_characters(self, text: str) -> NDArray[np.int32]:
        points = _code_points(text)
        at = np.searchsorted(self._known, points)
        found = at < len(self._known)
        found[found] = self._known[at[found]] == points[found]
        return np.where(found, at + 2, UNKNOWN).astype(np.int32)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; what ends a text is left out, what is unknown becomes U+FFFD."""
        if self.characters is None:
            return bytes(one for one in ids if one != END).decode(errors="replace")
        known = ("", "\ufffd", *self.characters)
        return "".join(known[one] for one in ids)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each token id stands for, as it can be shown: a byte that is no character as its number."""
        if self.characters is None:
            return ["" if one == END else chr(one) if one < 128 else f"\\x{one:02x}" for one in ids]
        return [self.decode([one]) for one in ids]

    def as_plain(self) -> dict[str, Any]:
        """For a run."""
        kind: Kind = "bytes" if self.characters is None else "characters"
        return {"kind": kind, "characters": self.characters}

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.as_plain(), indent=2)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """What `as_plain` gave."""
        kind, characters = plain.get("kind"), plain.get("characters")
        if kind == "bytes" and characters is None:
            return cls()
        if kind != "characters" or not isinstance(characters, str) or len(characters) > _LAST:
            raise ValueError("it is not an alphabet of bytes or characters")
        return cls(characters)


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
