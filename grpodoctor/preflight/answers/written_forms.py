"""Forms in which the same answer can be written: with a unit, in quotes, with another separator."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from grpodoctor.preflight.answers.answer_variants import CASE_COUNTS
from grpodoctor.preflight.answers.stated_answers import marked_answer
from grpodoctor.preflight.texts.normal_form import words_of

_NUMBER = r"[-+\u2212]?\d[\d.,]*"
_CORE = rf"(?P<core>{_NUMBER}|[A-Za-z]|[^\W_](?:[^\n{{}}$*`\"<>]{{0,80}}[^\W_])?)"
_UNIT = "a unit"
_NO_UNIT = (
    r"(?:st|nd|rd|th|hundred|thousand|million|billion|trillion|crore|lakh|dozen|"
    r"[Bb]\.?[Cc]|[Aa]\.?[Dd]|[Bb]?[Cc][Ee]|[AaPp]\.?[Mm])"
)
"""Words behind a number without which it is another number, date or time."""
_AROUND: Mapping[str, str] = {
    "quotation marks": rf"[\"'\u201c\u2018]{_CORE}[\"'\u201d\u2019]",
    "asterisks": rf"\*\*?{_CORE}\*\*?",
    "backticks": rf"`{_CORE}`",
    "dollar signs": rf"\${_CORE}\$",
    "\\text": rf"\\(?:text|mathrm|textbf|mathbf)\{{{_CORE}\}}",
    "a box": rf"\\boxed\{{{_CORE}\}}",
    "tags": rf"<(?P<tag>\w+)>{_CORE}</(?P=tag)>",
    "parentheses": r"\((?P<core>[A-Za-z])\)",
    "a bracket": r"(?P<core>[A-Za-z])[).:]",
    "the text of the option": r"\(?(?P<core>[A-Z])[).:] \S.*",
    "a name and an equals sign": rf"[A-Za-z]\w{{0,12}} ?= ?(?P<core>{_NUMBER})",
    "a label": rf"(?:[Tt]he )?(?:[Ff]inal )?[Aa]nswer(?: is|:) ?{_CORE}",
    "a currency sign": rf"[$\u20ac\u00a3\u00a5\u20b9] ?(?P<core>{_NUMBER})",
    "a percent sign": rf"(?P<core>{_NUMBER}) ?\\?%",
    _UNIT: rf"(?P<core>{_NUMBER}) ?(?!{_NO_UNIT}\b)"
    r"(?:[^\W\d_]{1,12}|\u00b0 ?[CF]?)(?:[/^]\w{1,4})?",
}
"""What may stand around an answer without changing it."""
_PATTERNS = {name: re.compile(pattern) for name, pattern in _AROUND.items()}
_ENGLISH = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|-?\d+\.(?:\d{1,2}|\d{4,})")
_FRACTION = re.compile(r"(-?\d{1,9})\s*/\s*([1-9]\d{0,8})")
_ABOUT_FRACTIONS = re.compile(
    r"\d\s*/\s*\d|[½⅓⅔¼¾⅕⅛]|\\[dt]?frac\b|"
    r"\b(?:fractions?|ratios?|fracci[oó]n(?:es)?|frações|fração|br[uü]che?|bruchteil|proportion)\b|"
    r"分之|分数|分數",
    re.IGNORECASE,
)
"""Questions that write a fraction or ask for one."""
_CONTINENTAL = re.compile(r"-?\d{1,3}(?:\.\d{3})+,\d+|-?\d+,\d{2}")
_DOUBLED = re.compile(
    r"\\\\(?:[dt]?frac|sqrt|pi|text|left|right|cdot|times|boxed|infty|pm|mathrm|circ)(?![a-z])"
)
_SINGLE = re.compile(
    r"(?<!\\)\\(?:[dt]?frac|sqrt|pi|text|left|right|cdot|times|boxed|infty|pm|mathrm|circ)(?![a-z])"
)
_MIN_ROWS, _MIN_SHARE = 5, 0.03
_MOST = 0.9
_MAX_CORE_WORDS = 6
_MIN_COPIED = 3
_CODE = re.compile(r"(?=[^\W_]*[a-zA-Z]\d)(?=[^\W_]*\d)[^\W_]+")
_SYNTAX = re.compile(r"[=\[\](){};<>`]|^\s*(?:def|return|import)\b")
"""Signs of code and data, whose lines belong together."""


@dataclass(frozen=True, slots=True)
class MixedForm:
    """A form that some answers have and the others have not."""

    name: str
    """What these answers have."""
    rows: tuple[int, ...]
    bare: Mapping[int, str]
    """The text of these answers in the form of the others, by row."""
    total: int


def bare_answer(answer: str) -> tuple[str, str]:
    """The name of what stands around an answer, and the answer without it; empty if nothing."""
    text = answer.strip()
    for name, pattern in _PATTERNS.items():
        match = pattern.fullmatch(text)
        if match and match["core"] != text:
            return name, match["core"]
    return "", text


def mixed_forms(answers: Sequence[str], prompts: Sequence[str] = ()) -> list[MixedForm]:
    """Forms of some answers, if the other answers are of the same kind and lack it.

    Args:
        answers: the final answers.
        prompts: the prompt of each answer, if known: one that is about fractions asks for one.
    """
    pairs = [bare_answer(answer) for answer in answers]
    kinds = [_kind(core) for _, core in pairs]
    found = []
    for name in _PATTERNS:
        rows = [at for at, (form, _) in enumerate(pairs) if form == name]
        if len(rows) < max(_MIN_ROWS, _MIN_SHARE * len(answers)):
            continue
        if name == _UNIT and _are_codes(answers, len(rows)):
            continue
        own = {kinds[at] for at in rows}
        plain = [at for at, (form, _) in enumerate(pairs) if not form and kinds[at] in own]
        if len(plain) >= max(_MIN_ROWS, _MIN_SHARE * len(answers)):
            bare = {at: pairs[at][1] for at in rows}
            found.append(MixedForm(name, tuple(rows), bare, len(rows) + len(plain)))
    if fractions := _fractions(answers, prompts):
        found.append(fractions)
    return found


def _are_codes(answers: Sequence[str], with_unit: int) -> bool:
    """Whether letters stand among the digits of as many answers, as in hexadecimal numbers.

    The letters behind the digits of the others are then digits, too.
    """
    mixed = sum(bool(_CODE.fullmatch(answer.strip())) for answer in answers)
    return mixed >= max(_MIN_ROWS, with_unit)


def _fractions(answers: Sequence[str], prompts: Sequence[str]) -> MixedForm | None:
    """Fractions among decimal numbers, to questions that neither write nor ask for fractions."""
    texts = [answer.strip() for answer in answers]
    decimals = [at for at, text in enumerate(texts) if re.fullmatch(r"-?\d{1,9}\.\d{1,9}", text)]
    asked = {at for at, prompt in enumerate(prompts) if _ABOUT_FRACTIONS.search(prompt)}
    matches = {
        at: match
        for at, text in enumerate(texts)
        if at not in asked and (match := _FRACTION.fullmatch(text))
    }
    least = max(_MIN_ROWS, _MIN_SHARE * len(answers))
    if min(len(decimals), len(matches)) < least:
        return None
    values = {at: f"{int(match[1]) / int(match[2]):.4g}" for at, match in matches.items()}
    total = len(decimals) + len(matches)
    return MixedForm("a fraction in place of a decimal number", tuple(matches), values, total)


def _kind(core: str) -> str:
    if re.fullmatch(_NUMBER, core):
        return "number"
    return "letter" if len(core) == 1 else "word" if " " not in core else "text"


def mixed_separators(answers: Sequence[str]) -> list[int]:
    """Numbers like 1.234,50 if others of the column are like 1,234.50; else empty.

    The rarer of both.
    """
    texts = [answer.strip() for answer in answers]
    english = [at for at, text in enumerate(texts) if _ENGLISH.fullmatch(text)]
    other = [at for at, text in enumerate(texts) if _CONTINENTAL.fullmatch(text)]
    lists = [text for text in texts if "," in text and not (
        _ENGLISH.fullmatch(text) or _CONTINENTAL.fullmatch(text))]  # fmt: skip
    if lists:  # the comma separates several numbers
        return []
    fewer = min(english, other, key=len)
    return fewer if len(fewer) >= max(_MIN_ROWS, _MIN_SHARE * len(texts)) else []


def doubled_backslashes(answers: Sequence[str]) -> list[int]:
    r"""Answers with \\frac if others have \frac; else empty."""
    doubled = [at for at, answer in enumerate(answers) if _DOUBLED.search(answer)]
    single = sum(bool(_SINGLE.search(answer)) for answer in answers)
    return doubled if len(doubled) >= _MIN_ROWS and single >= _MIN_ROWS else []


def prompt_spelling(prompt: str, answer: str) -> str:
    """How the prompt spells an answer that it contains in other letters; empty if it does not.

    Other letters differ in case or accents.
    """
    text = " ".join(answer.split())
    if CASE_COUNTS.search(prompt):
        return ""
    if not any(letter.isalpha() for letter in text) or text in prompt or len(text) < _MIN_COPIED:
        return ""
    folded, places = _folded(prompt)
    wanted, _ = _folded(text)
    start = folded.find(wanted)
    if start < 0 or not wanted:
        return ""
    end = start + len(wanted)
    is_word = not (folded[start - 1 : start].isalnum() or folded[end : end + 1].isalnum())
    return prompt[places[start] : places[end - 1] + 1] if is_word else ""


def _folded(text: str) -> tuple[str, list[int]]:
    """A text without case and accents, and the place of each of its letters in the text."""
    letters: list[str] = []
    places: list[int] = []
    for at, letter in enumerate(text):
        for part in unicodedata.normalize("NFKD", letter):
            if not unicodedata.combining(part):
                folded = part.casefold()
                letters.append(folded)
                places += [at] * len(folded)
    return "".join(letters), places


def lost_zeros(prompts: Sequence[str], answers: Sequence[str]) -> list[int]:
    """Answers that their prompt contains only with zeros in front; else empty."""
    found = []
    for at, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        digits = answer.strip()
        if not re.fullmatch(r"[1-9]\d{0,14}", digits):
            continue
        padded = re.search(rf"(?<![\d.,])0+{digits}(?![\d.,]?\d)", prompt)
        if padded and not re.search(rf"(?<![\d.,]){digits}(?![\d.,]?\d)", prompt):
            found.append(at)
    return found if len(found) >= max(_MIN_ROWS, _MIN_SHARE * len(answers)) else []


def common_line(prompts: Sequence[str], answers: Sequence[str]) -> tuple[str, dict[int, str]]:
    """A first or last line that nearly all answers have besides a short answer.

    Numbers in the line may differ. A line that the prompts contain is a part of the answer.

    Returns:
        The line of the first answer, and the answers without it by row; both empty without one.
    """
    lines = {at: answer.strip().split("\n") for at, answer in enumerate(answers)}
    several = {at: each for at, each in lines.items() if len(each) > 1}
    if len(several) < max(_MIN_ROWS, _MOST * len(answers)):
        return "", {}
    asked = set(words_of("\n".join(prompts)))
    for place in (-1, 0):
        forms = Counter(_skeleton(each[place]) for each in several.values())
        form, count = forms.most_common(1)[0]
        rest = {
            at: "\n".join(each[:-1] if place else each[1:]).strip()
            for at, each in several.items()
            if _skeleton(each[place]) == form
        }
        is_extra = not _SYNTAX.search(form) and any(
            word.isalpha() and word not in asked for word in words_of(form)
        )
        short = all("\n" not in text and len(text.split()) <= _MAX_CORE_WORDS and text
                    for text in rest.values())  # fmt: skip
        marked = any(marked_answer(answer) for answer in answers[:_MIN_ROWS])
        if count >= _MOST * len(answers) and is_extra and short and not marked:
            return next(iter(several.values()))[place], rest
    return "", {}


def _skeleton(line: str) -> str:
    return re.sub(r"\d+", "0", line.strip())


_ASKS = r"\b(?:answer|reply|respond|give|write|express|round|return|state|use)[^.\n]{0,60}?\b"
_DECIMALS = re.compile(
    r"\b(one|two|three|four|[1-4]) (?:decimals?|decimal places|digits after the (?:decimal )?point)"
    r"\b|\bnearest (?:cent|hundredth)\b",
    re.IGNORECASE,
)
_NUMBER_WORDS = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand|infinite"
)
_ANY_NUMBER = re.compile(rf"[\d\u221e\u03c0]|\\|\b(?:no|none|{_NUMBER_WORDS})\b", re.IGNORECASE)
Holds = Callable[[str], bool]
_FOLDED = re.IGNORECASE
_WANTED: Mapping[str, tuple[re.Pattern[str], Holds]] = {
    "a whole number": (
        re.compile(_ASKS + r"(?:an integer|a whole number|(?:as|only) (?:an? )?integer)", _FOLDED),
        lambda text: not re.fullmatch(r"[-+]?\d+\.\d*[1-9]\d*", text),
    ),
    "a number": (
        re.compile(
            _ASKS + r"(?:only |just )?(?:the|a|one) (?:final |single )?number\b|"
            r"\b(?:number|value) only\b|\bwithout (?:the |its |any )?units?\b",
            _FOLDED,
        ),
        lambda text: bool(_ANY_NUMBER.search(text)),
    ),
    "one word": (
        re.compile(_ASKS + r"(?:one|a single) word\b", _FOLDED),
        lambda text: len(text.split()) == 1,
    ),
    "a letter": (
        re.compile(_ASKS + r"(?:(?:the|one|a) (?:single )?letter(?: of| alone| only|\.|\s*$))",
                   _FOLDED | re.MULTILINE),
        lambda text: bool(re.fullmatch(r"\W*[A-Za-z]\W*(?:[).:]\s.*)?", text)),
    ),
    "yes or no": (
        re.compile(_ASKS + r"['\"]?yes['\"]? or ['\"]?no\b", _FOLDED),
        lambda text: text.casefold().strip(".") in {"yes", "no"},
    ),
    "a fraction": (
        re.compile(_ASKS + r"(?:as an? (?:\w+ )?(?:fraction|ratio)\b|as a/b)", _FOLDED),
        lambda text: not re.fullmatch(r"[-+]?\d*\.\d+", text),
    ),
    "capital letters": (
        re.compile(_ASKS + r"(?:upper ?case|capital letters)", _FOLDED),
        lambda text: text.upper() == text,
    ),
    "lower case": (
        re.compile(_ASKS + r"(?:lower ?case|small letters)", _FOLDED),
        lambda text: text.lower() == text,
    ),
    "a Roman numeral": (
        re.compile(_ASKS + r"(?:Roman numerals?)", _FOLDED),
        lambda text: bool(re.fullmatch(r"[IVXLCDM]+", text.upper())),
    ),
    "a binary number": (
        re.compile(_ASKS + r"(?:in binary|as a binary number|in base (?:2|two))", _FOLDED),
        lambda text: bool(re.fullmatch(r"(?:0b)?[01 ]+(?:_2)?", text)),
    ),
    "scientific notation": (
        re.compile(_ASKS + r"scientific notation", _FOLDED),
        lambda text: bool(re.search(r"[eE][-+]?\d|10\s*\^|10\^?\{|\u00d7\s*10|\\times", text)),
    ),
}  # fmt: skip
"""Forms that prompts ask for, and whether an answer has the form."""
_MIN_ASKING = 0.9
_MIN_UNFIT = 0.2


def unfit_forms(prompts: Sequence[str], answers: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Forms that nearly all prompts ask for, and the answers that do not have them."""
    found = []
    for name, (asks, holds) in _WANTED.items():
        asking = [at for at, prompt in enumerate(prompts) if asks.search(prompt[-2000:])]
        unfit = [at for at in asking if not holds(answers[at].strip())]
        if len(asking) >= _MIN_ASKING * len(prompts) and len(unfit) >= _MIN_UNFIT * len(asking):
            found.append((name, unfit))
    if whole := _without_decimals(prompts, answers):
        found.append(("decimals", whole))
    return found


def _without_decimals(prompts: Sequence[str], answers: Sequence[str]) -> list[int]:
    """Whole numbers as answers, if prompts ask for decimals and half of the answers have none.

    By chance one value in ten, or in a hundred, is whole.
    """
    asking = [at for at, prompt in enumerate(prompts) if _DECIMALS.search(prompt[-2000:])]
    whole = [at for at in asking if re.fullmatch(r"[-+]?\d[\d,]*", answers[at].strip())]
    enough = len(asking) >= _MIN_ASKING * len(prompts) and len(whole) > len(asking) / 2
    return whole if enough else []
