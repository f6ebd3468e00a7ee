"""The two names of a verdict: yes and no, true and false, 1 and 0."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpodoctor.preflight.answers.stated_answers import final_answer

_PAIRS = (
    ("yes", "no"), ("true", "false"), ("1", "0"), ("correct", "incorrect"), ("right", "wrong"),
    ("valid", "invalid"), ("positive", "negative"), ("pass", "fail"), ("supported", "refuted"),
    ("oui", "non"), ("ja", "nein"), ("ja", "nej"), ("ja", "nee"), ("s\u00ed", "no"), ("si", "no"),
    ("sim", "n\u00e3o"), ("tak", "nie"), ("ano", "ne"), ("evet", "hay\u0131r"), ("da", "nu"),
    ("\u0434\u0430", "\u043d\u0435\u0442"), ("\u662f", "\u5426"), ("\u5bf9", "\u9519"),
    ("\u306f\u3044", "\u3044\u3044\u3048"), ("\u0646\u0639\u0645", "\u0644\u0627"),
    ("vrai", "faux"), ("wahr", "falsch"), ("verdadero", "falso"), ("vero", "falso"),
)  # fmt: skip
"""Names that say the same of a claim: the first of each pair agrees."""


def requested_names(prompts: Sequence[str], answers: Sequence[str]) -> dict[str, str]:
    """The names that prompts ask for, by the name that the answers have in their place.

    Empty unless all answers are a pair of names and most prompts offer another pair, next to each
    other, and not this one.

    Args:
        prompts: the text of each prompt.
        answers: the answer of each.
    """
    given = {final_answer(answer).strip().casefold() for answer in answers}
    own = next((pair for pair in _PAIRS if given == set(pair)), None)
    if own is None or _share_offering(prompts, own) > 0.5:
        return {}
    shares = {pair: _share_offering(prompts, pair) for pair in _PAIRS if pair != own}
    asked, share = max(shares.items(), key=lambda entry: entry[1])
    return dict(zip(own, asked, strict=True)) if share > 0.5 else {}


def _share_offering(prompts: Sequence[str], pair: tuple[str, str]) -> float:
    """Share of prompts that offer both names close to each other, in either order."""
    first, second = (rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\d)" for name in pair)
    between = r"\W[^\n]{0,30}?"
    offer = re.compile(f"{first}{between}{second}|{second}{between}{first}", re.IGNORECASE)
    return sum(bool(offer.search(prompt)) for prompt in prompts) / max(len(prompts), 1)
