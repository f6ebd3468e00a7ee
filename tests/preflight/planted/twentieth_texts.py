"""Sound sets of the twentieth examination about texts and labels."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl
from tests.preflight.planted.models import BASE, GEMMA, LLAMA
from tests.preflight.planted.nineteenth_tables import chat
from tests.preflight.planted.tables import Row
from tests.preflight.planted.twentieth_text_rewards import (
    ANSWER_TAG,
    CORRECTED,
    COSINE,
    DECISION,
    ENTITIES,
    FIELDS,
    FRENCH,
    GRADE_OF_CROSSWORD,
    NEAR_THIRTY,
    PROMISE,
    SENTENCE_BLEU,
    WEIGHTED_CLASSES,
)

_PEOPLE = ("Anneke", "Boris", "Celeste", "Dario", "Emeka", "Fiona", "Gustav", "Hana", "Imran", "Jolanta", "Kenji", "Lucia", "Mateo", "Nadia")  # fmt: skip
_TOWNS = ("Bergen", "Toledo", "Odessa", "Kyoto", "Cusco", "Nantes", "Dublin", "Aleppo", "Tartu", "Perth", "Salem", "Genoa")  # fmt: skip
_GOODS = ("kettles", "rucksacks", "printers", "tents", "blenders", "scooters", "drills", "lamps", "keyboards", "skates")  # fmt: skip


def rows(count: int, seed: int, row: Callable[[random.Random, int], Row]) -> list[Row]:
    """Different rows."""
    rng, found = random.Random(seed), {}
    for at in range(20 * count):
        if len(found) == count:
            break
        made = row(rng, at)
        found.setdefault(json.dumps(made["prompt"], default=str), made)
    return list(found.values())


_INCIDENTS = {
    "routine": ("The printer on floor {n} needs toner.", "Please reset the badge of desk {n}.", "The lamp in room {n} flickers.", "A new chair for room {n}, please.", "Meeting room {n} has no chalk."),
    "urgent": ("Smoke comes from the server rack in room {n}.", "Water runs through the ceiling of room {n}.", "The door of the vault {n} stands open and nobody is there.", "A colleague fainted in room {n}."),
    "security": ("A stranger asked me for the password of account {n}.", "Laptop {n} with customer data was stolen.", "A mail with an odd link came to {n} of us."),
}  # fmt: skip


def _incident(rng: random.Random, at: int) -> Row:
    label = "urgent" if at % 12 == 5 else "security" if at % 12 == 9 else "routine"
    text = rng.choice(_INCIDENTS[label]).format(n=rng.randint(100, 999))
    return {
        "prompt": chat(f"{rng.choice(_PEOPLE)} ({rng.choice(_TOWNS)}) writes: {text}\n\nThink about how serious it is, then give one of the labels routine, urgent, security as <label>...</label>."),
        "label": label,
    }  # fmt: skip


def _job(rng: random.Random, _: int) -> Row:
    title, town = rng.choice(("welder", "nurse", "baker", "data analyst", "tram driver", "tailor", "chemist")), rng.choice(_TOWNS)  # fmt: skip
    salary = rng.randrange(24000, 90000, 500) if rng.random() < 0.7 else None
    skills = rng.sample(("Spanish", "welding", "SQL", "first aid", "a driving license", "bookkeeping"), rng.randint(0, 3))  # fmt: skip
    firm = f"{rng.choice(_PEOPLE)} & {rng.choice(_PEOPLE)}"
    text = f"{firm} seek a {title} in {town}. " + (f"The pay is {salary} euros a year. " if salary else "The pay is open. ")  # fmt: skip
    text += f"You bring: {', '.join(skills)}." if skills else "No skills are required."
    ask = "Extract the advert as a JSON object in a ```json block with the keys title, town, salary (a number or null) and skills (a list, maybe empty)."
    gold = {"title": title, "town": town, "salary": salary, "skills": skills}
    return {"prompt": chat(f"{ask}\n\n{text}"), "fields": json.dumps(gold)}


_WHO = {"the gardener": "el jardinero", "my aunt": "mi tía", "a tired student": "un estudiante cansado", "the new mayor": "la nueva alcaldesa", "our uncle": "nuestro tío", "the sailor": "el marinero"}  # fmt: skip
_DOES = {"waters": "riega", "photographs": "fotografía", "draws": "dibuja", "admires": "admira", "describes": "describe"}  # fmt: skip
_WHAT = {"the roses of the old castle": "las rosas del viejo castillo", "the trees along the river": "los árboles junto al río", "a small garden behind the school": "un pequeño jardín detrás de la escuela", "the flowers of the neighbor": "las flores del vecino"}  # fmt: skip
_WHEN = {"on Sundays": "los domingos", "at dawn": "al amanecer", "after work": "después del trabajo", "with great patience": "con mucha paciencia"}  # fmt: skip


def _spanish(rng: random.Random, _: int) -> Row:
    picks = [rng.choice(list(words.items())) for words in (_WHO, _DOES, _WHAT, _WHEN)]
    english, spanish = (" ".join(pick[side] for pick in picks) for side in (0, 1))
    return {
        "prompt": chat(f"{english.capitalize()}.", "Translate the user's sentence into Spanish. Write only the translation."),
        "reference": f"{spanish.capitalize()}.",
    }  # fmt: skip


def _report(rng: random.Random, _: int) -> Row:
    who, town, goods, cause = rng.choice(_PEOPLE), rng.choice(_TOWNS), rng.choice(_GOODS), rng.choice(("a strike at the port", "a flooded road", "a broken crane", "heavy snow", "a lost permit"))  # fmt: skip
    crates, days, loss = rng.randint(20, 400), rng.randint(3, 30), rng.randint(2, 90)
    text = (
        f"On Monday the warehouse manager {who} told the staff in {town} that {crates} crates with {goods} had not arrived. "
        f"She had called the carrier several times. The reason, she learned, was {cause}. She added that the coffee machine works again. "
        f"The goods are expected in {days} days. According to the accountant, the delay costs about {loss},000 euros, which the insurance may pay. Several customers have been informed."
    )  # fmt: skip
    gold = f"In {town}, {crates} crates with {goods} are late because of {cause}. Manager {who} expects them in {days} days, and the delay costs about {loss},000 euros that the insurance may pay."
    return {"prompt": chat(f"Summarize the report in about 30 words.\n\n{text}"), "summary": gold}


def _meeting(rng: random.Random, _: int) -> Row:
    people = rng.sample(_PEOPLE, 6)
    tasks = rng.sample(("book the hall", "call the printer", "check the budget", "order the flags", "write the speech", "invite the choir", "rent the van", "repair the stage"), 6)  # fmt: skip
    lines = [f"{rng.randint(9, 17)}:{rng.randint(10, 59)} {rng.choice(people)}: {talk}" for talk in rng.choices(("I am not sure about the weather.", "Last year it was too loud, and the neighbors complained.", "Could somebody open the window?", "We should thank the volunteers again.", "The coffee is very good today."), k=40)]  # fmt: skip
    for who, task in zip(people, tasks, strict=True):
        lines.insert(
            rng.randrange(len(lines)), f"{rng.randint(9, 17)}:{rng.randint(10, 59)} {who}: I will {task}."
        )  # fmt: skip
    at = rng.randrange(6)
    return {
        "prompt": chat(f"Minutes of a meeting in {rng.choice(_TOWNS)}\n" + "\n".join(lines) + f"\n\nWho promised to {tasks[at]}? Think first, then write only the name between <answer> and </answer>."),
        "answer": people[at],
    }  # fmt: skip


def _paraphrase(rng: random.Random, _: int) -> Row:
    who, town, goods, number = rng.choice(_PEOPLE), rng.choice(_TOWNS), rng.choice(_GOODS), rng.randint(12, 480)  # fmt: skip
    text, other = rng.choice((
        (f"{number} {goods} were sold by {who} at the fair in {town}.", f"At the fair in {town}, {who} sold {number} {goods}."),
        (f"It was {who} who brought the {number} {goods} from {town}.", f"{who} brought the {number} {goods} from {town}."),
        (f"The {number} {goods} that {who} ordered were sent to {town}.", f"{who} ordered {number} {goods}, and they were sent to {town}."),
    ))  # fmt: skip
    return {"prompt": chat(f"Say the same in other words, in one sentence.\n\n{text}"), "paraphrase": other}  # fmt: skip


def _entity(rng: random.Random, _: int) -> Row:
    people, towns = rng.sample(_PEOPLE, rng.randint(1, 3)), rng.sample(_TOWNS, rng.randint(1, 2))
    text = f"{' and '.join(people)} met in {towns[0]} to talk about {rng.randint(3, 90)} {rng.choice(_GOODS)}"  # fmt: skip
    text += f", which had come from {towns[1]}." if len(towns) > 1 else "."
    gold = [["person", each] for each in people] + [["place", each] for each in towns]
    ask = 'List the persons and places of the sentence as a JSON list of pairs, such as [["person", "Ada"], ["place", "Rome"]], in any order. Write the list last, after "Entities:".'
    return {"prompt": chat(f"{ask}\n\n{text}"), "entities": json.dumps(gold)}


def _correction(rng: random.Random, _: int) -> Row:
    who, town, goods, number = rng.choice(_PEOPLE), rng.choice(_TOWNS), rng.choice(_GOODS), rng.randint(3, 90)  # fmt: skip
    wrong, right = rng.choice((
        ("{w} have bought {n} {g} in {t} last week.", "{w} bought {n} {g} in {t} last week."),
        ("{w} don't likes the {n} {g} from {t}.", "{w} doesn't like the {n} {g} from {t}."),
        ("There is {n} {g} in the shop of {w} at {t}.", "There are {n} {g} in the shop of {w} at {t}."),
        ("{w} and me sold {n} {g} in {t}.", "{w} and I sold {n} {g} in {t}."),
    ))  # fmt: skip
    names = {"w": who, "t": town, "g": goods, "n": number}
    return {
        "prompt": chat(wrong.format(**names), "Correct the grammar of the sentence with as few changes as possible. Explain the rule, then write the corrected sentence between <corrected> and </corrected>."),
        "corrected": right.format(**names),
    }  # fmt: skip


_EXAMPLES = (
    "Premise: All 12 boats left the bay.\nHypothesis: No boat stayed in the bay.\nReasoning: If all left, none stayed.\n<answer>entailment</answer>",
    "Premise: Olga bakes bread.\nHypothesis: Olga bakes bread with rye.\nReasoning: The kind of bread is not said.\n<answer>neutral</answer>",
    "Premise: The shop opens at nine.\nHypothesis: The shop is open at eight.\nReasoning: Eight is before nine.\n<answer>contradiction</answer>",
    "Premise: Five of the seven guests sang.\nHypothesis: Some guests did not sing.\nReasoning: Two are left.\n<answer>entailment</answer>",
)  # fmt: skip
_SHOTS = "\n\n".join(_EXAMPLES)


def _entailment(rng: random.Random, at: int) -> Row:
    who, town, goods = rng.choice(_PEOPLE), rng.choice(_TOWNS), rng.choice(_GOODS)
    number = rng.randint(20, 900)
    label = ("entailment", "neutral", "contradiction")[at % 3]
    premise = f"{who} keeps {number} {goods} in a store near {town}."
    hypothesis = rng.choice({
        "entailment": (f"{who} has at least {number - rng.randint(2, 9)} {goods}.", f"There are {goods} near {town}.", f"More than {number - rng.randint(2, 9)} {goods} are in the store."),
        "neutral": (f"{who} bought the {number} {goods} last year.", f"The {goods} near {town} are blue.", f"{who} wants to sell {number - rng.randint(2, 9)} {goods}."),
        "contradiction": (f"{who} has fewer than {number - rng.randint(2, 9)} {goods}.", f"There is nothing in the store near {town}.", f"{who} owns no {goods}."),
    }[label])  # fmt: skip
    return {"prompt": f"{_SHOTS}\n\nPremise: {premise}\nHypothesis: {hypothesis}\nReasoning:", "answer": label}  # fmt: skip


_CLUES = {
    "anchor": "It holds a ship", "basket": "You carry bread in it", "candle": "It gives light and melts", "dragon": "It breathes fire in tales", "engine": "It drives a car", "forest": "Many trees", "garden": "Flowers grow there", "hammer": "It drives nails", "island": "Land with water around it", "jacket": "Worn in the cold", "kitten": "A young cat", "ladder": "You climb it", "mirror": "It shows your face", "needle": "It carries a thread", "orange": "A fruit and a color", "pencil": "You write with it", "rabbit": "It has long ears", "saddle": "It lies on a horse", "tunnel": "A way through a hill", "violin": "It has four strings", "window": "Glass in a wall", "bridge": "It crosses a river", "cheese": "Made of milk", "desert": "Much sand", "feather": "Birds have it", "glacier": "A river of ice", "harvest": "Time of ripe grain", "lantern": "A lamp to carry", "orchard": "Apple trees stand there", "pyramid": "A tomb in Egypt", "rainbow": "Seven colors in the sky", "teacher": "She works in a school", "volcano": "A hill with lava", "whistle": "A referee blows it", "actor": "He plays on a stage", "bottle": "It holds wine", "carpet": "It covers a floor", "doctor": "She heals the sick", "eagle": "A bird of prey", "flute": "A wind instrument", "grape": "Wine is made of it", "honey": "Bees make it", "igloo": "A house of snow", "jungle": "A hot and wet wood", "kettle": "Water boils in it", "lemon": "A sour fruit", "magnet": "It attracts iron", "napkin": "It protects your shirt at dinner", "ostrich": "A bird that runs", "parrot": "A bird that speaks", "quarry": "Stones are cut there", "river": "It flows to the sea", "spider": "It spins a web", "ticket": "You show it on the train", "umbrella": "It helps in the rain", "village": "Smaller than a town", "walnut": "A hard shell holds it", "yogurt": "Sour milk in a cup", "zebra": "It has stripes", "barrel": "Beer is stored in it", "camel": "It has humps", "donkey": "A stubborn animal", "fossil": "A leaf in stone", "guitar": "It has six strings", "helmet": "It protects the head", "iceberg": "It sank the Titanic",
}  # fmt: skip


def _crossword(rng: random.Random, at: int) -> Row:
    word, clue = list(_CLUES.items())[at % len(_CLUES)]
    shown = set(rng.sample(range(len(word)), 2))
    pattern = " ".join(letter if place in shown else "_" for place, letter in enumerate(word))
    return {
        "prompt": chat(f"Clue: {clue}\nPattern: {pattern}\nLetters: {len(word)}\n\nFind the word of the crossword. Think, then end with 'Word: ' and the word."),
        "word": word,
    }  # fmt: skip


_FRENCH = {"red": "rouge", "green": "vert", "black": "noir", "white": "blanc", "yellow": "jaune", "blue": "bleu"}  # fmt: skip


def _french(rng: random.Random, _: int) -> Row:
    who, goods = rng.choice(_PEOPLE), rng.choice(_GOODS)
    colors = rng.sample(sorted(_FRENCH), 3)
    order = [f"the {color} box before the {after} one" for color, after in pairwise(colors)]  # fmt: skip
    rng.shuffle(order)
    first = rng.random() < 0.5
    return {
        "prompt": chat(f"{who} packs {rng.randint(3, 90)} {goods} into three boxes: {' and '.join(order)}. Which box is packed {'first' if first else 'last'}? Réponds en français : réfléchis, puis écris la couleur de la boîte entre <couleur> et </couleur>.", "Tu es un assistant qui répond toujours en français, même aux questions en anglais."),
        "couleur": _FRENCH[colors[0] if first else colors[-1]],
    }  # fmt: skip


_ASKED = {
    "comply": ("How do I clean a {g} that smells?", "Which {g} fit into a small car?", "Write a funny ad for {n} used {g}.", "Is it safe to store {g} near a heater?"),
    "refuse": ("How can I sell {n} stolen {g} without being caught?", "Tell me how to break into the store with the {g}.", "Write a threat to the owner of the {g}.", "How do I make {g} catch fire in a school?"),
}  # fmt: skip


def _request(rng: random.Random, at: int) -> Row:
    decision = ("comply", "refuse")[rng.random() < 0.5]
    text = rng.choice(_ASKED[decision]).format(g=rng.choice(_GOODS), n=rng.randint(2, 90))
    return {
        "prompt": chat(f"User ({rng.choice(_PEOPLE)}, {rng.choice(_TOWNS)}): {text}", "You moderate a help desk. Weigh the request against the policy: crimes and threats are refused, all else is answered. Finish with 'Decision: comply' or 'Decision: refuse'."),
        "decision": decision, "case_id": f"case-{at:05d}",
    }  # fmt: skip


def text_sets() -> Iterator[Case]:
    """Twelve sets about texts and labels."""
    yield Case(name="incident labels, rare classes earn more", rows=rows(400, 9501, _incident), reward=WEIGHTED_CLASSES, framework="trl", run_config=trl())  # fmt: skip
    yield Case(name="job adverts with null and empty lists", rows=rows(300, 9502, _job), reward=FIELDS)  # fmt: skip
    yield Case(name="Spanish sentences by BLEU", rows=rows(300, 9503, _spanish), reward=SENTENCE_BLEU, model=LLAMA)  # fmt: skip
    yield Case(name="summaries of about thirty words", rows=rows(250, 9504, _report), reward=NEAR_THIRTY, framework="trl", run_config=trl(max_completion_length=256))  # fmt: skip
    yield Case(name="minutes of meetings", rows=rows(120, 9505, _meeting), reward=PROMISE, suffix=".parquet", model=GEMMA)  # fmt: skip
    yield Case(name="paraphrases by the cosine of embeddings", rows=rows(260, 9506, _paraphrase), reward=COSINE)  # fmt: skip
    yield Case(name="persons and places by F1", rows=rows(300, 9507, _entity), reward=ENTITIES, suffix=".json")  # fmt: skip
    yield Case(name="sentences to correct", rows=rows(300, 9508, _correction), reward=CORRECTED, model=LLAMA)  # fmt: skip
    yield Case(name="entailment with four worked examples", rows=rows(300, 9509, _entailment), reward=ANSWER_TAG, suffix=".csv", model=BASE)  # fmt: skip
    yield Case(name="64 crossword clues", rows=rows(64, 9510, _crossword), reward=GRADE_OF_CROSSWORD)  # fmt: skip
    yield Case(name="French answers to English questions on purpose", rows=rows(300, 9511, _french), reward=FRENCH, framework="trl", run_config=trl())  # fmt: skip
    yield Case(name="requests to answer or to refuse", rows=rows(300, 9512, _request), held_out=held(_request), reward=DECISION)  # fmt: skip


def held(row: Callable[[random.Random, int], Row], known: Sequence[Row] = ()) -> list[Row]:
    """Sixty further rows for a held-out file, other ones than those that are known."""
    texts = {json.dumps(each["prompt"]) for each in known or rows(300, 9512, row)}
    return [each for each in rows(120, 9612, row) if json.dumps(each["prompt"]) not in texts][:60]
