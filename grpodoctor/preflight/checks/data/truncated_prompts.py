"""DAT115."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from grpodoctor.preflight.answers.multiple_choice import options_of
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import part_of

_MAX_ROWS = 5000
_SHOWN = 4
_MIN_LETTERS = 60
"""Shorter prompts often have one length by their construction."""
_CUT_END = re.compile(r"[^\W_]\s*$|[,;(\-\u2013]\s*$")
"""A letter, a digit or an opening sign at the end: neither a full stop nor a bracket."""
_DANGLING = re.compile(
    r"\b(?:the|a|an|of|to|and|with|for|in|on|at|by|from|if|that|which|each|is|are|has|le|la|les|des|"
    r"der|die|das|und|el|los|de|du|que)\s*$"
)
_PREPOSITION = re.compile(r"\b(?:of|to|with|for|in|on|at|by|from|as)\s*$")
_ASKS = re.compile(r"\b(?:who|whom|whose|what|which|where|when|how)\b", re.IGNORECASE)
"""Words of a question, which may end with its preposition: "which town is it in"."""
_WHOLE_WORD = re.compile(r"\s(?![A-Z\u00c0-\u00de])[^\W\d_]+$")
"""Letters at the end that belong to no number, code or name. Names are rare, so that one of them
may begin like another one."""
_MIN_DANGLING = 3
_MAX_WORD_LETTERS = 40
"""Longer ones are data, such as base64."""
_CONTINUES = re.compile(
    r"(?:^|[.:!?\n]\s*)(?:please )?(?:complete|continue|finish|fill in)\b", re.IGNORECASE
)
"""Prompts whose open end is the task."""
_DIGITS = re.compile(r"\d+")
_MIN_CUT = 20
"""Letters of a prompt that is cut within a word, which a shorter one is by its construction."""
_LAST_WORD = re.compile(r"(?<![^\W\d_])[^\W\d_]+$")
_WORDS = re.compile(r"(?<![^\W\d_])[^\W\d_]+(?=[^\w])")
_END, _REACH = 12, 80
"""Letters at the end of a cut prompt, and how far from the end another prompt may have them."""
_MIN_ROWS = 20
_MIN_SENTENCE = 12
"""Letters on a line that make it a sentence."""
_CUT_START = re.compile(r"\s*(?:[a-z]|[,.;)\]])")
_SENTENCE = re.compile(r"[.!?:\u3002\uff01\uff1f](?:\s|$)")
_MARKS = re.compile(
    r"(?<![:=({\[\"'`,])(?<![:=({\[,] )(?:\[truncated\]|\[\.\.\.\]|<truncated>|\(truncated\))",
    re.IGNORECASE,
)
"""Marks of a cut, and not a place for a list in a format: `{"names": [...]}`."""


class TruncatedPrompts(Check):
    """Prompts were cut off before they reached the file.

    What it sees:
        Many prompts have the greatest length of the file, in characters, words or tokens, and end
        within a sentence, or begin within one, while the shorter prompts do not. If all prompts
        have this length, their sentences must be of different lengths: the prompts of a generator
        have the same number of words by construction. Also nearly all prompts of one length, if
        the letters at the end of most of them stand within others, with something behind them; and
        prompts of one length, not the greatest one, that end within a word.
        Marks such as [truncated] are also reported, and a few prompts of any length that end within
        a sentence, some of them within a word or after a word such as "the".

    Why it matters:
        The question is missing. No response can be correct, or only a guess is, and the reward is
        noise.

    What to do:
        Make the file again from the source, and leave out prompts that are too long.

    When it is wrong:
        Texts to continue, such as code or stories, end within a sentence on purpose. They are
        reported only if many of them have exactly the greatest length.

    References:
        None.
    """

    code: ClassVar[str] = "DAT115"
    name: ClassVar[str] = "truncated-prompts"
    summary: ClassVar[str] = "Prompts were cut off before they reached the file."
    min_pile: ClassVar[int] = 5
    """Prompts of the greatest length; in sets that were not cut there are one or two."""
    min_pile_share: ClassVar[float] = 0.01
    min_cut_share: ClassVar[float] = 0.6
    """Share of these prompts that end within a sentence; some cuts meet a full stop."""
    min_same_length: ClassVar[float] = 0.9
    """Share of the prompts that a limit below the length of all prompts cuts to one length."""
    min_word_share: ClassVar[float] = 0.3
    """Share of the prompts of one length that end within a word: most letters of a text are
    followed by another one of the same word, but some beginnings are words as well."""
    max_stray_share: ClassVar[float] = 0.02
    """Share of the other prompts that may seem to: typing errors and rare short words."""
    max_other_share: ClassVar[float] = 0.2
    """Share of the shorter prompts that may end in this way: another style of writing."""
    max_same_layout: ClassVar[float] = 0.5
    """Share of texts, all of one length, that may have sentences of the same lengths."""
    critical_share: ClassVar[float] = 0.5
    max_open_share: ClassVar[float] = 0.4
    """Share of prompts that may end within a sentence; texts to continue all do."""
    min_dangling_share: ClassVar[float] = 0.15
    """Share of these that end with a function word. Every third word of a text is one. A
    question ends with none but a preposition."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Examine the longest prompts."""
        rows = list(spread_rows(context.rows, _MAX_ROWS))
        if not rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        texts = _without_instruction([row.prompt for row in rows])
        marked = [row for row, text in zip(rows, texts, strict=True) if _MARKS.search(text)]
        if len(marked) >= self.min_pile:
            return (self._finding(marked, rows, "are marked as truncated"),)
        return (
            *self._piles(context, rows, texts),
            *self._of_one_length(context, rows),
            *self._within_words(rows, texts),
            *self._open_ends(rows, texts),
        )[:1]

    def _open_ends(self, rows: Sequence[PromptRow], texts: Sequence[str]) -> Iterator[CheckFinding]:
        """A few prompts of any length that end within a sentence, unlike nearly all others."""
        cut = [
            at
            for at, text in enumerate(texts)
            if _is_cut_at_end(text) and not _is_to_complete(rows[at])
        ]
        least = max(self.min_pile, self.min_pile_share * len(rows))
        if not least <= len(cut) <= self.max_open_share * len(rows):
            return
        within = cut_within_a_word(texts)
        dangling = sum(
            (within[at] and bool(_WHOLE_WORD.search(texts[at]))) or _dangles(texts[at])
            for at in cut
        )
        if dangling >= max(_MIN_DANGLING, self.min_dangling_share * len(cut)):
            problem = "end within a sentence, some within a word or after 'the': they were cut"
            yield self._finding([rows[at] for at in cut], rows, problem)

    def _within_words(
        self, rows: Sequence[PromptRow], texts: Sequence[str]
    ) -> Iterator[CheckFinding]:
        """Texts of one length end within a word; others are longer, as from another source."""
        cut = cut_within_a_word(texts)
        lengths = Counter(len(text) for text, is_cut in zip(texts, cut, strict=True) if is_cut)
        if not lengths:
            return
        length, count = lengths.most_common(1)[0]
        pile = [at for at, text in enumerate(texts) if len(text) == length]
        others = sum(cut) - count
        if (
            count < max(self.min_pile, self.min_pile_share * len(rows))
            or length < _MIN_CUT
            or count < self.min_word_share * len(pile)
            or others > self.max_stray_share * (len(texts) - len(pile))
            or sum(_is_cut_at_end(texts[at]) for at in pile) < self.min_cut_share * len(pile)
        ):
            return
        problem = f"end at {length} characters, many of them within a word: they were cut"
        yield self._finding([rows[at] for at in pile], rows, problem)

    def _of_one_length(
        self, context: PreflightContext, rows: Sequence[PromptRow]
    ) -> Iterator[CheckFinding]:
        """Nearly all prompts have one length, and the same sentence ends at different places."""
        texts = [row.prompt for row in rows]
        for unit, lengths in _lengths(context, texts).items():
            pile = _pile(lengths)
            if pile.sum() < max(_MIN_ROWS, self.min_same_length * len(rows)):
                continue
            masked = [
                _DIGITS.sub("0", text).rstrip() for text, at in zip(texts, pile, strict=True) if at
            ]
            cut = _continued_elsewhere(masked)
            if cut >= self.min_cut_share * len(masked):
                chosen = [row for row, at_limit in zip(rows, pile, strict=True) if at_limit]
                problem = f"end at {lengths.max()} {unit}, at different places of one sentence"
                yield self._finding(chosen, rows, f"{problem}: they were cut")
                return

    def _piles(
        self, context: PreflightContext, rows: list[PromptRow], texts: Sequence[str]
    ) -> Iterator[CheckFinding]:
        letters = np.array([len(text) for text in texts])
        for unit, lengths in _lengths(context, texts).items():
            pile = _pile(lengths)
            if pile.sum() < max(self.min_pile, self.min_pile_share * len(rows)):
                continue
            ways = {"end": _is_cut_at_end}
            ways |= {} if _begin_alike(texts) else {"begin": _is_cut_at_start}
            for where, cut in ways.items():
                if self._differs(texts, letters, pile, np.array([cut(text) for text in texts])):
                    chosen = [row for row, at_limit in zip(rows, pile, strict=True) if at_limit]
                    problem = f"{where} within a sentence at {lengths.max()} {unit}: they were cut"
                    yield self._finding(chosen, rows, problem)
                    return

    def _differs(
        self,
        texts: Sequence[str],
        letters: NDArray[np.int_],
        pile: NDArray[np.bool_],
        cut: NDArray[np.bool_],
    ) -> bool:
        """Whether the longest texts are cut, and the shorter ones are not."""
        if letters[pile].min() < _MIN_LETTERS or cut[pile].mean() < self.min_cut_share:
            return False
        sentences = np.array([bool(_SENTENCE.search(text[:-1])) for text in texts])
        if sentences[pile].mean() < self.min_cut_share:  # lists and sequences have no sentences
            return False
        if (~pile).any():
            return bool(cut[~pile].mean() <= self.max_other_share)
        return self._are_built_differently(texts)

    def _are_built_differently(self, texts: Sequence[str]) -> bool:
        """Whether texts of one length have sentences of many lengths: no generator wrote them."""
        layouts = Counter(_sentence_ends(text) for text in texts)
        return layouts.most_common(1)[0][1] <= self.max_same_layout * len(texts)

    def _finding(
        self, cut: Sequence[PromptRow], rows: Sequence[PromptRow], words: str
    ) -> CheckFinding:
        share = len(cut) / len(rows)
        return CheckFinding(
            "critical" if share >= self.critical_share else "warning",
            f"{part_of(len(cut), len(rows), 'prompts', words)}.",
            ("Make the file again without a limit on prompts, or remove these rows.",),
            tuple(f"{row.location}: …{row.prompt[-60:]!r}" for row in cut[:_SHOWN]),
            {"share": share},
        )


def cut_within_a_word(texts: Sequence[str]) -> list[bool]:
    """Whether each text ends with the beginning of a word that other texts have, but never alone.

    A word that stands within a text, with something behind it, is a whole one.
    """
    whole = {word for text in texts for word in _WORDS.findall(text)}
    beginnings = {
        word[:size] for word in whole for size in range(1, min(len(word), _MAX_WORD_LETTERS))
    }
    ends = (match.group() if (match := _LAST_WORD.search(text)) else "" for text in texts)
    return [end not in whole and end in beginnings for end in ends]


def _lengths(context: PreflightContext, texts: Sequence[str]) -> dict[str, NDArray[np.int_]]:
    """The lengths of texts in characters, tokens and words."""
    measured = {"characters": np.array([len(text) for text in texts])}
    if context.files is not None:
        ids = [context.tokenizer(text)["input_ids"] for text in texts]
        measured["tokens"] = np.array([len(each) for each in ids])
    measured["words"] = np.array([len(text.split()) for text in texts])
    return measured


def _continued_elsewhere(texts: Sequence[str]) -> int:
    """The texts whose last letters stand within a line of another text, not at its end.

    Whole prompts end with the end of a sentence or an instruction, which nothing follows. An option
    may be the last one in one prompt and an earlier one in another.
    """
    ends = Counter(text[-_END:] for text in texts)
    inside = {
        part
        for text in dict.fromkeys(texts)
        for start in range(max(len(text) - _REACH, 0), len(text) - _END)
        if (part := text[start : start + _END]) in ends and _goes_on(text, start + _END)
    }
    return sum(
        count for end, count in ends.items()
        if end in inside and sum(letter.isalpha() for letter in end) >= _END // 2
    )  # fmt: skip


def _goes_on(text: str, at: int) -> bool:
    """Whether letters follow on the line, or this is the last line of the text."""
    rest, end, _ = text[at:].partition("\n")
    return not end or any(map(str.isalnum, rest))


def _pile(lengths: NDArray[np.int_]) -> NDArray[np.bool_]:
    """The texts of the greatest length; a tool may have removed white space at the cut."""
    return np.asarray(lengths >= lengths.max() - 1)


_SIGNED = re.compile(
    r"\b(?i:regards|sincerely|yours|faithfully|thanks|thank you|best|wishes|cheers|greetings)"
    r"[,!]?\s+(?:[A-Z\u00c0-\u00de][\w.'-]*\s*){1,3}$"
)
"""The end of a letter: a name and no sentence."""


def _is_cut_at_end(text: str) -> bool:
    """Whether a sentence stops before its end; a last line of figures or code is no sentence."""
    last_line = text.rstrip().rpartition("\n")[2]
    letters = sum(letter.isalpha() for letter in last_line)
    is_open = letters >= _MIN_SENTENCE and bool(_CUT_END.search(text))
    return is_open and not _SIGNED.search(text)


def _is_cut_at_start(text: str) -> bool:
    return bool(_CUT_START.match(text))


def _dangles(text: str) -> bool:
    """Whether a text ends with a function word with which neither sentence nor question ends."""
    last_line = text.rstrip().rpartition("\n")[2]
    is_question = bool(_PREPOSITION.search(last_line) and _ASKS.search(last_line))
    return bool(_DANGLING.search(text)) and not is_question


def _begin_alike(texts: Sequence[str]) -> bool:
    """Whether nearly all texts have the same first word; those that lost their beginning do not."""
    first = Counter(text.split(None, 1)[0] for text in texts if text.strip())
    return bool(first) and first.most_common(1)[0][1] >= _MOST_ALIKE * len(texts)


def _is_to_complete(row: PromptRow) -> bool:
    """Whether a prompt ends openly by its construction: a stem of options, a text to continue."""
    return bool(options_of(row)) or any(map(_CONTINUES.search, row.texts()))


def _sentence_ends(text: str) -> tuple[int, ...]:
    """The numbers of the words that end a sentence or a line, without the last word."""
    ends, count = [], 0
    for line in text.splitlines():
        for word in line.split():
            count += 1
            if _SENTENCE.search(word):
                ends.append(count)
        ends.append(count)
    return tuple(dict.fromkeys(end for end in ends if end < count))


def _without_instruction(texts: Sequence[str]) -> list[str]:
    """The texts without the lines and sentences that all of them begin and end with."""
    first, last = min(texts), max(texts)
    start = _common_length(first, last)
    mirrored = [text[::-1] for text in texts]
    end = _common_length(min(mirrored), max(mirrored))
    # A shared full stop or blank is no instruction, and neither is the rest of a last sentence.
    end = _ending_sentences(first, end) if end > _MIN_AFFIX else 0
    start = _beginning_sentences(first, start) if start > _MIN_AFFIX else 0
    return [text[start : len(text) - end] for text in texts]


_MIN_AFFIX = 8
_MOST_ALIKE = 0.9
_BREAK = re.compile(r"\n|[.!?:\u3002\uff01\uff1f](?=\s)\s?")


def _ending_sentences(text: str, size: int) -> int:
    """The part of a shared ending, in characters, that begins a line or a sentence."""
    shared = text[len(text) - size :]
    begin = _BREAK.search(shared)
    return len(shared) - begin.end() if begin else 0


def _beginning_sentences(text: str, size: int) -> int:
    """The part of a shared beginning, in characters, that ends a line or a sentence."""
    ends = [match.end() for match in _BREAK.finditer(text[: size + 1])]
    return min(ends[-1], size) if ends else 0


def _common_length(first: str, second: str) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    differing = (index for index, (left, right) in pairs if left != right)
    return next(differing, min(len(first), len(second)))
