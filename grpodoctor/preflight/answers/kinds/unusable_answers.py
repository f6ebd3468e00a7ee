"""Answers with which nothing can be compared: notes about a proof, damaged cells, cut texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_NOTE = re.compile(
    r"(?:see|refer to|as (?:shown|given) in)\b[^\n]{0,60}\b(?:proof|solution|explanation|above|"
    r"below|derivation|figure|attached|comments?)\b[^\n]{0,20}|"
    r"q\.?\s?e\.?\s?d\.?|hence prove[dn]\.?|(?:the )?proof(?: is| was)?"
    r"(?: complete[d]?| omitted| above| below| trivial)?\.?|"
    r"answers? (?:may|will|can) (?:vary|differ)[^\n]{0,40}|"
    r"(?:answer|solution)? ?(?:is )?not[ _-]?(?:given|found|provided|available)\.?",
    re.IGNORECASE,
)
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
_CELL_DATE = re.compile(rf"(?:\d{{1,2}}-{_MONTH}|{_MONTH}-\d{{2}})", re.IGNORECASE)
"""What a spreadsheet shows for 4/6, 4-6 or 6/84."""
_CELL_ERROR = re.compile(r"#(?:NAME\?|REF!|VALUE!|DIV/0!|N/A|NUM!|NULL!)|\d\.\d{2,6}E\+\d{2}")
"""An error of a formula, or a long number in the spelling of a narrow column."""
_REPRESENTATION = re.compile(
    r"(?:np|numpy|torch|tf|jnp|datetime|decimal|fractions|pd|uuid)\.\w+(?:\.\w+)*\(.{0,200}\)|"
    r"(?:Decimal|Fraction|tensor|array|Timestamp|datetime|UUID|OrderedDict|frozenset|ObjectId|"
    r"Symbol|Integer|Rational|Float)\(.{0,200}\)|b'[^']*'|<class '[^']*'>|dict_\w+\(.*\)",
    re.DOTALL,
)
_OF_TIME = re.compile(
    rf"\b(?:dates?|days?|months?|years?|when|calendar|birthday|deadline|{_MONTH}[a-z]*)\b",
    re.IGNORECASE,
)
_MIN_PILE = 5
_MIN_PILE_SHARE = 0.3
"""Share of the different answers that have the greatest length. Texts that are not cut differ."""
_MIN_LETTERS = 8
_MAX_SAME_LAYOUT = 0.5
"""Share of them whose words may end at the same places: a form that was filled in."""
_MIN_OPEN_SHARE = 0.6
"""Share of them that end with a letter or a comma."""
_MAX_KNOWN_ENDS = 0.8
"""Share of them whose last word occurs elsewhere as a whole word. A cut leaves parts of words."""
_OPEN_END = re.compile(r"[^\W\d_]$|,$")
_SYNTAX = re.compile(
    r"[\\{}\[\]=_;<>`*|]|^\s*(?:select|with|insert|update|delete)\b", re.IGNORECASE
)
"""Signs of code, data and queries, which have a form."""


_FILLED_IN = re.compile(
    r"[\[<({*_-]{1,3}[^\[\]<>(){}\n]{2,60}[\])}>*_-]{1,3}|[A-Z]{2,}[ /_-][A-Z /_-]{2,40}[.!]?|"
    r"(?i:n/?a|null|nan|to ?do|tbd|missing|skipped)[.!]?|(?i:error|failed): [^\n]{1,60}",
)
"""A note in brackets, words in capitals, or a word for something that is missing. "None of these"
and "unknown" are answers, and so is an acronym."""
_MIN_FILLED, _MIN_FILLED_SHARE, _MIN_DISTINCT = 5, 0.02, 0.8
_MAX_ALIKE = 0.1
"""Share of the texts that may look like a note: answers in bold type, brackets or capitals do."""


def filled_in(answers: Sequence[str]) -> set[str]:
    """Notes that stand in place of many answers, while the other answers are texts of their own.

    A label of a closed set occurs often, too; then the others do so as well.
    """
    counts = Counter(answer.strip() for answer in answers)
    texts = [text for text in counts if len(text.split()) > 1]
    if len(texts) < _MIN_DISTINCT * len(counts) or len(counts) < _MIN_DISTINCT * len(answers):
        return set()
    notes = [text for text in counts if _FILLED_IN.fullmatch(text)]
    if len(notes) > _MAX_ALIKE * len(counts):
        return set()
    least = max(_MIN_FILLED, _MIN_FILLED_SHARE * len(answers))
    return {text for text in notes if counts[text] >= least}


def is_note(answer: str) -> bool:
    """Whether an answer only says where the answer is, or that there is none."""
    return _NOTE.fullmatch(answer.strip()) is not None


def is_spreadsheet_value(answer: str, prompt: str) -> bool:
    """Whether an answer is an error of a spreadsheet, or a date its prompt does not ask for."""
    text = answer.strip()
    if _CELL_ERROR.fullmatch(text):
        return True
    return _CELL_DATE.fullmatch(text) is not None and not _OF_TIME.search(prompt)


def is_representation(answer: str) -> bool:
    """Whether an answer is how Python shows a value, such as np.float64(3.5) or b'yes'."""
    return _REPRESENTATION.fullmatch(answer.strip()) is not None


def cut_answers(answers: Sequence[str]) -> list[int]:
    """The answers that were cut at a number of characters, if there is such a limit.

    Many different answers then have the greatest length, although their words end at different
    places. Only answers of several words count.

    Args:
        answers: all answers.

    Returns:
        Indices of the answers.
    """
    texts = [answer.strip() for answer in answers]
    worded = [at for at, text in enumerate(texts) if len(text.split()) > 1 and _is_prose(text)]
    if not worded:
        return []
    longest = max(len(texts[at]) for at in worded)
    # A cut behind a blank leaves one character less.
    pile = [at for at in worded if len(texts[at]) >= longest - 1]
    different = {texts[at] for at in pile}
    others = {texts[at] for at in worded}
    if longest < _MIN_LETTERS or len(different) < max(_MIN_PILE, _MIN_PILE_SHARE * len(others)):
        return []
    layouts = Counter(_word_ends(text) for text in different)
    open_ends = sum(bool(_OPEN_END.search(text)) for text in different)
    whole = {word for at in worded if at not in pile for word in texts[at].split()}
    whole |= {word for text in different for word in text.split()[:-1]}
    known_ends = sum(text.split()[-1] in whole for text in different)
    is_cut = (
        layouts.most_common(1)[0][1] <= _MAX_SAME_LAYOUT * len(different)
        and open_ends >= _MIN_OPEN_SHARE * len(different)
        and known_ends <= _MAX_KNOWN_ENDS * len(different)
    )
    return pile if is_cut else []


def _is_prose(text: str) -> bool:
    """Whether most signs of a text are letters, and none belongs to code or data."""
    letters = sum(letter.isalpha() for letter in text)
    return letters > len(text) / 2 and not _SYNTAX.search(text)


def _word_ends(text: str) -> tuple[int, ...]:
    """The places of a text's blanks."""
    return tuple(at for at, letter in enumerate(text) if letter == " ")
