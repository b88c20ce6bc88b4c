"""Files of users: a table with missing values and categories, pictures, and texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from PIL import Image

if TYPE_CHECKING:
    from pathlib import Path

_TOPICS = {"fruit": ["apple", "pear", "plum"], "tool": ["hammer", "saw"], "bird": ["owl", "wren", "crow"]}


def write_houses(folder: Path) -> None:
    """Write a table, one with other known rows, one of rows to predict, and these with a column less."""
    table = _make_houses(90)
    table[:80].to_csv(folder / "houses.csv", index=False)
    table[80:].to_csv(folder / "sold_houses.csv", index=False)
    new = table[["house", "area", "rooms", "district", "built"]][:5].copy()
    new.loc[1, "district"] = "Atlantis"
    new.loc[2, "area"] = np.nan
    new["rooms"] = new["rooms"].astype(object)
    new.loc[3, "rooms"] = "many"
    new.assign(garden=1, pool=0).to_csv(folder / "new_houses.csv", index=False)
    new.drop(columns="area").to_csv(folder / "narrow_houses.csv", index=False)


def _make_houses(count: int) -> pd.DataFrame:
    at = np.arange(count)
    area, rooms = 40 + (at * 37) % 90, 1 + (at * 5) % 6
    table = pd.DataFrame(
        {
            "house": [f"H{number:04}" for number in at],
            "area": area.astype(float),
            "rooms": rooms,
            "district": np.array(["north", "south", "harbour"])[(at * 7) % 3],
            "built": [f"{1950 + (number * 11) % 70}-0{1 + number % 9}-15" for number in at],
            "garden": (at // 2) % 2,
            "pool": (at * 3) % 5 // 3,
            "price": 1000.0 * (2 * area + 15 * rooms + (at * 13) % 11),
            "sold": np.where((area + at) % 3 == 0, "no", "yes"),
            "grade": np.array(["low", "middle", "high"])[np.clip(area // 44, 1, 3) - 1],
        }
    )
    table.loc[at % 11 == 4, "area"] = np.nan
    table.loc[at % 17 == 5, "district"] = None
    return table


def write_photos(folder: Path) -> None:
    """Write a folder of pictures of two classes, and one of new ones, of which one is broken."""
    for name, slope in (("light", 9), ("dark", 2)):
        for number in range(12):
            _write_picture(folder / "photos" / name / f"{number:02}.png", _draw(number, slope))
    for number in range(2):
        _write_picture(folder / "new_photos" / f"{number}.png", _draw(number + 20, 5))
    (folder / "new_photos" / "broken.png").write_bytes(b"no picture")


def _draw(number: int, slope: int) -> np.ndarray:
    row, column = np.mgrid[:16, :16]
    grey = (slope * (row + column) + 17 * number) % 256
    return np.stack([grey, grey // 2, 255 - grey], -1).astype(np.uint8)


def _write_picture(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def write_texts(folder: Path) -> None:
    """Write a table of texts of three topics, one of new texts, and a folder of books."""
    rows = [
        {
            "body": f"n{number} " + " ".join(words[number % len(words) :] * (1 + number % 7)),
            "topic": topic,
        }
        for number, (topic, words) in enumerate(list(_TOPICS.items()) * 30)
    ]
    pd.DataFrame(rows).to_csv(folder / "mails.csv", index=False)
    new = ["an apple and a pear", "the saw", "", "unheard of"]
    pd.DataFrame({"body": new}).to_csv(folder / "new_mails.csv", index=False)
    (folder / "books").mkdir()
    for at in range(12):
        lines = [f"The {word} no. {at} <ä> saw the {word}.\n" for words in _TOPICS.values() for word in words]
        (folder / "books" / f"{at}.txt").write_text("".join(lines * 3), encoding="utf-8")
