"""Rows of the tenth examination: leases, doses, music, chess, genes, ciphers, mail and others."""

from __future__ import annotations

import random

from tests.preflight.planted.tables import Row

PEOPLE = [
    "Abara", "Brandt", "Castellanos", "Dragomir", "Eklund", "Farouk", "Giraud", "Hoxha", "Iyer",
    "Jankowski", "Kimura", "Lindqvist", "Mbeki", "Nakashima", "Oyelaran", "Petrov", "Quispe",
    "Rasmussen", "Santoro", "Takahashi", "Ulrich", "Vasquez", "Wanjiru", "Xu", "Yilmaz", "Zeman",
]  # fmt: skip
_STREETS = ["Mill Lane", "Harbour Street", "Chapel Row", "Quarry Road", "Elm Court", "Dock Walk"]


def leases(count: int, seed: int) -> list[tuple[str, str]]:
    """A lease of three sentences, and its landlord."""
    rng, pairs = random.Random(seed), []
    for number in range(count):
        tenant, landlord, witness = rng.sample(PEOPLE, 3)
        text = (
            f"Lease {number}: {tenant} rents the flat at {rng.randint(2, 99)} {rng.choice(_STREETS)} "
            f"for {rng.randint(400, 1900)} a month. The contract is signed by {landlord} as the "
            f"owner. {witness} witnessed it. Who is the landlord?"
        )
        pairs.append((text, landlord))
    return pairs


def doses(count: int, seed: int) -> list[tuple[str, int]]:
    """A dose by weight, in milligrams."""
    rng, pairs = random.Random(seed), []
    drugs = ["ibuprofen", "amoxicillin", "paracetamol", "cefalexin"]
    for number in range(count):
        weight, per, times = rng.randint(6, 80), rng.randint(2, 40), rng.randint(1, 4)
        text = (
            f"Patient {number} weighs {weight} kg and receives {per} mg of {rng.choice(drugs)} per "
            f"kg, {times} times a day. How many milligrams is that per day?"
        )
        pairs.append((text, weight * per * times))
    return pairs


_NOTES = ["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"]


def notes(count: int, seed: int) -> list[tuple[str, str]]:
    """A note, moved by some semitones."""
    rng, pairs = random.Random(seed), []
    for number in range(count):
        at, up = rng.randrange(12), rng.randint(1, 11)
        text = (
            f"Exercise {number}. Which note is {up} semitones above {_NOTES[at]}? Write sharps, no "
            "flats."
        )
        pairs.append((text, _NOTES[(at + up) % 12]))
    return pairs


def strands(count: int, seed: int) -> list[tuple[str, str]]:
    """A strand of DNA and its reverse complement."""
    rng, pairs = random.Random(seed), []
    for number in range(count):
        strand = "".join(rng.choice("ACGT") for _ in range(rng.randint(8, 16)))
        other = strand[::-1].translate(str.maketrans("ACGT", "TGCA"))
        pairs.append((f"Sample {number}: give the reverse complement of {strand}.", other))
    return pairs


_WORDS = ["copper", "meadow", "signal", "harvest", "lantern", "winter", "pocket", "thunder",
          "velvet", "anchor", "bridge", "castle", "dinner", "engine", "forest"]  # fmt: skip


def ciphers(count: int, seed: int) -> list[tuple[str, str]]:
    """A text of three words under a Caesar cipher, and the text."""
    rng, pairs = random.Random(seed), []
    for number in range(count):
        shift, plain = rng.randint(1, 25), " ".join(rng.sample(_WORDS, 3))
        secret = "".join(c if c == " " else chr((ord(c) - 97 + shift) % 26 + 97) for c in plain)
        pairs.append(
            (f"Message {number}, key {shift}: {secret}. Each letter was moved forward in the "
             "alphabet by the key. What does it say?", plain)
        )  # fmt: skip
    return pairs


_MAIL = {
    "spam": ["claim your prize", "wire the fee today", "cheap pills inside", "you won a cruise"],
    "ham": ["minutes of the meeting", "see you at lunch", "the invoice you asked for",
            "photos of the hike"],
}  # fmt: skip


def mail(count: int, seed: int) -> list[tuple[str, str]]:
    """A short mail, and whether it is spam; both are equally frequent."""
    rng, pairs = random.Random(seed), []
    for number in range(count):
        label = rng.choice(("spam", "ham"))
        first, second = rng.sample(_MAIL[label], 2)
        text = (
            f"Mail {number} from {rng.choice(PEOPLE)}: Hello, {first}. Also, {second}. "
            f"Regards, {rng.choice(PEOPLE)}."
        )
        pairs.append((text, label))
    return pairs


_SPECIES = ["heron", "marten", "pike", "newt", "dormouse", "kestrel", "crayfish", "hornet"]
_HABITATS = ["reed beds", "old quarries", "alder woods", "salt marshes", "hay meadows"]


def passages(count: int, seed: int) -> list[tuple[str, str, str]]:
    """A passage about a survey, a question about it, and the name in it."""
    rng, triples = random.Random(seed), []
    for _ in range(count):
        species, place = rng.choice(_SPECIES), rng.choice(_HABITATS)
        person, year = f"{rng.choice(PEOPLE)}-{rng.choice(PEOPLE)}", rng.randint(1950, 2020)
        passage = (
            f"In {year} the survey of the {place} was led by {person}. The team counted "
            f"{rng.randint(20, 900)} animals, most of them seen at dawn. The {species} was rarer "
            "than in the previous decade, which was put down to drainage."
        )
        triples.append((passage, f"Who led the survey of {year} in the {place}?", person))
    return triples


def squares(count: int, seed: int) -> list[tuple[str, str]]:
    """Where a rook stands after two moves on a chess board."""
    rng, pairs = random.Random(seed), []
    for number in range(count):
        file, rank = rng.randrange(8), rng.randrange(8)
        to_file, to_rank = rng.randrange(8), rng.randrange(8)
        name, right = "abcdefgh"[file], to_file - file
        across = f"{abs(right)} squares towards the {'h' if right > 0 else 'a'}-file"
        up = to_rank - rank
        along = f"{abs(up)} squares towards rank {8 if up > 0 else 1}"
        pairs.append((f"Position {number}: a rook on {name}{rank + 1} moves {across}, then {along}. "
                      "On which square is it now?",
                      f"{'abcdefgh'[to_file]}{to_rank + 1}"))  # fmt: skip
    return pairs


_BONES = ["femur", "tibia", "ulna", "radius", "scapula", "sternum", "patella", "clavicle"]


def bones(count: int, seed: int) -> list[tuple[str, list[str], int]]:
    """A question, four options, and the place of the right one."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        options = rng.sample(_BONES, 4)
        rows.append(
            (f"X-ray {number} from ward {rng.randint(1, 40)}: which bone is broken?", options,
             rng.randrange(4))
        )  # fmt: skip
    return rows


def exchange(count: int, seed: int) -> list[tuple[str, float]]:
    """An amount in another currency, with two decimals."""
    rng, pairs = random.Random(seed), []
    for number in range(count):
        francs, rate = rng.randint(11, 990), rng.randint(101, 1290)
        text = (
            f"Booking {number}: {francs} francs are changed at {rate / 100:.2f} kroner per franc. "
            "How many kroner is that?"
        )
        pairs.append((text, francs * rate / 100))
    return pairs


def counts(count: int, seed: int, share: float) -> list[tuple[str, int]]:
    """How often a letter occurs in a word; a share of the answers is zero."""
    rng, pairs = random.Random(seed), []
    for number in range(count):
        word = "".join(rng.choice("bcdfglmnprst") + rng.choice("aeiou") for _ in range(5))
        letter = "x" if rng.random() < share else rng.choice(word)
        pairs.append(
            (
                f"Line {number}: how often does the letter {letter} occur in {word}?",
                word.count(letter),
            )
        )
    return pairs


def orders(count: int, seed: int) -> list[Row]:
    """An order by phone, a tool's schema, and the call that places it; a number is text."""
    rng, rows = random.Random(seed), []
    dishes = ["ramen", "paella", "pierogi", "laksa", "moussaka"]
    for number in range(count):
        dish, amount, table = rng.choice(dishes), rng.randint(1, 9), rng.randint(1, 60)
        rows.append({"text": f"Order {number}: table {table} wants {amount} times {dish}.",
                     "dish": dish, "amount": amount, "table": table})  # fmt: skip
    return rows
