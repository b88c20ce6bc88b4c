"""Tables as people have them, for `benchmarks/defaults.py`: 24 CSV files, 20 made, 4 carried by scikit-learn.

A made table is drawn from a process with noise: what a person would write down of it (misspelt, rounded, with
codes for missing, with signs and units in cells) is in the file, and what made the target is not. The rows
come from fixed seeds. `prepare` is what a good engineer's few lines of pandas make of such a file, for the
rival.
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Draw = np.random.Generator
    Made = tuple[pd.DataFrame, str]

_NAMES = """
Amsterdam Barcelona Berlin Bordeaux Brussels Budapest Copenhagen Dublin Edinburgh Frankfurt Geneva Hamburg
Helsinki Krakow Lisbon London Lyon Madrid Manchester Marseille Milan Munich Naples Oslo Paris Porto Prague
Rome Rotterdam Seville Stockholm Stuttgart Toulouse Turin Valencia Vienna Vilnius Warsaw Zagreb Zurich
"""
_CITIES = _NAMES.split()
_LETTERS = list("abcdefghijklmnopqrstuvwxyz")


def _misspell(draw: Draw, word: str) -> str:
    """A letter that is dropped, doubled, swapped or mistaken, another case, or a blank."""
    at = int(draw.integers(1, len(word) - 1))
    kind = int(draw.integers(0, 7))
    if kind == 0:
        return word[:at] + word[at + 1 :]
    if kind == 1:
        return word[:at] + word[at] + word[at:]
    if kind == 2:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == 3:
        return word[:at] + str(draw.choice(_LETTERS)) + word[at + 1 :]
    return (word.upper(), word.lower(), word + " ")[kind - 4]


def _yes(draw: Draw, logit: NDArray[Any]) -> NDArray[Any]:
    return np.where(draw.random(len(logit)) < 1 / (1 + np.exp(-logit)), "yes", "no")


def _incomes(draw: Draw, count: int = 3000) -> Made:
    """Money with long tails of several lengths; what a household spends."""
    age = draw.integers(20, 80, count)
    income = np.exp(10.2 + 0.01 * (age - 45) + draw.normal(0, 0.6, count))
    wealth = np.exp(0.9 * np.log(income) + draw.normal(0, 1.4, count))
    debt = np.exp(draw.normal(8, 2.0, count))
    bonus = np.exp(draw.normal(6, 1.0, count))
    level = 1.5 + 0.7 * np.log(income) + 0.05 * np.log(wealth) - 0.04 * np.log(debt)
    level += 0.15 * (age > 65) * (np.log(wealth) > 10) + draw.normal(0, 0.25, count)
    frame = {"age": age, "income": income.round(2), "wealth": wealth.round(), "debt": debt.round(2)}
    return pd.DataFrame(frame | {"bonus": bonus.round(2), "spent": np.exp(level).round(2)}), "spent"


def _claims(draw: Draw, count: int = 4000) -> Made:
    """Amounts of which 70 % are zeros; whether a contract is cancelled."""
    columns: dict[str, Any] = {}
    logit = np.full(count, -0.8)
    for name, weight in (("fire", 0.5), ("water", 0.9), ("theft", -0.2), ("glass", 0.3)):
        claimed = draw.random(count) < 0.3
        amount = np.where(claimed, np.exp(draw.normal(7, 1.2, count)), 0.0)
        logit += weight * claimed * (np.log1p(amount) - 6)
        columns[f"{name}_claims"] = amount.round(2)
    columns["years"] = draw.integers(0, 25, count)
    columns["premium"] = np.exp(draw.normal(6, 0.4, count)).round(2)
    logit -= 0.06 * columns["years"] - 0.8 * (columns["premium"] > 500)
    return pd.DataFrame(columns | {"cancelled": _yes(draw, logit)}), "cancelled"


def _towns(draw: Draw, count: int = 4000) -> Made:
    """City names, a quarter of them misspelt, that decide the price of a flat."""
    level = draw.normal(3000, 900, len(_CITIES))
    place = draw.choice(len(_CITIES), count, p=draw.dirichlet(np.full(len(_CITIES), 3.0)))
    area = draw.gamma(7, 11, count).round()
    floor = draw.integers(0, 9, count)
    names = [_CITIES[one] for one in place]
    wrong = draw.random(count) < 0.25
    typed = [_misspell(draw, name) if bad else name for name, bad in zip(names, wrong, strict=True)]
    price = area * level[place] * np.exp(0.01 * floor + draw.normal(0, 0.12, count))
    frame = pd.DataFrame({"city": typed, "area": area, "floor": floor})
    return frame.assign(price=price.round(-2).astype(int)), "price"


_SHOPS = {
    "food": "LIDL|ALDI SUED|CARREFOUR|TESCO STORES|BACKEREI HUBER|MERCADONA|FRESH MARKET|REWE",
    "travel": "SHELL|DB VERTRIEB|RYANAIR|UBER TRIP|BP CONNECT|LUFTHANSA|FLIXBUS|TOTAL ENERGIES",
    "fun": "SPOTIFY|NETFLIX.COM|CINEMA CITY|STEAM GAMES|TICKETMASTER|BOWLING WORLD",
    "home": "IKEA|OBI BAUMARKT|LEROY MERLIN|STADTWERKE|HORNBACH|VATTENFALL",
    "health": "APOTHEKE AM MARKT|BOOTS PHARMACY|DM DROGERIE|FITNESS FIRST|DR MEYER ZAHNARZT",
    "other": "PAYPAL|AMAZON MKTPLC|SUMUP|KLARNA|EBAY",
}


def _merchants(draw: Draw, count: int = 4000) -> Made:
    """Strings of card payments, with numbers and places in them; what was bought."""
    kinds = draw.choice(list(_SHOPS), count, p=[0.3, 0.2, 0.15, 0.12, 0.08, 0.15])
    means = dict(zip(_SHOPS, (3.2, 3.6, 2.8, 4.2, 3.3, 3.5), strict=True))
    texts = []
    for kind in kinds:
        mistaken = draw.random() < 0.08
        shop = str(draw.choice(_SHOPS["other" if mistaken else str(kind)].split("|")))
        end = (
            f"#{draw.integers(10, 9999):04d}",
            str(draw.choice(_CITIES)).upper(),
            f"*{draw.integers(10**6)}",
        )
        texts.append(f"{('', 'SQ *', 'POS ')[int(draw.integers(3))]}{shop} {end[int(draw.integers(3))]}")
    amount = np.exp([draw.normal(means[str(kind)], 0.7) for kind in kinds]).round(2)
    hour = draw.integers(0, 24, count)
    return pd.DataFrame({"merchant": texts, "amount": amount, "hour": hour, "category": kinds}), "category"


def _dates(draw: Draw, count: int = 3000) -> Made:
    """Days written in four ways that cannot be mistaken; what was sold that day."""
    days = pd.Timestamp("2021-01-01") + pd.to_timedelta(draw.integers(0, 1095, count), unit="D")
    forms = ("%Y-%m-%d", "%d %b %Y", "%B %d, %Y", "%Y/%m/%d")
    written = [day.strftime(forms[int(draw.integers(4))]) for day in days]
    opened = pd.Timestamp("2005-01-01") + pd.to_timedelta(draw.integers(0, 5000, count), unit="D")
    year = 2 * np.pi * days.dayofyear.to_numpy() / 365.25
    age = (days - opened).days.to_numpy() / 365.25
    sold = 120 + 35 * np.sin(year) + 30 * (days.dayofweek.to_numpy() >= 5)
    sold = sold + 12 * (days.year.to_numpy() - 2021) - 2 * np.maximum(0, 8 - age) + draw.normal(0, 15, count)
    frame = pd.DataFrame({"sold_on": written, "opened": opened.strftime("%d.%m.%Y")})
    return frame.assign(staff=draw.integers(2, 9, count), sold=sold.round(1)), "sold"


def _sensors(draw: Draw, count: int = 3000) -> Made:
    """-999, 9999, "?" and "unknown" where a value is missing; whether a pump fails."""
    values = draw.normal(size=(count, 5))
    values[:, 1] = 0.7 * values[:, 0] + 0.7 * values[:, 1]
    maker = draw.choice(["Akzon", "Borel", "Cryon"], count)
    logit = 1.2 * values[:, 0] - 0.8 * values[:, 2] ** 2 + 0.9 * values[:, 3] * (maker == "Borel") - 0.3
    frame = pd.DataFrame(
        {
            "pressure": (50 + 8 * values[:, 0]).round(1),
            "flow": (300 + 40 * values[:, 1]).round(),
            "vibration": (4 + values[:, 2]).round(2),
            "heat": (70 + 9 * values[:, 3]).round(1),
            "noise": (55 + 5 * values[:, 4]).round(1),
            "maker": maker,
            "state": _yes(draw, logit),
        }
    )
    frame.loc[draw.random(count) < 0.12, "pressure"] = -999
    frame.loc[draw.random(count) < 0.08, "flow"] = 9999
    frame["vibration"] = frame["vibration"].astype(str).where(draw.random(count) > 0.1, "?")
    frame["heat"] = frame["heat"].astype(str).where(draw.random(count) > 0.1, "unknown")
    frame["maker"] = frame["maker"].where(draw.random(count) > 0.1, "unknown")
    return frame, "state"


def _species(draw: Draw, count: int = 4500) -> Made:
    """90 classes of about 50 rows each."""
    middles = draw.normal(0, 1.3, (90, 6))
    kind = draw.integers(0, 90, count)
    values = middles[kind] + draw.normal(0, 0.55, (count, 6))
    habitat = draw.choice(["forest", "meadow", "shore", "town", "rock"], (90, 2))
    seen = habitat[kind, draw.integers(0, 2, count)]
    frame = pd.DataFrame(np.exp(0.4 * values).round(3), columns=[f"length_{number}" for number in range(6)])
    return frame.assign(habitat=seen, species=[f"species {number:02d}" for number in kind]), "species"


def _fraud(draw: Draw, count: int = 5000) -> Made:
    """A class of 2 %."""
    amount = np.exp(draw.normal(3.5, 1.3, count))
    hour = draw.integers(0, 24, count)
    country = draw.choice(["DE", "FR", "US", "NG", "BR"], count, p=[0.5, 0.25, 0.15, 0.05, 0.05])
    tries = draw.poisson(0.4, count)
    logit = (
        -7.2 + 0.5 * np.log(amount) + 1.6 * (hour < 5) + 1.2 * np.isin(country, ["NG", "BR"]) + 0.8 * tries
    )
    frame = pd.DataFrame({"amount": amount.round(2), "hour": hour, "country": country, "tries": tries})
    return frame.assign(fraud=_yes(draw, logit)), "fraud"


def _flights(draw: Draw, count: int = 100_000) -> Made:
    """100,000 rows: minutes that a flight is late."""
    airports = [f"{''.join(draw.choice(list('ABCDEFGHIKLMNOPRSTUVZ'), 3))}" for _ in range(60)]
    carriers = ["LH", "AF", "BA", "KL", "IB", "SK", "FR", "U2"]
    start = draw.integers(0, 60, count)
    goal = draw.integers(0, 60, count)
    carrier = draw.integers(0, 8, count)
    hour = draw.choice(24, count, p=draw.dirichlet(np.full(24, 5.0)))
    month = draw.integers(1, 13, count)
    distance = draw.gamma(3, 400, count).round() + 150
    busy = draw.gamma(2, 1, 60)
    slow = draw.normal(0, 4, 8)
    late = 3 + 2.5 * busy[start] * (hour > 15) + slow[carrier] + 4 * np.isin(month, [7, 8, 12])
    late = late + 0.3 * (hour - 6).clip(0) + busy[goal] + 0.002 * distance * (slow[carrier] > 2)
    late = late + draw.normal(0, 6, count) + draw.exponential(8, count) * (draw.random(count) < 0.2)
    frame = pd.DataFrame({"month": month, "hour": hour, "distance": distance})
    frame["carrier"] = [carriers[one] for one in carrier]
    frame["origin"] = [airports[one] for one in start]
    frame["destination"] = [airports[one] for one in goal]
    return frame.assign(minutes_late=late.round(1)), "minutes_late"


def _wide(draw: Draw, count: int = 500) -> Made:
    """400 columns of 500 rows; they come from 20 hidden quantities."""
    hidden = draw.normal(size=(count, 20))
    values = hidden @ draw.normal(size=(20, 400)) * 0.5 + draw.normal(0, 1.5, (count, 400))
    logit = 1.5 * hidden[:, 0] - 1.2 * hidden[:, 1] + hidden[:, 2] * hidden[:, 3]
    frame = pd.DataFrame(values.round(3), columns=[f"gene_{number}" for number in range(400)])
    return frame.assign(responds=_yes(draw, logit)), "responds"


def _ids(draw: Draw, count: int = 2500) -> Made:
    """Row numbers, UUIDs and order numbers beside what matters; days until payment."""
    amount = np.exp(draw.normal(6, 1, count))
    customer = draw.choice(["public", "company", "private"], count, p=[0.2, 0.5, 0.3])
    terms = draw.choice([14, 30, 60], count)
    reminders = draw.poisson(0.6, count)
    days = terms * (0.8 + 0.3 * (customer == "public")) + 9 * reminders + 1.5 * np.log(amount)
    days = days + draw.gamma(2, 4, count)
    frame = pd.DataFrame(
        {
            "Unnamed: 0": np.arange(count),
            "uuid": [str(uuid.UUID(bytes=draw.bytes(16), version=4)) for _ in range(count)],
            "order_no": [f"ORD-{number}" for number in 100_000 + draw.permutation(count)],
            "amount": amount.round(2),
            "customer": customer,
            "terms": terms,
            "reminders": reminders,
        }
    )
    return frame.assign(days=days.round().astype(int)), "days"


def _signs(draw: Draw, count: int = 3000) -> Made:
    """Money and shares with their signs in the cells; the yearly cost of a loan."""
    loan = np.exp(draw.normal(9.5, 0.8, count))
    rate = draw.gamma(6, 0.9, count) + 0.5
    fee = draw.choice([0, 0, 25, 90, 150], count)
    months = draw.choice([12, 24, 36, 48, 60], count)
    cost = loan * rate / 100 + fee + loan / months * 0.4 * (rate > 6) + draw.normal(0, 120, count)
    frame = pd.DataFrame(
        {
            "loan": [f"${value:,.2f}" for value in loan],
            "rate": [f"{value:.1f} %" for value in rate],
            "fee": [f"€{value}" for value in fee],
            "term": [f"{value} months" for value in months],
            "yearly_cost": [f"${value:,.2f}" for value in cost],
        }
    )
    return frame, "yearly_cost"


_GOOD = "great lovely perfect excellent fresh friendly comfortable fast recommend happy beautiful solid"
_BAD = "broken awful late dirty rude noisy refund disappointed cheap slow worst smelly"
_PLAIN = (
    "the a it was and we our with for room order product again staff delivery colour box bought last week "
    "very this is not but they after one time price day when out"
)


def _reviews(draw: Draw, count: int = 3000) -> Made:
    """Free text beside numbers; whether a customer returns."""
    mood = draw.normal(size=count)
    texts = []
    for one in mood:
        words = list(draw.choice(_PLAIN.split(), int(draw.integers(8, 25))))
        share = 1 / (1 + np.exp(-1.5 * one))
        words += [str(draw.choice((_GOOD if draw.random() < share else _BAD).split())) for _ in range(3)]
        draw.shuffle(words)
        texts.append(" ".join(words).capitalize() + str(draw.choice([".", "!", ""])))
    price = np.exp(draw.normal(3.5, 0.8, count))
    visits = draw.poisson(3, count)
    logit = 1.3 * mood + 0.35 * (visits - 3) - 0.4 * (np.log(price) - 3.5)
    frame = pd.DataFrame({"review": texts, "price": price.round(2), "visits": visits})
    return frame.assign(returns=_yes(draw, logit)), "returns"


def _rides(draw: Draw, count: int = 4000) -> Made:
    """Times of day; how long a ride takes."""
    minute = draw.integers(0, 1440, count)
    day = draw.choice(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], count)
    distance = draw.gamma(2, 3, count) + 0.5
    rush = np.exp(-(((minute - 510) / 60) ** 2)) + np.exp(-(((minute - 1050) / 80) ** 2))
    rush = rush * ~np.isin(day, ["Sat", "Sun"])
    night = (minute < 300) | (minute > 1380)
    taken = distance * (2.2 + 1.8 * rush - 0.7 * night) * np.exp(draw.normal(0, 0.15, count)) + 3
    frame = pd.DataFrame({"start": [f"{one // 60:02d}:{one % 60:02d}" for one in minute], "day": day})
    return frame.assign(km=distance.round(1), minutes=taken.round(1)), "minutes"


def _typos(draw: Draw, count: int = 2000) -> Made:
    """Numbers of which 2 % lack their point, have a nought too many, or a wrong sign."""
    height = draw.normal(172, 9, count)
    weight = 24 * (height / 100) ** 2 + draw.normal(0, 9, count)
    age = draw.integers(18, 85, count).astype(float)
    pulse = draw.normal(70, 9, count)
    pressure = 80 + 0.45 * age + 0.35 * (weight - 70) + 0.2 * (pulse - 70) + draw.normal(0, 8, count)
    frame = pd.DataFrame({"height": height, "weight": weight, "age": age, "pulse": pulse}).round(1)
    for name in frame:
        wrong = draw.random(count) < 0.02
        factor = draw.choice([10.0, 100.0, 0.1, -1.0], count)
        frame[name] = np.where(wrong, frame[name] * factor, frame[name]).round(2)
    return frame.assign(pressure=pressure.round()), "pressure"


def _hospitals(draw: Draw, count: int = 5000) -> Made:
    """A category with 350 values, some of them seldom; how a stay ends."""
    names = [
        f"{_CITIES[number % 40]} {('St. Mary', 'General', 'North')[number % 3]} {number}"
        for number in range(350)
    ]
    place = draw.choice(350, count, p=draw.dirichlet(np.full(350, 0.7)))
    level = draw.normal(0, 0.9, (350, 3))
    age = draw.integers(1, 95, count)
    severity = draw.gamma(2, 1, count)
    scores = level[place] + draw.gumbel(size=(count, 3))
    scores[:, 1] += 0.03 * (age - 50)
    scores[:, 2] += 0.8 * (severity - 3)
    ends = np.array(["home", "rehab", "transfer"])[scores.argmax(1)]
    frame = pd.DataFrame({"hospital": [names[one] for one in place], "age": age})
    return frame.assign(severity=severity.round(2), ends=ends), "ends"


def _constant(draw: Draw, count: int = 1500) -> Made:
    """Constant, nearly constant, empty and duplicated columns among six that matter."""
    values = draw.normal(size=(count, 6))
    result = values[:, 0] + values[:, 1] * values[:, 2] + np.abs(values[:, 3]) + draw.normal(0, 0.6, count)
    frame = pd.DataFrame((10 * values + 50).round(2), columns=[f"m{number}" for number in range(6)])
    frame["m0_copy"] = frame["m0"]
    frame["m3_mm"] = (frame["m3"] * 10).round(1)
    frame["country"] = "Germany"
    frame["version"] = 3
    frame["comment"] = ""
    frame["flag"] = np.where(draw.random(count) < 0.003, 1, 0)
    return frame.assign(result=(100 + 12 * result).round(2)), "result"


def _prices(draw: Draw, count: int = 4000) -> Made:
    """A target with a long tail: prices of used cars."""
    brand = draw.choice(
        ["Fiat", "Ford", "VW", "BMW", "Porsche", "Ferrari"], count, p=[0.2, 0.25, 0.3, 0.2, 0.04, 0.01]
    )
    new = (
        pd.Series(brand)
        .map({"Fiat": 16, "Ford": 24, "VW": 30, "BMW": 50, "Porsche": 110, "Ferrari": 280})
        .to_numpy()
    )
    age = draw.gamma(2, 3.5, count)
    km = (age * draw.gamma(6, 2.5, count) * 1000).round()
    fuel = draw.choice(["petrol", "diesel", "electric"], count, p=[0.55, 0.35, 0.1])
    price = new * 1000 * np.exp(-0.13 * age - 0.000002 * km - 0.1 * (fuel == "diesel") * (age > 6))
    price = price * np.exp(draw.normal(0, 0.22, count))
    frame = pd.DataFrame(
        {"brand": brand, "year": (2024 - age).astype(int), "km": km.astype(int), "fuel": fuel}
    )
    return frame.assign(price=price.round(-1).astype(int)), "price"


def _products(draw: Draw, count: int = 5000) -> Made:
    """Codes that are whole numbers, of 250 products and 30 shops; pieces sold."""
    codes = draw.choice(np.arange(10_000, 99_999), 250, replace=False)
    shops = draw.choice(np.arange(100, 999), 30, replace=False)
    product = draw.choice(250, count, p=draw.dirichlet(np.full(250, 1.5)))
    shop = draw.integers(0, 30, count)
    discount = draw.choice([0, 0, 0, 10, 20, 50], count)
    rate = draw.normal(2.3, 0.7, 250)[product] + draw.normal(0, 0.3, 30)[shop] + 0.012 * discount
    frame = pd.DataFrame({"product_code": codes[product], "shop_code": shops[shop], "discount": discount})
    return frame.assign(sold=draw.poisson(np.exp(rate))), "sold"


def _gaps(draw: Draw, count: int = 2500) -> Made:
    """Gaps that tell something: who earns much does not say so, and tests are made of the ill."""
    income = np.exp(draw.normal(10.3, 0.5, count))
    ill = draw.normal(size=count)
    sugar = 95 + 12 * ill + draw.normal(0, 8, count)
    age = draw.integers(20, 80, count)
    logit = 1.1 * ill + 0.03 * (age - 50) - 0.8 * (np.log(income) - 10.3)
    frame = pd.DataFrame(
        {"age": age, "income": income.round(), "sugar": sugar.round(), "biopsy": (3 + ill).round(1)}
    )
    frame.loc[draw.random(count) < 1 / (1 + np.exp(-4 * (np.log(income) - 10.6))), "income"] = np.nan
    frame.loc[draw.random(count) < 0.15, "sugar"] = np.nan
    frame.loc[ill + draw.normal(0, 0.5, count) < 0.6, "biopsy"] = np.nan
    return frame.assign(admitted=_yes(draw, logit)), "admitted"


def _carried(draw: Draw, name: str, units: Sequence[str]) -> Made:
    """A set of scikit-learn with gaps, codes for missing, and units in the cells of its first columns."""
    import sklearn.datasets  # type: ignore[import-untyped]  # it has no types

    found = getattr(sklearn.datasets, f"load_{name}")(
        as_frame=True, **({"scaled": False} if name == "diabetes" else {})
    )
    frame: pd.DataFrame = found.frame.sample(frac=1, random_state=7).reset_index(drop=True)
    if name != "diabetes":
        frame["target"] = [str(found.target_names[one]) for one in frame["target"]]
    columns = list(frame.columns.drop("target"))
    count = len(frame)
    for number, column in enumerate(columns):
        missing = draw.random(count) < 0.06
        cells = frame[column].round(4)
        if number < len(units):
            frame[column] = np.where(missing, "n/a", [f"{cell:g}{units[number]}" for cell in cells])
        else:
            frame[column] = np.where(missing, (-999.0, np.nan, 9999.0)[number % 3], cells)
    return frame, "target"


_TABLES: dict[str, Callable[[Draw], Made]] = {
    "incomes": _incomes,
    "claims": _claims,
    "towns": _towns,
    "merchants": _merchants,
    "dates": _dates,
    "sensors": _sensors,
    "90-classes": _species,
    "fraud": _fraud,
    "flights": _flights,
    "wide": _wide,
    "ids": _ids,
    "signs": _signs,
    "reviews": _reviews,
    "rides": _rides,
    "typos": _typos,
    "hospitals": _hospitals,
    "constant": _constant,
    "prices": _prices,
    "products": _products,
    "gaps": _gaps,
    "diabetes": partial(_carried, name="diabetes", units=(" years", "", " kg/m2")),
    "breast_cancer": partial(_carried, name="breast_cancer", units=(" mm", "", " mm", " mm2")),
    "wine": partial(_carried, name="wine", units=(" %", " g/l")),
    "iris": partial(_carried, name="iris", units=(" cm", " cm", "cm")),
}
UGLY = tuple(f"ugly-{name}" for name in _TABLES)


def make(name: str) -> Made:
    """The table of this name and its target, the same each time."""
    return _TABLES[name.removeprefix("ugly-")](np.random.default_rng([ord(letter) for letter in name]))


_MISSING = ("?", "unknown", "n/a", "", "-999", "-999.0", "9999", "9999.0")
_MOST_CATEGORIES = 255


def prepare(frame: pd.DataFrame) -> pd.DataFrame:
    """What a good engineer's few lines of pandas make of a file for HistGradientBoosting.

    Codes for missing become NaN; signs and units go; texts are lower case without blanks around them; days
    become days, days of the week and of the year, and times hours; texts become categories where they are at
    most 255, and whole numbers in the alphabet's order otherwise.
    """
    columns = {}
    for name, cells in frame.items():
        numbers = pd.to_numeric(
            cells.astype(str).str.replace(r"^[$€]|[,%]| ?[a-z/]+2?$| ", "", regex=True), errors="coerce"
        )
        numbers = numbers.mask(cells.astype(str).isin(_MISSING))
        texts = cells.astype(str).where(cells.notna() & ~cells.astype(str).isin(_MISSING))
        texts = texts.str.strip().str.lower()
        known = texts.dropna()
        if known.empty:
            continue
        if numbers.notna().sum() >= 0.95 * len(known):
            columns[name] = numbers
        elif known.str.fullmatch(r"\d\d:\d\d").mean() > 0.95:
            columns[name] = texts.str[:2].astype(float) + texts.str[3:].astype(float) / 60
        elif (
            known.str.contains(r"(?:19|20)\d\d").mean() > 0.95
            and known.str.contains(r"^\d|\d$").mean() > 0.95
        ):
            days = pd.to_datetime(
                texts, format="mixed", dayfirst=bool(known.str.contains(".", regex=False).any())
            )
            columns[name] = (days - pd.Timestamp("1970-01-01")).dt.days
            columns[f"{name} day of week"] = days.dt.dayofweek
            columns[f"{name} day of year"] = days.dt.dayofyear
        elif texts.nunique() <= _MOST_CATEGORIES:
            columns[name] = texts.astype("category")
        else:
            columns[name] = pd.Series(pd.factorize(texts, sort=True)[0], index=texts.index).replace(
                -1, np.nan
            )
    return pd.DataFrame(columns)
