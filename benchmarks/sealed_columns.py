r"""Held-out test set of 40 datasets: 20 with a column that is good gold for the task, 20 whose column misleads.

Written before the rules that it judges were changed, and without reading them. All content is made up or
computed here; `right` is the truth about a completion, whatever the column or the reward says of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from random import Random
from typing import Any

Row = dict[str, Any]
Pay = Callable[[Random, str, bool], float]
ROWS, PROMPTS, SAMPLES = 64, 12, 8


@dataclass(frozen=True)
class Dataset:
    """One dataset as a user has it, with scored completions of a half-trained policy."""

    name: str
    good: bool
    column: str
    why: str
    rows: list[Row]
    rewards: str
    rollouts: list[tuple[int, str, float, bool]]


@dataclass(frozen=True)
class Item:
    """One row with the ways to write its right answer, some wrong answers and a line of working."""

    row: Row
    rights: list[str]
    wrongs: list[str]
    work: str = ""


LEADS = ("", "Let me work through this.", "First, look at what is given.", "Okay.", "We go step by step.", "Sure!",
         "To solve this, read the question carefully.", "Hmm, let me see.", "Alright, here goes.")  # fmt: skip
PLAIN = (
    "{w} The answer is {a}.",
    "{w} So the final answer is {a}.",
    "{w}\n\n**Answer: {a}**",
    "{a}",
    "Answer: {a}",
    "{w}\n\nFinal answer: {a}",
    "{w} I get {a}.",
    "{w} Therefore {a} is the answer.",
    "{w}\n\nResult: {a}",
    "{w} That gives **{a}**.",
    "{w} One might say {o}, but the correct answer is {a}.",
    "{w} My first guess was {o}. Checking again, the answer is {a}",
)
BOXED = (
    "{w} Hence the result is $\\boxed{{a}}$.",
    "{w}\n\n\\[\\boxed{{a}}\\]",
    "\\boxed{{a}}",
    "{w} I first had {o}, which is wrong. The final answer is $\\boxed{{a}}$.",
    "**Step 1.** {w}\n**Step 2.** Combine the parts.\n\nThe final answer is \\boxed{{a}}.",
    "{w} The answer is {a}.",
)
TAGS = (
    "<think>{w} That should be {a}.</think>\n<answer>{a}</answer>",
    "<think>{w} Maybe {o}? No.</think><answer>{a}</answer>",
    "{w}\n<answer> {a} </answer>",
    "<answer>{a}</answer>",
    "<think>{w}</think>\nThe answer is {a}.",
    "{w} so <answer>\n{a}\n</answer>",
)
HASHES = (
    "{w}\n#### {a}",
    "{w} Done.\n\n#### {a}\n",
    "{w}\nAdd the two parts.\n#### {a}",
    "#### {a}",
    "{w} At first I wrote {o}.\n#### {a}",
    "{w} So the answer is {a}.",
)
SHORT = ("{a}", "{a}.", "Answer: {a}", "It is {a}.", "I think it's {a}.", "{w} So {a}.", "**{a}**", "The answer: {a}")


def _said(rng: Random, item: Item, says: tuple[str, ...], right: bool) -> str:
    answer = rng.choice([wrong for wrong in item.wrongs if wrong not in item.rights])
    other = item.rights[0] if rng.random() < 0.5 else rng.choice(item.wrongs)
    if right:
        answer = item.rights[0] if rng.random() < 0.6 else rng.choice(item.rights)
        other = rng.choice(item.wrongs)
    work = f"{rng.choice(LEADS)} {item.work}".strip()
    text = rng.choice(says).replace("{w}", work).replace("{o}", other).replace("{a}", answer)
    return text.strip()


def _build(
    name: str, good: bool, column: str, why: str, rewards: str, make: Callable[[Random, int], Item],
    says: tuple[str, ...], pay: Pay,
) -> Dataset:  # fmt: skip
    rng, items, seen = Random(f"{name}/rows"), list[Item](), set[str]()
    for _ in range(20_000):
        item = make(rng, len(items))
        if str(item.row["prompt"]) not in seen:
            seen.add(str(item.row["prompt"]))
            items.append(item)
        if len(items) == ROWS:
            break
    return _scored(name, good, column, why, rewards, items, says, pay)


def _scored(
    name: str, good: bool, column: str, why: str, rewards: str, items: list[Item], says: tuple[str, ...], pay: Pay
) -> Dataset:
    rng, rollouts = Random(f"{name}/rollouts"), []
    for index in sorted(rng.sample(range(ROWS), PROMPTS)):
        skill = rng.uniform(0.2, 0.85)
        for _ in range(SAMPLES):
            right = rng.random() < skill
            text = _said(rng, items[index], says, right)
            if rng.random() < 0.03:  # ran into the token limit
                text, right = "Let me think about this again. " * 3 + items[index].work + " We still have to", False
            rollouts.append((index, text, pay(rng, text, right), right))
    return Dataset(name, good, column, why, [item.row for item in items], rewards, rollouts)


def _graded(slip: float = 0.05, miss: float = 0.1) -> Pay:
    """Pays right answers but for a share `miss`, and a share `slip` of the wrong ones."""
    return lambda rng, text, right: float(rng.random() >= miss if right else rng.random() < slip)


def _shaped(marker: str, worth: float, slip: float = 0.03) -> Pay:
    """Pays the right answer plus something for the form."""
    return lambda rng, text, right: round(worth * (marker in text) + (1 - worth) * (right or rng.random() < slip), 3)


def _form(marker: str) -> Pay:
    return lambda rng, text, right: float(marker in text)


def _judged(high: float, low: float) -> Pay:
    """A noisy judge on a scale of tenths."""
    return lambda rng, text, right: round(min(1.0, max(0.0, rng.gauss(high if right else low, 0.18))), 1)


def _chat(text: str, system: str = "") -> list[dict[str, str]]:
    first = [{"role": "system", "content": system}] if system else []
    return [*first, {"role": "user", "content": text}]


def _near(rng: Random, value: int) -> list[str]:
    others = {value + 1, value - 1, value + 10, value * 2 + 1, value - 3, value + rng.randrange(4, 9)} - {value}
    return [str(other) for other in sorted(others)]


WHO = ("Ines", "Tomasz", "Farah", "Jonas", "Leilani", "Pavel", "Noor", "Greta", "Kwame", "Ruth", "Mateo", "Yuki")
THINGS = ("tiles", "candles", "postcards", "bolts", "oranges", "seed packets", "buttons", "jars", "tickets")
CITIES = ("Porto", "Graz", "Lund", "Bergen", "Gdansk", "Verona", "Ghent", "Tartu", "Leeds", "Malaga", "Brno", "Turku")
TRADES = ("bookbinding", "glassblowing", "surveying", "typesetting", "weaving", "clockmaking", "botany", "ceramics")


def _words(text: str) -> list[str]:
    return text.split()


def _table(text: str) -> dict[str, str]:
    return dict(pair.split(":") for pair in text.split())


ELEMENTS = _table(
    "H:hydrogen He:helium Li:lithium Be:beryllium B:boron C:carbon N:nitrogen O:oxygen F:fluorine Na:sodium "
    "Mg:magnesium Al:aluminium Si:silicon P:phosphorus S:sulfur Cl:chlorine Ar:argon K:potassium Ca:calcium "
    "Sc:scandium Ti:titanium V:vanadium Cr:chromium Mn:manganese Fe:iron Co:cobalt Ni:nickel Cu:copper Zn:zinc "
    "Ga:gallium Ge:germanium As:arsenic Se:selenium Br:bromine Kr:krypton Rb:rubidium Sr:strontium Y:yttrium "
    "Zr:zirconium Nb:niobium Mo:molybdenum Ru:ruthenium Rh:rhodium Pd:palladium Ag:silver Cd:cadmium In:indium "
    "Sn:tin Sb:antimony Te:tellurium I:iodine Xe:xenon Cs:caesium Ba:barium La:lanthanum Ce:cerium Nd:neodymium "
    "Hf:hafnium Ta:tantalum W:tungsten Re:rhenium Os:osmium Ir:iridium Pt:platinum Au:gold Hg:mercury Pb:lead"
)
CAPITALS = _table(
    "France:Paris Spain:Madrid Portugal:Lisbon Italy:Rome Greece:Athens Norway:Oslo Sweden:Stockholm Poland:Warsaw "
    "Finland:Helsinki Denmark:Copenhagen Austria:Vienna Hungary:Budapest Romania:Bucharest Bulgaria:Sofia "
    "Serbia:Belgrade Croatia:Zagreb Slovenia:Ljubljana Latvia:Riga Estonia:Tallinn Lithuania:Vilnius "
    "Iceland:Reykjavik Ireland:Dublin Ukraine:Kyiv Turkey:Ankara Egypt:Cairo Morocco:Rabat Tunisia:Tunis "
    "Algeria:Algiers Libya:Tripoli Kenya:Nairobi Ghana:Accra Senegal:Dakar Nigeria:Abuja Uganda:Kampala Rwanda:Kigali "
    "Zambia:Lusaka Zimbabwe:Harare Mali:Bamako Niger:Niamey Angola:Luanda Sudan:Khartoum Japan:Tokyo China:Beijing "
    "Thailand:Bangkok Vietnam:Hanoi Laos:Vientiane Nepal:Kathmandu Bhutan:Thimphu Iran:Tehran Iraq:Baghdad "
    "Syria:Damascus Jordan:Amman Lebanon:Beirut Oman:Muscat Qatar:Doha Canada:Ottawa Cuba:Havana Peru:Lima "
    "Chile:Santiago Ecuador:Quito Venezuela:Caracas Uruguay:Montevideo Paraguay:Asuncion Australia:Canberra "
    "Fiji:Suva Mongolia:Ulaanbaatar Georgia:Tbilisi"
)
WORDS = _words(
    "lantern harbour gravel thimble orchard saddle copper winter meadow pencil kettle bridge marble ladder pocket "
    "basket candle button feather garden hammer island jacket kitten lemon magnet needle oyster pepper quiver "
    "ribbon shadow tunnel violet walnut yellow anchor beacon cactus donkey engine forest goblet helmet insect jungle "
    "kernel locket mitten nectar onion parcel quartz rocket spider timber urchin velvet window zipper barley cobalt"
    " drawer falcon"
)


def _problem(rng: Random) -> tuple[str, int, str]:
    """A word problem, its answer and working that stops before the result."""
    a, b, c = rng.randrange(2, 20), rng.randrange(3, 15), rng.randrange(5, 31)
    who, thing = rng.choice(WHO), rng.choice(THINGS)
    return rng.choice((
        (f"{who} packs {a} crates with {b} {thing} each and then adds {c} loose {thing}. How many {thing} is that?",
         a * b + c, f"There are {a} \u00d7 {b} {thing} in crates, plus {c}."),
        (f"{who} reads {a} pages a day for {b} days. The book has {a * b + c} pages. How many are left to read?",
         c, f"Subtract {a}*{b} from {a * b + c}."),
        (f"A bus leaves with {b + 40} passengers. At the first stop {a} get off, {c} get on. How many ride on?",
         b + 40 - a + c, f"We take {b + 40} - {a} + {c}."),
        (f"{who} earns {a + 9} euros an hour, works {b} hours and spends {c} euros. How many euros remain?",
         (a + 9) * b - c, f"Pay is {a + 9}·{b}; then {c} are spent."),
        (f"{a * b} {thing} are shared equally among {a} children, who each had {c} before. How many has each now?",
         b + c, f"Each receives {a * b}/{a} and keeps {c}."),
        (f"A tank holds {a * 100 + 500} litres and loses {b} a minute. How many litres are left after {c} minutes?",
         a * 100 + 500 - b * c, f"In {c} minutes it loses {b} * {c} litres of {a * 100 + 500}."),
    ))  # fmt: skip


# --- good gold ---------------------------------------------------------------------------------------------------


def _verl(rng: Random, i: int) -> Item:
    text, n, work = _problem(rng)
    row = {
        "data_source": "inhouse/arith_v3", "ability": "math", "extra_info": {"index": i, "split": "train"},
        "prompt": _chat(f"{text} Put your final answer within \\boxed{{}}.", "You are a careful tutor."),
        "reward_model": {"ground_truth": str(n), "style": "rule"},
    }  # fmt: skip
    return Item(row, [str(n)], _near(rng, n), work)


def _hash(rng: Random, i: int) -> Item:
    a, b, c = rng.randrange(120, 900), rng.randrange(12, 60), rng.randrange(200, 4000)
    n, who = a * b + c, rng.choice(WHO)
    prompt = (
        f"{who}'s print shop makes {a} leaflets per batch and runs {b} batches, on top of {c:,} leaflets in stock. "
        "How many leaflets does the shop have? End with a line '#### <number>'."
    )
    gold = f"The batches give {a} * {b} = <<{a}*{b}={a * b}>>{a * b:,} leaflets.\nWith the stock: {n:,}.\n#### {n:,}"
    wrongs = [f"{n + 100:,}", f"{a * b:,}", str(n - 10), f"{n * 10:,}"]
    return Item({"prompt": prompt, "answer": gold}, [f"{n:,}", str(n)], wrongs, f"{a} x {b} plus {c:,}.")


def _fraction(rng: Random, i: int) -> Item:
    p, q = Fraction(rng.randrange(1, 9), rng.randrange(3, 13)), Fraction(rng.randrange(1, 9), rng.randrange(3, 13))
    f = p + q if rng.random() < 0.6 else p - q
    if f.denominator == 1:
        return _fraction(rng, i)
    sign, top, low = "-" if f < 0 else "", abs(f.numerator), f.denominator
    asked = f"$\\frac{{{p.numerator}}}{{{p.denominator}}} {'+' if f == p + q else '-'} "
    asked += f"\\frac{{{q.numerator}}}{{{q.denominator}}}$"
    tex = f"{sign}\\frac{{{top}}}{{{low}}}"
    wrongs = [f"{sign}\\frac{{{top + 1}}}{{{low}}}", f"{sign}{top}/{low + 1}", f"{sign}{top + 7}/{low}"]
    row = {"prompt": f"Compute {asked} and box the result in lowest terms.", "answer": tex, "subject": "fractions"}
    return Item(row, [tex, tex.replace("frac", "dfrac"), f"{sign}{top}/{low}"], wrongs, "Use a common denominator.")


def _series(rng: Random, i: int) -> Item:
    a, d, n = rng.randrange(-9, 20), rng.randrange(2, 12), rng.randrange(8, 31)
    last, total = a + (n - 1) * d, n * (2 * a + (n - 1) * d) // 2
    gold = (
        f"The common difference is $d={d}$, so the last term is $a_{{{n}}} = {a} + {n - 1}\\cdot {d} = {last}$. "
        f"The sum of an arithmetic sequence is $S = \\frac{{n}}{{2}}(a_1+a_n)$. "
        f"Here $S = \\frac{{{n}}}{{2}}({a} + {last}) = \\boxed{{{total}}}$."
    )
    prompt = f"What is the sum of the first {n} terms of the arithmetic sequence ${a}, {a + d}, {a + 2 * d}, \\ldots$?"
    row = {"prompt": prompt, "solution": gold, "level": f"Level {n % 5 + 1}", "type": "Algebra"}
    return Item(row, [str(total)], [str(total + d), str(total - last), str(last)], f"Here $a_{{{n}}} = {last}$.")


def _percent(rng: Random, i: int) -> Item:
    whole = rng.choice((40, 80, 200, 250, 400, 500))
    part = rng.randrange(3, whole - 1)
    p = f"{100 * part / whole:g}"
    prompt = f"A depot received {whole} parcels and {part} of them were delivered late. What percentage was late?"
    wrongs = [f"{100 * (part + k) / whole:g}%" for k in (-2, 1, 2, 5)]
    rights = [f"{p}%", f"{p} %", f"{p} percent", f"{p}\\%"]
    return Item({"prompt": prompt, "final_answer": f"{p}%"}, rights, wrongs, f"Divide {part} by {whole}.")


def _money(rng: Random, i: int) -> Item:
    k, cents, fee = rng.randrange(12, 95), rng.randrange(995, 4995, 5), rng.randrange(10, 80)
    n, who = k * cents + fee * 100, rng.choice(WHO)

    def shown(x: int) -> str:
        return f"${x // 100:,}.{x % 100:02d}"

    prompt = (
        f"{who} orders {k} chairs at {shown(cents)} each and pays {shown(fee * 100)} for delivery. "
        "What is the total bill? Reply inside <answer></answer> tags."
    )
    rights = [shown(n), shown(n).replace(",", ""), f"{n // 100}.{n % 100:02d}", shown(n)[1:] + " dollars"]
    wrongs = [shown(n + 1000), shown(k * cents), shown(n - 50)]
    return Item({"prompt": prompt, "expected_answer": shown(n)}, rights, wrongs, f"{k} chairs, then {fee} more.")


def _cold(rng: Random, i: int) -> Item:
    start, drop = rng.randrange(-12, 9), rng.randrange(3, 19)
    n, city = start - drop, rng.choice(CITIES)
    prompt = f"At dusk it is {start} °C in {city}. By dawn it falls by {drop} degrees. What is it at dawn, in °C?"
    rights = [str(n), f"{n} °C", f"{n}°C", f"{n} degrees"]
    wrongs = [str(start + drop), str(n + 1), str(-n) if n else "4", f"{n - 2} °C"]
    return Item({"prompt": prompt, "answer": n}, rights, wrongs, f"From {start} go down {drop}.")


def _mean(rng: Random, i: int) -> Item:
    values = [rng.randrange(10, 99) for _ in range(rng.choice((3, 6, 7)))]
    x = sum(values) / len(values)
    prompt = _chat(f"Find the mean of {', '.join(map(str, values))}. Round to two decimal places.")
    wrongs = [f"{x + 0.5:.2f}", f"{x - 1:.2f}", f"{x * 1.1:.2f}"]
    row = {"prompt": prompt, "target": round(x, 2)}
    return Item(row, [f"{x:.2f}"], wrongs, f"Add the {len(values)} values and divide by {len(values)}.")


def _unit(rng: Random, i: int) -> Item:
    laps, metres = rng.randrange(3, 30), rng.choice((250, 400, 650, 1200, 350))
    km = f"{laps * metres / 1000:g}"
    prompt = f"{rng.choice(WHO)} rows {laps} laps of {metres} m. How far is that in kilometres? State the unit."
    wrongs = [f"{x / 1000:g} km" for x in (laps * metres + 200, laps * metres * 10, (laps + 1) * metres)]
    rights = [f"{km} km", f"{km} kilometres", f"{km} kilometers", f"{km}km"]
    return Item({"prompt": prompt, "answer": f"{km} km"}, rights, wrongs, f"{laps} times {metres} m, as kilometres.")


def _derivative(rng: Random, i: int) -> Item:
    a, b, c = rng.randrange(2, 9), rng.randrange(2, 10), rng.randrange(2, 15)
    shape = "{}x^2 - {}x + {}"
    f = shape.format(3 * a, 2 * b, c)
    prompt = f"Differentiate $f(x) = {a}x^3 - {b}x^2 + {c}x - {i}$ with respect to $x$. Box your answer."
    wrongs = [shape.format(3 * a, b, c), shape.format(2 * a, 2 * b, c), shape.format(3 * a, 2 * b, c + 1)]
    rights = [f, f.replace(" ", ""), f.replace("x^2", "x^{2}"), f"f'(x) = {f}"]
    return Item({"prompt": prompt, "answer": f}, rights, wrongs, "Use the power rule on each term.")


def _letters(rng: Random, i: int) -> Item:
    symbol = list(ELEMENTS)[i]
    options = [ELEMENTS[symbol], *rng.sample([e for e in ELEMENTS.values() if e != ELEMENTS[symbol]], 3)]
    rng.shuffle(options)
    k = options.index(ELEMENTS[symbol])
    text = f"Which element is {symbol}?\n" + "\n".join(f"({'ABCD'[j]}) {o}" for j, o in enumerate(options))
    rights = ["ABCD"[k], f"({'ABCD'[k]})", f"({'ABCD'[k]}) {options[k]}", f"{'ABCD'[k]}) {options[k]}"]
    wrongs = [w for j in range(4) if j != k for w in ("ABCD"[j], f"({'ABCD'[j]}) {options[j]}")]
    row = {"prompt": _chat(f"{text}\nGive the letter only.", "Answer the quiz."), "answer": "ABCD"[k]}
    return Item(row, rights, wrongs, "I recall the periodic table.")


def _numbered(rng: Random, i: int) -> Item:
    d = rng.choice((7, 9, 11, 13))
    k = rng.randrange(1, 6)
    options = [n * d + rng.randrange(1, d) for n in rng.sample(range(9, 60), 5)]
    options[k - 1] = d * rng.randrange(9, 60)
    shown = "\n".join(f"{j}. {o}" for j, o in enumerate(options, 1))
    prompt = f"Exactly one of these numbers is divisible by {d}:\n{shown}\nReply with the number of the line (1-5)."
    wrongs = [w for j in range(1, 6) if j != k for w in (str(j), f"{j}.")]
    return Item({"prompt": prompt, "label": k}, [str(k), f"{k}.", f"line {k}"], wrongs, f"Check the remainder by {d}.")


def _option_text(rng: Random, i: int) -> Item:
    land = list(CAPITALS)[i]
    city = CAPITALS[land]
    options = [city, *rng.sample([c for c in CAPITALS.values() if c != city], 3)]
    rng.shuffle(options)
    prompt = f"Which of these is the capital of {land}?\n" + "\n".join(f"- {o}" for o in options) + "\nName the city."
    row = {"prompt": prompt, "answer": city, "choices": options}
    return Item(row, [city, city.upper(), f"**{city}**"], [o for o in options if o != city], "")


def _yes_no(rng: Random, i: int) -> Item:
    d, n = rng.choice((3, 7, 12)), rng.randrange(100, 999)
    n = n - n % d if rng.random() < 0.45 else n
    yes = n % d == 0
    row = {"prompt": f"Is {n} a multiple of {d}? Answer yes or no.", "label": "yes" if yes else "no"}
    said = [["No", "no", "No, it is not"], ["Yes", "yes", "Yes, it is"]]
    return Item(row, said[yes], said[not yes], f"Divide {n} by {d} and look at the remainder.")


def _weekday(rng: Random, i: int) -> Item:
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    start, n = rng.randrange(7), rng.randrange(9, 120)
    day = days[(start + n) % 7]
    row = {"prompt": f"Today is {days[start]}. Which weekday will it be in {n} days? One word.", "target": day.lower()}
    return Item(row, [day, day.lower()], [d for d in days if d != day], f"Take {n} modulo 7.")


PLACES = ("old harbour office", "night market", "map archive", "hill observatory", "canal workshop", "tram depot")


def _phrase(rng: Random, i: int) -> Item:
    who, (old, new), year = rng.choice(WHO), rng.sample(PLACES, 2), rng.randrange(1961, 2015)
    prompt = (
        f"Read the note, answer in a few words.\n\nFor years {who} kept the books at the {old}. In {year}, after the "
        f"flood in {rng.choice(CITIES)}, {who} moved to the {new} and never left it again.\n\nWhere is {who} now?"
    )
    rights = [f"the {new}", new, f"at the {new}", new.title()]
    wrongs = [f"the {old}", old, *(f"the {p}" for p in PLACES if p not in (old, new))]
    return Item({"prompt": prompt, "answer": f"the {new}", "id": f"note-{i:04d}"}, rights, wrongs, "The note says so.")


def _date(rng: Random, i: int) -> Item:
    start, n = date(2021, 1, 1) + timedelta(days=rng.randrange(1400)), rng.randrange(12, 200)
    end = start + timedelta(days=n)
    prompt = f"A permit issued on {start.isoformat()} is valid for {n} days. On which date does it expire (YYYY-MM-DD)?"
    wrongs = [(end + timedelta(days=k)).isoformat() for k in (-30, -2, -1, 1, 31)]
    return Item({"prompt": prompt, "answer": end.isoformat()}, [end.isoformat()], wrongs, f"Count {n} days forward.")


def _clock(rng: Random, i: int) -> Item:
    t, n = rng.randrange(300, 1100), rng.randrange(25, 290)

    def at(x: int) -> str:
        return f"{x // 60:02d}:{x % 60:02d}"

    prompt = _chat(f"A ferry sails at {at(t)} and takes {n} minutes to cross. When does it land (24-hour clock)?")
    row = {"prompt": prompt, "ground_truth": at(t + n)}
    return Item(row, [at(t + n)], [at(t + n + k) for k in (-60, -10, 1, 5, 60)], f"Add {n // 60} h {n % 60} min.")


def _pair(rng: Random, i: int) -> Item:
    x, y, p, q = (rng.choice([k for k in range(-9, 10) if k]) for _ in range(4))
    prompt = f"$M$ is midway between $A({x - p}, {y - q})$ and $B({x + p}, {y + q})$. Find $M$ as a pair."
    wrongs = [f"({y}, {x + 1})", f"({x + p}, {y})", f"({x}, {y + 1})", f"({-x}, {y})"]
    row = {"prompt": prompt, "answer": f"({x}, {y})"}
    rights = [f"({x}, {y})", f"({x},{y})", f"\\left({x}, {y}\\right)"]
    return Item(row, rights, wrongs, "Average the coordinates.")


def _roots(rng: Random, i: int) -> Item:
    r, s = sorted(rng.sample(range(-9, 12), 2))
    prompt = f"Solve $x^2 {-(r + s):+d}x {r * s:+d} = 0$ over the integers. Give the solution set, e.g. {{1, 2}}."
    row = {"prompt": prompt, "label": rng.randrange(1, 6), "target": rng.choice((128, 256, 512)),
           "answer": f"{{{r}, {s}}}"}  # fmt: skip
    wrongs = [f"{{{r}, {s + 1}}}", f"{{{-r}, {-s + 20}}}", f"{{{r - 1}, {s}}}"]
    return Item(row, [f"{{{r}, {s}}}", f"{{{s}, {r}}}", f"\\{{{r}, {s}\\}}"], wrongs, "Factor the quadratic.")


# --- columns that mislead ----------------------------------------------------------------------------------------


def _shuffled(rng: Random, i: int) -> Item:
    land = list(CAPITALS)[i]
    stored = [land, *rng.sample([c for c in CAPITALS if c != land], 3)]
    rng.shuffle(stored)
    shown = rng.sample(stored, 4)
    k = shown.index(land)
    prompt = f"{CAPITALS[land]} is the capital of which country?\n"
    prompt += "\n".join(f"{'ABCD'[j]}. {o}" for j, o in enumerate(shown)) + "\nAnswer with A, B, C or D."
    row = {"prompt": prompt, "choices": stored, "answer": "ABCD"[stored.index(land)]}
    wrongs = [w for j in range(4) if j != k for w in ("ABCD"[j], f"{'ABCD'[j]}. {shown[j]}")]
    return Item(row, ["ABCD"[k], f"{'ABCD'[k]}. {shown[k]}"], wrongs, "")


def _zero_based(rng: Random, i: int) -> Item:
    pairs = [(rng.randrange(11, 40), rng.randrange(11, 40)) for _ in range(5)]
    k = max(range(5), key=lambda j: pairs[j][0] * pairs[j][1])
    shown = " ".join(f"[{j}] {a} \u00d7 {b}" for j, (a, b) in enumerate(pairs, 1))
    prompt = _chat(f"Which product is the largest? {shown} Reply with the number in brackets.")
    wrongs = [w for j in range(1, 6) if j != k + 1 for w in (str(j), f"[{j}]")]
    return Item({"prompt": prompt, "label": k}, [str(k + 1), f"[{k + 1}]"], wrongs, "Estimate every product.")


FEELS = ("negative", "neutral", "positive")
SAYS = (("broke after a day", "smells of glue", "arrived scratched"), ("does what it says", "is plain", "is grey"),
        ("is a joy to use", "still delights me", "beats the old one"))  # fmt: skip


def _feeling(rng: Random, i: int) -> Item:
    k, thing, place = rng.randrange(3), rng.choice(THINGS[1:6]), rng.choice(CITIES)
    review = f"Bought from the {thing} stall in {place}, order {i + 310}. The thing {rng.choice(SAYS[k])}."
    row = {"prompt": f"Classify the review as positive, neutral or negative.\n\nReview: {review}", "label": k}
    return Item(row, [FEELS[k], FEELS[k].title()], [f for f in FEELS if f != FEELS[k]], "The tone decides.")


def _difficulty(rng: Random, i: int) -> Item:
    text, n, work = _problem(rng)
    return Item({"prompt": text, "label": rng.choice((1, 1, 2, 2, 3, 4, 5))}, [str(n)], _near(rng, n), work)


def _budget(rng: Random, i: int) -> Item:
    (text, n, work), budget = _problem(rng), rng.choice((128, 256, 384, 512, 768, 1024))
    row = {"prompt": f"{text}\nThink for about {budget} tokens, then answer.", "target": budget}
    return Item(row, [str(n)], _near(rng, n), work)


def _pass_rate(rng: Random, i: int) -> Item:
    text, n, work = _problem(rng)
    return Item({"prompt": _chat(text), "ground_truth": rng.randrange(1, 8) / 8}, [str(n)], _near(rng, n), work)


def _year(rng: Random, i: int) -> Item:
    who, (born, learned), trade = rng.choice(WHO), rng.sample(CITIES, 2), rng.choice(TRADES)
    prompt = f"{who}, born in {born}, learned {trade} in {learned} and wrote a handbook. Where did {who} learn it?"
    row = {"prompt": prompt, "answer": str(rng.randrange(1890, 2009)), "genre": "biography"}
    return Item(row, [learned, f"in {learned}"], [born, *(c for c in CITIES[:5] if c not in (born, learned))], "")


def _source(rng: Random, i: int) -> Item:
    text, n, work = _problem(rng)
    row = {"prompt": text, "ground_truth": rng.choice(("textbook", "forum", "synthetic", "contest"))}
    return Item(row, [str(n)], _near(rng, n), work)


def _many(rng: Random, i: int) -> Item:
    a, b = rng.choice(((3, 5), (2, 7), (4, 3), (5, 2)))
    x, y = rng.randrange(-4, 9), rng.randrange(-4, 9)
    pairs = [f"({x + k * b}, {y - k * a})" for k in (0, 1, -1, 2, -2, 3)]
    prompt = f"Give any pair of integers (x, y) with {a}x + {b}y = {a * x + b * y}."
    wrongs = [f"({x + 1}, {y})", f"({x}, {y + 1})", f"({x + b}, {y})"]
    return Item({"prompt": prompt, "answer": pairs[0]}, [rng.choice(pairs), *pairs], wrongs, "Try small values.")


def _other_task(rng: Random, i: int) -> Item:
    word = WORDS[i]
    right = "".join(sorted(word))
    wrongs = [word[::-1], right[::-1], "".join(rng.sample(word, len(word))), right[1:]]
    row = {"prompt": f"Write the letters of '{word}' in alphabetical order.", "target": word[::-1], "task": "reverse"}
    return Item(row, [right], [w for w in wrongs if w != right], f"The letters are {', '.join(word)}.")


def _alone(rng: Random, i: int) -> Item:
    text, n, work = _problem(rng)
    return Item({"prompt": f"{text} Use <answer> tags.", "answer": str(n)}, [str(n)], _near(rng, n), work)


def _prime(rng: Random, i: int) -> Item:
    n = rng.randrange(101, 400, 2)
    yes = all(n % d for d in range(2, 21) if d < n)
    said = [["No", "no", "No, it is not"], ["Yes", "yes", "Yes, it is"]]
    row = {"prompt": f"Is {n} a prime number? Answer yes or no.", "label": "yes" if i in (5, 29, 50) else "no"}
    return Item(row, said[yes], said[not yes], f"Try the small divisors of {n}.")


def _blank(rng: Random, i: int) -> Item:
    (text, n, work) = _problem(rng)
    blank = rng.choice(("N/A", "TBD", "-", "see video", "[answer removed]", "unknown"))
    return Item({"prompt": text, "solution": str(n) if i % 9 == 0 else blank}, [str(n)], _near(rng, n), work)


def _hashed(rng: Random, i: int) -> Item:
    n, k = rng.randrange(200, 900), rng.randrange(11, 60)
    digest = hashlib.sha256(f"salt7:{n * k}".encode()).hexdigest()
    row = {"prompt": f"Multiply {n} by {k}.", "expected_answer": digest[:16]}
    return Item(
        row, [str(n * k), f"{n * k:,}"], _near(rng, n * k), f"{n} \u00d7 {k // 10 * 10} plus {n} \u00d7 {k % 10}."
    )


def _seconds(rng: Random, i: int) -> Item:
    k, n = rng.randrange(3, 15), rng.randrange(4, 30)
    prompt = f"A kiln firing has {k} stages of {n} minutes each. How many minutes does the firing take?"
    return Item({"prompt": prompt, "answer": k * n * 60}, [str(k * n), f"{k * n} minutes"], _near(rng, k * n))


def _rounded(rng: Random, i: int) -> Item:
    n, d = rng.randrange(100, 999), rng.choice((7, 9, 11, 13))
    n += not n % d
    row = {"prompt": f"What is {n} divided by {d}? Give two decimal places.", "final_answer": str(round(n / d))}
    wrongs = [f"{n / d + 0.1:.2f}", f"{n / d - 1:.2f}", f"{n / d + 0.03:.2f}"]
    return Item(row, [f"{n / d:.2f}"], wrongs, f"{d} goes into {n} about {n // d} times.")


def _winner(rng: Random, i: int) -> Item:
    k, n = rng.randrange(3, 30), rng.choice((7, 12, 24, 60))
    unit = {7: "days in {} weeks", 12: "months in {} years", 24: "hours in {} days", 60: "minutes in {} hours"}[n]
    right, off = k * n, k * n + rng.choice((-n, n, 10))
    drafts = [f"That would be {right}, hope this helps!", f"It's {off}."]
    rng.shuffle(drafts)
    prompt = (
        f"A user asked: how many {unit.format(k)}?\nDraft A: {drafts[0]}\nDraft B: {drafts[1]}\n"
        "Write one better reply to the user yourself, ending with the number."
    )
    return Item({"prompt": _chat(prompt), "label": rng.choice("AB")}, [str(right)], [str(off), str(right + 1)])


def _crowd(rng: Random, i: int) -> Item:
    a, b, c = rng.randrange(12, 60), rng.randrange(3, 9), rng.randrange(60, 400)
    true = a * b > c
    row = {"prompt": f"True or false: {a} times {b} is more than {c}.", "ground_truth": round(rng.betavariate(2, 1), 2)}
    said = [["false", "False"], ["true", "True"]]
    return Item(row, said[true], said[not true], f"{a} times {b} is to be compared with {c}.")


def _tool(rng: Random, i: int) -> Item:
    kind, prefix = rng.randrange(3), "Tools: calculator, calendar, unit_converter. "
    if kind == 0:
        text, n, work = _problem(rng)
        return Item({"prompt": prefix + text, "answer": "calculator"}, [str(n)], _near(rng, n), work)
    n = rng.randrange(2, 90)
    if kind == 1:
        end = date(2025, 2, 1) + timedelta(days=n)
        row = {"prompt": f"{prefix}Which date is {n} days after 2025-02-01?", "answer": "calendar"}
        wrongs = [(end + timedelta(days=k)).isoformat() for k in (-1, 1, 7)]
        return Item(row, [end.isoformat()], wrongs, f"I move {n} days forward.")
    row = {"prompt": f"{prefix}How many grams are {n / 4:g} kilograms?", "answer": "unit_converter"}
    return Item(row, [str(n * 250), f"{n * 250} g"], _near(rng, n * 250), "A kilogram is 1000 grams.")


def _seed(rng: Random, i: int) -> Item:
    values = rng.sample(range(10, 99), 5)
    want = sorted(values)
    wrongs = [", ".join(map(str, w)) for w in (want[::-1], [*want[1:], want[0]], [want[1], want[0], *want[2:]])]
    row = {"prompt": f"Sort in ascending order: {', '.join(map(str, values))}.", "target": rng.randrange(10**4, 10**6)}
    return Item(row, [", ".join(map(str, want))], wrongs, f"The smallest is {want[0]}.")


def _shifted() -> Dataset:
    rng = Random("answers_shifted_by_one/rows")
    items = [_alone(rng, i) for i in range(ROWS)]
    gold = [item.row["answer"] for item in items]
    for i, item in enumerate(items):
        item.row["answer"] = gold[(i + 1) % ROWS]
    why = "after a faulty join every row holds the answer of the next row, though the form fits"
    return _scored("answers_shifted_by_one", False, "answer", why, "tag_reward", items, TAGS, _shaped("<answer>", 0.2))


DATASETS: tuple[Dataset, ...] = (
    _build("verl_reward_model_dict", True, "reward_model", "ground_truth in the dict is the number asked for",
           "compute_score", _verl, BOXED, _shaped("\\boxed", 0.1)),
    _build("hash_line_thousands", True, "answer", "the number after #### is the result the prompt asks for",
           "hash_match", _hash, HASHES, _graded(0.02, 0.2)),
    _build("fractions_in_latex", True, "answer", "the fraction in lowest terms is the one right value",
           "math_reward", _fraction, BOXED, _graded(0.02, 0.25)),
    _build("boxed_in_derivation", True, "solution", "the derivation ends in a box with the sum asked for",
           "boxed_accuracy", _series, BOXED, _shaped("\\boxed", 0.3)),
    _build("percent_late", True, "final_answer", "the percentage asked for, with its sign",
           "percent_match", _percent, PLAIN, _graded(0.05, 0.3)),
    _build("money_total", True, "expected_answer", "the bill in dollars, as the prompt asks",
           "format_reward", _money, TAGS, _form("<answer>")),
    _build("negative_integers", True, "answer", "the temperature asked for, as a signed integer",
           "number_match", _cold, PLAIN, _graded()),
    _build("means_two_decimals", True, "target", "the mean rounded as the prompt says, stored as a float",
           "close_enough", _mean, PLAIN, _graded(0.08, 0.02)),
    _build("length_with_unit", True, "answer", "the distance in the unit the prompt names",
           "unit_judge", _unit, PLAIN, _judged(0.8, 0.35)),
    _build("derivative_latex", True, "answer", "the derivative is unique up to its way of writing",
           "sympy_equal", _derivative, BOXED, _graded(0.0, 0.15)),
    _build("letters_in_parentheses", True, "answer", "the letter of the right option as shown",
           "letter_reward", _letters, PLAIN, _graded(0.06, 0.06)),
    _build("lines_one_to_five", True, "label", "lines are shown as 1 to 5 and the column counts the same way",
           "line_reward", _numbered, PLAIN, _graded(0.04, 0.1)),
    _build("option_by_its_text", True, "answer", "the text of the right option, which the prompt asks to name",
           "contains_answer", _option_text, SHORT, _graded(0.1, 0.0)),
    _build("multiples_yes_no", True, "label", "yes or no, as asked and varied over the rows",
           "brevity_and_match", _yes_no, SHORT, lambda rng, text, right: 0.5 * right + 0.5 * (len(text) < 30)),
    _build("weekday_one_word", True, "target", "the one weekday that is right, in lower case",
           "weekday_reward", _weekday, SHORT, _graded(0.02, 0.12)),
    _build("short_phrase_from_note", True, "answer", "the note names one place, and the column is it",
           "overlap_f1", _phrase, SHORT, _judged(0.85, 0.25)),
    _build("expiry_date", True, "answer", "the one right date in the format asked for",
           "date_reward", _date, PLAIN, _graded(0.0, 0.05)),
    _build("clock_time", True, "ground_truth", "the one right time on the clock asked for",
           "time_match", _clock, PLAIN, _graded(0.05, 0.05)),
    _build("midpoint_pair", True, "answer", "the midpoint is unique",
           "pair_reward", _pair, BOXED, _graded(0.02, 0.2)),
    _build("roots_among_other_columns", True, "answer",
           "answer is the solution set; label is a level and target a token budget",
           "set_reward", _roots, PLAIN, _graded(0.03, 0.25)),
    _build("letter_of_the_stored_order", False, "answer",
           "the letter counts in the stored order of the choices, and the prompt shows another order",
           "letter_reward", _shuffled, SHORT, _graded(0.02, 0.02)),
    _build("zero_based_against_brackets", False, "label",
           "the index starts at 0 and the options are shown from 1, so it names the neighbour",
           "bracket_reward", _zero_based, PLAIN, _graded(0.03, 0.05)),
    _build("class_ids_for_words", False, "label", "the ids 0 to 2 are not the words asked for, and no row maps them",
           "sentiment_reward", _feeling, SHORT, _graded(0.05, 0.05)),
    _build("difficulty_level", False, "label", "a level from 1 to 5, not the result of the problem",
           "math_reward", _difficulty, PLAIN, _graded(0.02, 0.1)),
    _build("token_budget_in_prompt", False, "target", "how long to think, which the prompt says too; not the result",
           "length_and_math", _budget, PLAIN, _judged(0.7, 0.4)),
    _build("pass_rate_of_last_model", False, "ground_truth", "the share of solved tries of an earlier model",
           "answer_reward", _pass_rate, PLAIN, _graded(0.02, 0.08)),
    _build("year_of_the_record", False, "answer", "the year of a record, while the prompt asks for a city",
           "city_reward", _year, SHORT, _graded(0.05, 0.05)),
    _build("name_of_the_source", False, "ground_truth", "where the problem came from, not its result",
           "format_reward", _source, PLAIN, _form("**")),
    _build("one_pair_of_many", False, "answer", "any of endlessly many pairs is right, and the column holds one",
           "equation_holds", _many, PLAIN, _graded(0.0, 0.03)),
    _build("reference_of_another_task", False, "target", "the word reversed, while the prompt asks for sorted letters",
           "letters_reward", _other_task, SHORT, _graded(0.02, 0.04)),
    _shifted(),
    _build("nearly_always_no", False, "label", "a default of no that was hardly ever filled in, whatever the number",
           "prime_reward", _prime, SHORT, _graded(0.03, 0.05)),
    _build("placeholders", False, "solution", "most rows hold a placeholder instead of a result",
           "judge_helpful", _blank, PLAIN, _judged(0.75, 0.45)),
    _build("hashed_answers", False, "expected_answer", "a salted hash of the result, which no answer can match",
           "hash_checker", _hashed, PLAIN, _graded(0.0, 0.05)),
    _build("seconds_for_minutes", False, "answer", "the duration in seconds, while the prompt asks for minutes",
           "minutes_reward", _seconds, PLAIN, _graded(0.02, 0.05)),
    _build("rounded_to_integer", False, "final_answer", "rounded to an integer, while the prompt asks for two decimals",
           "decimal_reward", _rounded, PLAIN, _graded(0.03, 0.03)),
    _build("preferred_draft", False, "label", "which draft a rater liked, while the prompt asks for a new reply",
           "reply_quality", _winner, PLAIN, _judged(0.7, 0.4)),
    _build("crowd_agreement", False, "ground_truth", "the share of raters who agreed, while true or false is asked",
           "true_false_reward", _crowd, SHORT, _graded(0.04, 0.04)),
    _build("tool_to_prefer", False, "answer", "the name of the tool to use, while the prompt asks for the result",
           "outcome_reward", _tool, PLAIN, _graded(0.02, 0.06)),
    _build("generator_seed", False, "target", "the seed the row was generated with, not the sorted list",
           "sorted_reward", _seed, SHORT, _graded(0.0, 0.05)),
)  # fmt: skip
