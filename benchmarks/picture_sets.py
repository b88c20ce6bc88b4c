"""Pictures of 64 to 224 pixels for `benchmarks/defaults.py`: made from seeds, and cut from photographs.

Photographs come with scikit-learn and scikit-image, letters with matplotlib, digits with scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

if TYPE_CHECKING:
    from collections.abc import Callable

    Draw = np.random.Generator
    Made = tuple[str, Image.Image]


def write_pictures(folder: Path, name: str) -> list[str]:
    """Write the set of a name as a folder for each class; return what is typed."""
    make, count = PICTURE_SETS[name]
    draw = np.random.default_rng([count, *name.encode()])
    for number in range(count):
        label, picture = make(draw, number)
        target = folder / "pictures" / label
        target.mkdir(parents=True, exist_ok=True)
        picture.save(target / f"{number}.png")
    return ["data=image_folder", f"data.source.root={folder}/pictures"]


def _noise(draw: Draw, side: int, low: int = 60, high: int = 190) -> Image.Image:
    return Image.fromarray(draw.integers(low, high, (side, side, 3), dtype=np.uint8))


def _color(draw: Draw) -> tuple[int, ...]:
    return tuple(int(value) for value in draw.integers(0, 256, 3))


def _place(draw: Draw, side: int, margin: int) -> tuple[int, int]:
    x, y = draw.integers(margin, side - margin, 2)
    return int(x), int(y)


def _letters(draw: Draw, number: int) -> Made:
    """A letter of one of matplotlib's fonts, a little turned."""
    fonts = Path(import_module("matplotlib").get_data_path()) / "fonts" / "ttf"
    names = sorted(one.name for one in fonts.glob("*.ttf") if one.name.startswith(("DejaVuS", "STIXGeneral")))
    letter = "abcdefghijklmnopqrstuvwxyz"[number % 26]
    font = ImageFont.truetype(fonts / names[draw.integers(len(names))], int(draw.integers(26, 48)))
    mask = Image.new("L", (64, 64))
    x, y = _place(draw, 64, 24)
    ImageDraw.Draw(mask).text((x, y), letter, fill=255, font=font, anchor="mm")
    mask = mask.rotate(float(draw.uniform(-12, 12)), Image.Resampling.BILINEAR)
    picture = _noise(draw, 64, 90, 150)
    picture.paste(_color(draw), mask=mask)
    return letter, picture


def _digits(draw: Draw, number: int) -> Made:
    """A scanned digit, enlarged and put somewhere."""
    del number
    data: Any = _digits_data()
    row = int(draw.integers(len(data.target)))
    size = int(draw.integers(24, 44))
    digit = Image.fromarray((data.images[row] * 15).astype(np.uint8)).resize((size, size))
    picture = Image.fromarray(draw.integers(0, 90, (64, 64), dtype=np.uint8))
    x, y = (int(value) for value in draw.integers(0, 64 - size, 2))
    picture.paste(digit, (x, y), digit)
    return str(data.target[row]), picture


_KEPT: dict[str, Any] = {}


def _digits_data() -> Any:
    if "digits" not in _KEPT:
        _KEPT["digits"] = import_module("sklearn.datasets").load_digits()
    return _KEPT["digits"]


def _textures(draw: Draw, number: int) -> Made:
    """Random processes: smooth noise at two scales, spots, cracks, weave."""
    side, kind = 128, ("fine", "coarse", "spots", "cracks", "weave")[number % 5]
    if kind in ("fine", "coarse"):
        radius = draw.uniform(1, 2) if kind == "fine" else draw.uniform(2.5, 5)
        picture = Image.fromarray(draw.integers(0, 256, (side, side), dtype=np.uint8))
        field = np.asarray(picture.filter(ImageFilter.GaussianBlur(radius)), float)
    elif kind == "weave":
        y, x = np.mgrid[:side, :side]
        rate = draw.uniform(0.4, 0.9)
        field = np.sin(x * rate + draw.uniform(0, 6)) * np.sin(y * rate + draw.uniform(0, 6))
    else:
        points = draw.uniform(0, side, (int(draw.integers(40, 90)), 2))
        y, x = np.mgrid[:side, :side]
        away = np.sqrt((y[..., None] - points[:, 0]) ** 2 + (x[..., None] - points[:, 1]) ** 2)
        near = np.sort(away, -1)
        field = np.minimum(near[..., 0], 6) if kind == "spots" else np.minimum(near[..., 1] - near[..., 0], 4)
    field = (field - field.mean()) / field.std()
    values = 128 + draw.uniform(-30, 30) + draw.uniform(15, 40) * field + draw.normal(0, 25, (side, side))
    return kind, Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))


def _gratings(draw: Draw, number: int) -> Made:
    """Stripes of one of eight directions, in noise."""
    side, kind = 80, number % 8
    angle = np.pi * (kind + draw.uniform(-0.3, 0.3)) / 8
    y, x = np.mgrid[:side, :side]
    wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) * draw.uniform(0.35, 0.9) + draw.uniform(0, 6))
    values = 128 + draw.uniform(15, 40) * wave + draw.normal(0, 45, (side, side))
    return f"direction {kind}", Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))


def _arrows(draw: Draw, number: int) -> Made:
    """An arrow to one of four sides."""
    kind = ("up", "right", "down", "left")[number % 4]
    turn = {"right": 0.0, "down": 0.5, "left": 1.0, "up": 1.5}[kind] * np.pi + draw.uniform(-0.3, 0.3)
    length = draw.uniform(12, 22)
    ahead, aside = np.array([np.cos(turn), np.sin(turn)]), np.array([-np.sin(turn), np.cos(turn)])
    picture = _noise(draw, 64)
    pen, color = ImageDraw.Draw(picture), _color(draw)
    middle = np.array(_place(draw, 64, 22))
    head, tail = middle + ahead * length / 2, middle - ahead * length / 2
    pen.line([*tail, *head], fill=color, width=3)
    for side in (aside, -aside):
        pen.line([*(head - ahead * length * 0.4 + side * length * 0.35), *head], fill=color, width=3)
    return kind, picture


def _photograph(name: str) -> Image.Image:
    if name not in _KEPT:
        if name in ("china", "flower"):
            pixels = import_module("sklearn.datasets").load_sample_image(f"{name}.jpg")
        else:
            pixels = getattr(import_module("skimage.data"), name)()
        _KEPT[name] = Image.fromarray(np.asarray(pixels)).convert("RGB")
    return _KEPT[name]  # type: ignore[no-any-return]  # filled above


def _cut(draw: Draw, name: str, side: int) -> Image.Image:
    """A square of a photograph, of varying size and light, scaled to `side`."""
    photograph = _photograph(name)
    size = int(min(*photograph.size, draw.uniform(0.8, 2) * side))
    x, y = (int(draw.integers(0, extent - size + 1)) for extent in photograph.size)
    part = photograph.crop((x, y, x + size, y + size)).resize((side, side), Image.Resampling.BILINEAR)
    values = np.asarray(part, float) * draw.uniform(0.6, 1.4) + draw.normal(0, 12, (side, side, 3))
    return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8)).convert("L")


def _places(draw: Draw, number: int) -> Made:
    """Which photograph a piece is of."""
    kind = ("china", "flower", "astronaut", "chelsea", "coffee", "rocket")[number % 6]
    return kind, _cut(draw, kind, 112)


def _materials(draw: Draw, number: int) -> Made:
    """Brick, grass, gravel, coins, or a page, from near."""
    kind = ("brick", "grass", "gravel", "coins", "page")[number % 5]
    return kind, _cut(draw, kind, 64)


def _leaf(draw: Draw, number: int, side: int) -> Made:
    """Four kinds of leaves by their lobes, of any turn, on earth."""
    kind = number % 4
    lobes, depth = ((2, 0.45), (5, 0.25), (3, 0.3), (9, 0.08))[kind]
    at = np.linspace(0, 2 * np.pi, 180)
    shape = 1 + depth * draw.uniform(0.6, 1.2) * np.cos(lobes * at) + 0.02 * draw.normal(size=180)
    shape = shape / shape.max() * side * draw.uniform(0.25, 0.42)
    turned = at + draw.uniform(0, 6.3)
    x, y = _place(draw, side, int(side * 0.35))
    picture = _noise(draw, side, 40, 130).filter(ImageFilter.GaussianBlur(1.5))
    color = tuple(int(value) for value in draw.integers((30, 80, 20), (120, 170, 80)))
    outline = np.stack([x + shape * np.cos(turned), y + shape * np.sin(turned) * draw.uniform(0.7, 1)], 1)
    ImageDraw.Draw(picture).polygon([tuple(point) for point in outline], fill=color)
    values = np.asarray(picture, float) + draw.normal(0, 12, (side, side, 3))
    return ("willow", "maple", "clover", "fern")[kind], Image.fromarray(
        np.clip(values, 0, 255).astype(np.uint8)
    )


def _leaves_mixed(draw: Draw, number: int) -> Made:
    """Of several sizes."""
    label, picture = _leaf(draw, number, 144)
    size = int(draw.integers(100, 190)), int(draw.integers(100, 190))
    return label, picture.resize(size)


def _leaves(draw: Draw, number: int) -> Made:
    return _leaf(draw, number, 224)


def _dots(draw: Draw, number: int) -> Made:
    """Two dots above each other, or beside each other."""
    kind = ("above", "beside")[number % 2]
    picture = _noise(draw, 96, 90, 150)
    pen = ImageDraw.Draw(picture)
    apart, off = int(draw.integers(18, 40)), int(draw.integers(-6, 7))
    x, y = _place(draw, 96, 28)
    step = (off, apart) if kind == "above" else (apart, off)
    for sign in (-1, 1):
        left, top = x + sign * step[0] // 2, y + sign * step[1] // 2
        pen.ellipse((left - 4, top - 4, left + 4, top + 4), fill=_color(draw))
    return kind, picture


def _shape(pen: Any, kind: str, circle: tuple[int, int, int], color: Any) -> None:
    x, y, size = circle
    corners = {"triangle": 3, "square": 4, "pentagon": 5, "circle": 0}[kind]
    if corners:
        pen.regular_polygon((x, y, size), corners, fill=color)
    else:
        pen.ellipse((x - size, y - size, x + size, y + size), fill=color)


def _clutter(draw: Draw, number: int) -> Made:
    """The kind of the large shape, among lines and small shapes of all kinds."""
    kinds = ("triangle", "square", "pentagon", "circle")
    kind = kinds[number % 4]
    picture = _noise(draw, 96)
    pen = ImageDraw.Draw(picture)
    for _ in range(6):
        x, y = _place(draw, 96, 6)
        _shape(pen, str(draw.choice(kinds)), (x, y, int(draw.integers(3, 7))), _color(draw))
        pen.line([*_place(draw, 96, 0), *_place(draw, 96, 0)], fill=_color(draw), width=1)
    x, y = _place(draw, 96, 24)
    _shape(pen, kind, (x, y, int(draw.integers(14, 23))), _color(draw))
    return kind, picture


def _cells(draw: Draw, number: int) -> Made:
    """Cells under a microscope: round, ragged, or dividing."""
    side, kind = 112, ("round", "ragged", "dividing")[number % 3]
    picture = Image.new("RGB", (side, side), (226, 205, 220))
    pen = ImageDraw.Draw(picture)
    at = np.linspace(0, 2 * np.pi, 60)
    for _ in range(int(draw.integers(4, 9))):
        x, y = _place(draw, side, 12)
        radius = draw.uniform(7, 12) * (1 + (0.22 if kind == "ragged" else 0.05) * draw.normal(size=60))
        outline = np.stack([x + radius * np.cos(at), y + radius * np.sin(at)], 1)
        pen.polygon([tuple(point) for point in outline], fill=(190, 140, 190))
        turn = draw.uniform(0, 6.3)
        for sign in (-1, 1) if kind == "dividing" and draw.random() < 0.6 else (0,):
            left, top = x + sign * 4 * np.cos(turn), y + sign * 4 * np.sin(turn)
            pen.ellipse((left - 3, top - 3, left + 3, top + 3), fill=(90, 50, 130))
    values = np.asarray(picture.filter(ImageFilter.GaussianBlur(1)), float) * draw.uniform(0.8, 1.1)
    values += draw.normal(0, 14, values.shape)
    return kind, Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))


def _faces(draw: Draw, number: int) -> Made:
    """A drawn face that smiles, frowns, or is surprised."""
    kind = ("smile", "frown", "surprise")[number % 3]
    picture = _noise(draw, 64)
    pen = ImageDraw.Draw(picture)
    x, y = _place(draw, 64, 22)
    size = int(draw.integers(13, 22))
    pen.ellipse((x - size, y - size, x + size, y + size), fill=_color(draw))
    ink = _color(draw)
    for sign in (-1, 1):
        left, top, eye = x + sign * size // 2, y - size // 3, int(draw.integers(1, 4))
        pen.ellipse((left - eye, top - eye, left + eye, top + eye), fill=ink)
    half, low = int(size * draw.uniform(0.3, 0.55)), y + size // 2
    box = (x - half, low - half // 2, x + half, low + half // 2)
    if kind == "surprise":
        pen.ellipse((x - half // 2, low - half // 2, x + half // 2, low + half // 2), outline=ink, width=2)
    else:
        pen.arc(box, *((0, 180) if kind == "smile" else (180, 360)), fill=ink, width=2)
    return kind, picture


def _knots(draw: Draw, number: int) -> Made:
    """How many crossing strings."""
    kind = number % 4
    picture = _noise(draw, 96, 70, 170)
    pen = ImageDraw.Draw(picture)
    at = np.linspace(0, 1, 40)
    for _ in range(kind + 1):
        ends = draw.uniform(5, 91, (4, 2))
        curve = (
            (1 - at[:, None]) ** 3 * ends[0]
            + 3 * (1 - at[:, None]) ** 2 * at[:, None] * ends[1]
            + 3 * (1 - at[:, None]) * at[:, None] ** 2 * ends[2]
            + at[:, None] ** 3 * ends[3]
        )
        pen.line([tuple(point) for point in curve], fill=_color(draw), width=3)
    return f"{kind + 1} strings", picture


PICTURE_SETS: dict[str, tuple[Callable[[Draw, int], Made], int]] = {
    "letters-64": (_letters, 1560),
    "digits-placed-64": (_digits, 1000),
    "textures-128": (_textures, 300),
    "gratings-80": (_gratings, 400),
    "arrows-64": (_arrows, 600),
    "places-112": (_places, 480),
    "materials-64": (_materials, 600),
    "leaves-mixed": (_leaves_mixed, 600),
    "leaves-224": (_leaves, 200),
    "dots-96": (_dots, 400),
    "clutter-96": (_clutter, 800),
    "cells-112": (_cells, 360),
    "faces-64": (_faces, 450),
    "knots-96": (_knots, 600),
}
"""By name, what makes a picture and its class, and how many there are."""
