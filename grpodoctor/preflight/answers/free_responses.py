"""Rewards without a known right answer: relations that any reward must keep.

Judges, games and rules have no reference answers. Their rewards are compared with each other: a
response that says nothing must earn less than some other one, a copy of the prompt must not be the
best response, and a verdict that the response writes itself must not be its reward.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import COPIED_PROMPT, EMPTY, JUDGED, UNRELATED
from grpodoctor.preflight.answers.kinds.undeserving_answers import SCORE_FOR_JUDGE
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.trainer.rewards.user_reward import UserReward

MAX_ROWS = 12
"""Rows that are scored with each response."""
_SENTENCES = ("unrelated sentence", "plain text")
"""Kinds of responses that say something, in a few words and in many."""
WORDS_OF_ROW = "text with the words of the row"
_LINES_OF_ROW = "lines with the words of the row"
_OF_THE_ROW = (WORDS_OF_ROW, COPIED_PROMPT, _LINES_OF_ROW)
"""Kinds of responses that differ from row to row."""
_SENTENCE = "First we look at what is given, and then we say in plain words what follows from it."
_PLAIN_TEXT = (
    "People explain this in several ways. Some parts are simple, some need more care, and all "
    "depend on what the reader already knows. A good text begins with an example, names causes, "
    "and shows step by step how they lead to a result. The end says what remains open, why that "
    "matters in daily life, and where readers can learn more about the whole subject."
)
_RUDE_TEXT = "Shut up, you stupid idiot. I hate you, and I will kill you. Damn this shit."
"""What a reward of polite or harmless responses must not pay."""
_WORDS = re.compile(r"[^\W\d_]{3,}")
_MAX_LINES = 30
_MAX_VALUES, _ROWS_OF_VALUE = 8, 4
"""Values of a column that is a category, and rows that are scored for each."""
_ROUNDING = 1e-5
"""Difference of two rewards that the order of a batch causes in float32."""
_MIN_PART = 0.1
"""Part of a reward whose loss is more than a small preference."""
_MOST = 0.9
"""Share of the rows that must agree: the reward's rule, and no accident."""


@dataclass(frozen=True, slots=True)
class FreeRewards:
    """Rewards of the same kinds of responses to each of a few rows, by kind."""

    rows: tuple[PromptRow, ...]
    texts: Mapping[str, tuple[str, ...]]
    rewards: Mapping[str, tuple[float, ...]]

    @property
    def constant(self) -> float | None:
        """The one reward above zero of all responses that are not empty; None if they differ."""
        values = {
            value for kind, each in self.rewards.items() if kind != EMPTY for value in each
        }  # fmt: skip
        return values.pop() if len(values) == 1 and max(values) > 0 else None

    def highest_share(self, kind: str) -> float:
        """Share of the rows in which a kind of response earns more than every other kind.

        It must also earn as much in these rows, since a sound reward of texts varies.
        """
        others = [
            max(each[at] for name, each in self.rewards.items() if name != kind)
            for at in range(len(self.rows))
        ]
        pairs = zip(self.rewards[kind], others, strict=True)
        won = [value for value, other in pairs if value > max(other, 0)]
        usual = median(won) if won else 0.0
        return sum(value == usual for value in won) / len(self.rows)

    def paid_silence_share(self) -> float:
        """Share of the rows in which silence is among the best responses, and sentences are not.

        A limit of the length pays a short sentence as well.
        """
        paid = 0
        for at, empty in enumerate(self.rewards[EMPTY]):
            others = [each[at] for kind, each in self.rewards.items() if kind != EMPTY]
            is_best = empty > 0 and empty >= max(others)
            is_alone = sum(other < empty for other in others) > len(others) / 2
            sentences = (self.rewards[kind][at] for kind in _SENTENCES)
            paid += is_best and is_alone and all(other < empty for other in sentences)
        return paid / len(self.rows)


def score_free_responses(reward: UserReward, rows: Sequence[PromptRow]) -> FreeRewards | None:
    """Score the responses; None without rows or if the function fails, which REW103 reports."""
    chosen = tuple(spread_rows(tuple(rows), MAX_ROWS))
    if not chosen:
        return None
    per_row = [dict(_responses(row)) for row in chosen]
    texts = {kind: tuple(each[kind] for each in per_row) for kind in per_row[0]}
    try:
        rewards = {kind: tuple(reward(chosen, each).total) for kind, each in texts.items()}
    except DataError:
        return None
    return FreeRewards(chosen, texts, rewards)


def punctuated_words(
    reward: UserReward, rows: Sequence[PromptRow]
) -> tuple[int, int, tuple[str, str]]:
    """Rows in which the words of the columns count only without a comma or full stop behind them.

    Returns:
        How many rows, of how many with such words, and two responses with different rewards.
    """
    words = {at: each for at, row in enumerate(rows) if (each := _single_words(row))}
    chosen = [rows[at] for at in words]
    bare, marked = (
        [f"{_PLAIN_TEXT} {between.join(each * 2)}{end}" for each in words.values()]
        for between, end in ((" ", ""), (", ", "."))
    )
    if not chosen:
        return 0, 0, ("", "")
    try:
        plain, behind = (
            reward(chosen, [f"{text}\n{_SENTENCE}" for text in texts]).total
            for texts in (bare, marked)
        )
    except DataError:  # REW103 reports it
        return 0, 0, ("", "")
    lost = [one - other > _MIN_PART * abs(one) for one, other in zip(plain, behind, strict=True)]
    return sum(lost), len(lost), (bare[0], marked[0])


def _single_words(row: PromptRow) -> list[str]:
    """The texts of a row's other columns that are one word, which the prompt contains."""
    texts = [
        text
        for name, value in row.columns.items()
        if name != row.prompt_column
        for text in (value if isinstance(value, list) else [value])
        if isinstance(text, str) and _WORDS.fullmatch(text)
    ]
    prompt = "\n".join(row.texts()).casefold()
    return [text for text in dict.fromkeys(texts) if text.casefold() in prompt][:_MAX_LINES]


def reversed_rewards(reward: UserReward, free: FreeRewards) -> tuple[int, int]:
    """How many rewards change if the rows of a batch come in the opposite order, and of how many.

    A function that reads a column of the first row grades all responses by it. Responses with
    words of their row tell.
    """
    changed = total = 0
    for kind in _OF_THE_ROW:
        try:
            again = reward(free.rows[::-1], free.texts[kind][::-1]).total[::-1]
        except DataError:
            return 0, 0
        pairs = zip(free.rewards[kind], again, strict=True)
        changed += sum(abs(one - other) > _ROUNDING for one, other in pairs)
        total += len(again)
    return changed, total


def changed_rewards(reward: UserReward, free: FreeRewards) -> tuple[int, int]:
    """How many rewards another order of the responses changes in a new process, and of how many.

    A cache whose key is the prompt alone gives the first response's reward to all others.
    """
    reward.close()
    changed = total = 0
    for kind in reversed(list(free.texts)):
        try:
            again = reward(free.rows, free.texts[kind]).total
        except DataError:
            return 0, 0
        pairs = zip(free.rewards[kind], again, strict=True)
        changed += sum(abs(one - other) > _ROUNDING for one, other in pairs)
        total += len(again)
    return changed, total


def unscored_value(reward: UserReward, rows: Sequence[PromptRow]) -> tuple[str, str, int]:
    """A column and its value whose rows earn the same whatever the response, unlike other rows.

    Returns:
        Column, value and number of its rows; empty if there is none.
    """
    for name in rows[0].columns if rows else ():
        groups: dict[str, list[PromptRow]] = {}
        for row in rows:
            value = row.columns.get(name)
            if isinstance(value, str) and name != row.prompt_column:
                groups.setdefault(value, []).append(row)
        if not 1 < len(groups) <= _MAX_VALUES or min(map(len, groups.values())) < _ROWS_OF_VALUE:
            continue
        varied = {value: _is_varied(reward, each) for value, each in groups.items()}
        silent = [value for value, varies in varied.items() if varies is False]
        if silent and any(varied.values()):
            return str(name), silent[0], len(groups[silent[0]])
    return "", "", 0


def _is_varied(reward: UserReward, rows: Sequence[PromptRow]) -> bool | None:
    """Whether responses to the same row earn different rewards; None if the function fails."""
    chosen = rows[:_ROWS_OF_VALUE]
    texts = [dict(_responses(row)) for row in chosen]
    try:
        scored = [reward(chosen, [each[kind] for each in texts]).total for kind in texts[0]]
    except DataError:
        return None
    return any(len(set(of_row)) > 1 for of_row in zip(*scored, strict=True))


def _responses(row: PromptRow) -> Iterator[tuple[str, str]]:
    words = _column_words(row.columns, row.prompt_column)
    yield EMPTY, ""
    yield from zip(_SENTENCES, (UNRELATED, _PLAIN_TEXT), strict=True)
    yield "rude text", _RUDE_TEXT
    yield "long text", "\n\n".join([_PLAIN_TEXT] * 6)
    yield WORDS_OF_ROW, f"{_PLAIN_TEXT} It is about {', '.join(words)}."
    yield "tags", f"<think>\n{_SENTENCE}\n</think>\n<answer>\n{UNRELATED}\n</answer>"
    yield "box", f"{_SENTENCE} \\boxed{{0}}"
    yield "code", f"```python\n{UNRELATED!r}\n```"
    yield "object", '{"answer": "nothing"}'
    yield COPIED_PROMPT, row.prompt
    yield JUDGED, SCORE_FOR_JUDGE
    # The last one is the first one in the second process, where a cache keeps its reward.
    yield _LINES_OF_ROW, _lines(row.columns, words)


def _column_words(columns: Mapping[str, Any], prompt_column: str) -> list[str]:
    """Words of the short texts in a row's other columns, which a rule may look for."""
    words: dict[str, None] = {}
    for name, value in columns.items():
        if name != prompt_column:
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str) and len(text) < len(_PLAIN_TEXT):
                    words |= dict.fromkeys(_WORDS.findall(text))
    return list(words)[:_MAX_LINES]


def _lines(columns: Mapping[str, Any], words: Sequence[str]) -> str:
    """As many lines as a column says, each a sentence with the words of the row."""
    counts = [
        value for value in columns.values()
        if isinstance(value, int) and not isinstance(value, bool) and 1 < value <= _MAX_LINES
    ]  # fmt: skip
    line = f"{_SENTENCE.rstrip('.')}, with {', '.join(words) or 'nothing else'}."
    return "\n".join([line] * (counts[0] if counts else 3))


def is_most(share: float) -> bool:
    """Whether a share of the rows shows a rule of the reward."""
    return share >= _MOST
