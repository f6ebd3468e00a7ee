"""The language of a text, by its script and, in Latin script, by its most frequent words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache

_SCRIPTS = {
    "CYRILLIC": "Russian or another Cyrillic language", "CJK": "Chinese", "HIRAGANA": "Japanese",
    "KATAKANA": "Japanese", "HANGUL": "Korean", "ARABIC": "Arabic", "HEBREW": "Hebrew",
    "DEVANAGARI": "Hindi", "BENGALI": "Bengali", "TAMIL": "Tamil", "TELUGU": "Telugu",
    "THAI": "Thai", "GREEK": "Greek",
}  # fmt: skip
"""Languages by the first word of the names of their letters."""
_FREQUENT_WORDS = {
    "English": "the of and to is that for with are how many what which each you it from this by be "
    "find if does has have at as",
    "German": "der die das und ist nicht ein eine mit wie viele auf dem den von zu sind für im "
    "wenn welche jede hat wird je",
    "French": "le la les des et est une dans que pour combien avec sur quel quelle qui du ont sont "
    "chaque si il elle tout de un en au par plus ce se",
    "Spanish": "el los las y es una que para con por cuántos cuántas cuál del son cada tiene si "
    "hay qué como en su de un se al",
    "Portuguese": "o os as e uma que para com por quantos quantas qual do da dos das são cada tem "
    "se em não seu no na de um",
    "Italian": "il lo gli e una che per con di quanti quante quale del della sono ogni ha se nel "
    "alla dei non un",
    "Dutch": "de het een en van is dat met hoeveel op zijn voor er elke als welke heeft worden aan "
    "te in niet",
    "Polish": "i w na z jest nie że do ile się który każdy oraz po od dla ma co jak to",
    "Turkish": "ve bir bu kaç için ile her olan da de ne kadar var daha gibi",
    "Vietnamese": "là và của có bao nhiêu mỗi cho một các trong với được không",
    "Indonesian": "yang dan di dari berapa adalah untuk dengan setiap ini itu pada jika ada ke "
    "tidak",
}
_WORDS = {language: frozenset(words.split()) for language, words in _FREQUENT_WORDS.items()}
_CODE = re.compile(r"```.*?```|\\[a-zA-Z]+|\$[^$]*\$|<[^<>]{1,40}>", re.DOTALL)
_MIN_LETTERS = 8
_MIN_KANA = 0.1
"""Share of kana in a Japanese text, which writes its endings in them; fewer are a name."""
_MIN_HITS = 3
"""Frequent words that a Latin text must have; shorter texts have no known language."""
_MOST_SHARED = 3
"""How many times more words of its own than of another language a text has."""


def language_of(text: str) -> str:
    """The language of a text; empty if it is too short to tell. Code and formulas do not count."""
    text = _CODE.sub(" ", text)
    scripts = Counter(_script(letter) for letter in text if letter.isalpha())
    if scripts.total() < _MIN_LETTERS and not any(name in _SCRIPTS for name in scripts):
        return ""
    # One sign of a dense script says as much as several Latin letters.
    foreign = {name: count for name, count in scripts.items() if name in _SCRIPTS}
    if sum(foreign.values()) * 2 >= scripts.total():
        kana = foreign.pop("HIRAGANA", 0) + foreign.pop("KATAKANA", 0)
        if kana > _MIN_KANA * (kana + foreign.get("CJK", 0)) or not foreign:
            return "Japanese"
        return _SCRIPTS[max(foreign, key=lambda name: foreign[name])]
    return _latin_language(text)


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0].partition("-")[0]


def is_rather(text: str, language: str, other: str) -> bool:
    """Whether a text is in one language rather than in another one.

    Related languages share frequent words, and a few of the others occur by accident ("met", "bu").
    So at least three different words must be frequent in the one language only, and more than three
    times as many as in the other only. Languages of different scripts are never confused.
    """
    if not {language, other} <= _WORDS.keys():
        return True
    # One letter may be a variable.
    words = frozenset(word for word in _words(_CODE.sub(" ", text)) if len(word) > 1)
    own, foreign = (
        len(words & (_WORDS[one] - _WORDS[two]))
        for one, two in ((language, other), (other, language))
    )
    return own >= _MIN_HITS and own > _MOST_SHARED * foreign


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.casefold())


def _latin_language(text: str) -> str:
    words = _words(text)
    hits = Counter({
        language: sum(word in frequent for word in words) for language, frequent in _WORDS.items()
    })  # fmt: skip
    (first, most), (_, second) = hits.most_common(2)
    return first if most >= _MIN_HITS and most > second else ""


_ASKED = re.compile(
    r"\b(?:in|into|to) (" + "|".join(_FREQUENT_WORDS) + r"|Russian|Chinese|Japanese|Korean)\b"
)


def asked_language(text: str) -> str:
    """The one language that a text asks to write in, such as "into German"; else empty."""
    names = set(_ASKED.findall(text))
    return names.pop() if len(names) == 1 else ""
