"""REW104."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.answer_variants import (
    ASKED_DATE,
    CASE,
    CASE_COUNTS,
    OTHER_JSON,
    PROMPT_LAYOUT,
    REASONING,
    REASONING_KIND,
    THOUSANDS,
    WHITE_SPACE,
    WITHOUT_DECIMALS,
    Variant,
    asked_formats,
    response_variants,
    variant_of,
)
from grpodoctor.preflight.answers.completions.asked_layouts import LAST_BREAK, lost_form
from grpodoctor.preflight.answers.completions.reward_relations import refused_alternatives
from grpodoctor.preflight.answers.completions.unasked_spellings import (
    ANSWER_ONLY,
    most_ask,
    unasked_kinds,
)
from grpodoctor.preflight.answers.constructed_answers import (
    FORMATS,
    format_answer,
    with_reasoning,
)
from grpodoctor.preflight.answers.reference_answers import REQUESTED, ReferenceAnswers
from grpodoctor.preflight.answers.requested.requested_formats import (
    ask_for_reasons,
    quoted_labels,
    quoted_places,
    shown_tag,
)
from grpodoctor.preflight.answers.requested.source_tags import knows_thoughts
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.checks.reward.changed_responses import (
    first_mention,
    is_read_in,
    lost_before_label,
    lost_behind_thought,
    lost_by_changes,
)
from grpodoctor.preflight.checks.reward.long_responses import (
    lost_behind_long_reasoning,
    lost_outside_tags,
    must_be_equal,
)
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.rules.base import Severity
from grpodoctor.support.numbers import part_of
from grpodoctor.trainer.rewards.user_reward import UserReward

_MIN_ROWS = 5
_MIN_CASE_ASKED = 0.05
"""Share of prompts about upper or lower case from which the case counts in all of them."""
_GROUP = 3
"""Digits between thousands separators."""
_MAX_FORMATS = 12
"""Formats to try behind reasoning."""
_MIN_WORDS = 4
"""Words of an answer that make it a text."""
_THOUGHT_BEFORE = "<think>\nI think.\n</think>\n"
"""A thought before a format."""
_REASONING_MODEL = re.compile(
    r"(?:^|[-_/])(?:r1|qwq|thinking|reason\w*)(?:[-_/.]|$)", re.IGNORECASE
)
"""Names of models that write a thought unasked."""
_MODEL_KEY = re.compile(r"(?:^|\.)(?:model|model\.path|model_name_or_path|model_path|pretrain)$")
"""Keys of configs under which the model is named."""
_ADVICE = {
    WHITE_SPACE: "Strip white space from both answers before they are compared.",
    CASE: "Compare words without regard to case.",
    "a unit": "Compare numbers by value; remove units from both answers.",
    "LaTeX spelling": "Compare formulas by value, for example with math-verify.",
    "a semicolon": "Compare queries by their results, or without white space and semicolons.",
    "no full stop": "Remove punctuation at the end of both answers.",
    ASKED_DATE: "Store dates as the prompts ask for them, or compare them as dates.",
    OTHER_JSON: "Parse JSON and compare the objects.",
    WITHOUT_DECIMALS: "Compare numbers by value, or store whole numbers without .0.",
    "plain signs": "Store minus signs, quotes and blanks as a keyboard writes them, in ASCII.",
    THOUSANDS: "Remove thousands separators from both numbers.",
    PROMPT_LAYOUT: "Remove white space from both grids before they are compared.",
    "another order": "Compare several solutions as a set.",
    REASONING_KIND: "Extract the answer from the response; do not compare all of it.",
}


class ExactMatchReward(Check):
    """A correct answer earns nothing if it is spelled another way.

    What it sees:
        Rewarded reference answers, spelled another way: with white space around them, in upper or
        lower case, with a unit, without thousands separators, in other LaTeX, several roots, or
        labels of which the prompt allows any order, in another order, a query with a semicolon, a
        whole number without .0, with a plain minus sign and plain quotes where the answer has
        typographic ones, a date in the order that the prompt asks for, a JSON object with its
        keys in another order, a grid with the white space of the prompt's grid, or after a
        sentence of reasoning.
        Also the format that most prompts ask for, or a label that they quote, and the format that
        the row's own prompt asks for. If a row lists several accepted answers, also the others.
        Each kind is reported if half of the answers lose their reward. Reasoning of several lines
        is reported if it costs more than a tenth of the reward: the pattern for the format then
        matches only responses of one line. So is a layout of tags that the prompts show, if it
        needs white space that models do not write. So are harmless changes of right responses that
        cost as much: a line break or a sentence behind the answer, a code fence around JSON, JSON
        on several lines, a draft in a code block or a rejected answer before it, also in the words
        of the answer ("the answer is 3"), 250 words of reasoning, and a thought in tags; and texts
        such as summaries without their last word.

    Why it matters:
        The model is punished for correct answers and learns the spelling instead of the task. At
        the start most groups look all-incorrect, and accuracy is underestimated.

    What to do:
        Extract the final answer from the response, and compare by value: strip white space, ignore
        case, remove units, and parse numbers and formulas.

    When it is wrong:
        Case and white space count in some tasks, such as code and passwords. Long answers are
        therefore not tried, nor are rewards that measure the similarity to a reference. Units are
        a warning only if most prompts ask for a quantity or contain numbers with units, or if
        reference answers have units, and not if the prompts ask for the number alone or show an
        answer in this form without a unit. Reasoning is no warning if the prompts ask for the
        answer and nothing else. A draft before the answer is a note unless the prompts ask for
        reasoning. Case is not tried if prompts are about it or contain code that prints.

    References:
        TRL's math reward and verl's math_verify compare by value.
    """

    code: ClassVar[str] = "REW104"
    name: ClassVar[str] = "exact-match-reward"
    summary: ClassVar[str] = "A correct answer earns nothing if it is spelled another way."
    min_lost_share: ClassVar[float] = 0.5
    """Share of answers that must lose their reward: single ones have another reason."""
    max_lost_part: ClassVar[float] = 0.1
    """Part of a reward that longer reasoning may cost: some rewards prefer short responses."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Score correct answers in other spellings."""
        usable = context.rewarded_answers()
        if isinstance(usable, SkippedCheck):
            return usable
        reward, answers = usable
        return (
            *self._other_spellings(context, reward, answers),
            *self._form(context, reward, answers),
            *self._asked_format(context, reward, answers),
            *self._alternatives(reward, answers),
            *self._changed(context, reward, answers),
        )

    def _form(
        self, context: PreflightContext, reward: UserReward, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        """Reasoning of several lines, and the white space of the layout."""
        reasoning = [*self._line_breaks(context, reward, answers)]
        layout = [*self._layout(context, reward, answers)]
        yield from reasoning
        yield from [each for each in layout if not reasoning or LAST_BREAK in each.summary]

    def _changed(
        self, context: PreflightContext, reward: UserReward, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        """Changes of the response that a reward must not notice."""
        reasons = ask_for_reasons(["\n".join(row.texts()) for row in context.reward_rows])
        if not answers.is_graded:
            yield from lost_by_changes(reward, answers, _recognized(answers), reasons=reasons)
            if reasons:
                yield from first_mention(reward, answers, _recognized(answers))
            if reasons or "\\boxed" in answers.answer_format:
                yield from lost_behind_long_reasoning(reward, answers, _recognized(answers))
            yield from must_be_equal(reward, answers, _recognized(answers))
        else:
            yield from lost_outside_tags(reward, answers, _recognized(answers))
            if reasons:
                yield from lost_before_label(reward, answers, _recognized(answers))
        if knows_thoughts(reward, context.reward_rows):
            yield from lost_behind_thought(reward, answers, _recognized(answers))

    def _other_spellings(
        self, context: PreflightContext, reward: UserReward, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        if answers.is_graded and _are_texts(answers):  # spelling belongs to a translation
            return
        lost: dict[str, float] = {}
        examples: dict[str, str] = {}
        for kind, variant in response_variants(answers.answer_format).items():
            if kind == THOUSANDS and any(map(_is_list, answers.answers)):
                continue
            if kind == CASE and _is_case_asked(answers):
                continue
            pairs = [
                (index, text)
                for index in _recognized(answers)
                if (text := _variant(answers, index, variant))
            ]
            share = _lost_share(reward, answers, pairs)
            if kind == WHITE_SPACE and not answers.is_graded:
                # A line break behind the response is a finding of its own.
                others = [(index, text.removesuffix("\n")) for index, text in pairs]
                share = min(share, _lost_share(reward, answers, others))
            if share >= self.min_lost_share and not (
                kind == REASONING_KIND and self._is_read_after_reasoning(reward, answers)
            ):
                lost[kind] = share
                examples[kind] = pairs[0][1][-80:]
        if lost:
            unasked = unasked_kinds(context.reward_rows, answers)
            yield _spelling_finding(lost, examples, unasked)

    def _is_read_after_reasoning(self, reward: UserReward, answers: ReferenceAnswers) -> bool:
        """Whether the function finds answers behind reasoning, in a format that prompts ask for."""
        marks = asked_formats(["\n".join(row.texts()) for row in answers.rows])
        forms = [*(FORMATS[name] for name in marks), *answers.requested]
        return any(
            self._share_lost_in(reward, answers, REASONING + form) < self.min_lost_share
            for form in forms[:_MAX_FORMATS]
            if not form.startswith("{answer}")
        )

    def _line_breaks(
        self, context: PreflightContext, reward: UserReward, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        """Thoughts of several lines must not cost a part of the reward."""
        rows = _recognized(answers)
        form = with_reasoning(answers.answer_format)
        if len(rows) < _MIN_ROWS or answers.is_graded or answers.answer_format.startswith("{"):
            return
        if most_ask(context.reward_rows, lambda text: bool(ANSWER_ONLY.search(text))):
            return
        texts = [format_answer(form, answers.answers[index]) for index in rows]
        try:
            rewards = reward([answers.rows[index] for index in rows], texts).total
        except DataError:  # REW103 reports it
            return
        parts = answers.lost_parts(rows, rewards)
        losing = [part for part in parts if part > self.max_lost_part]
        if len(losing) > self.min_lost_share * len(rows):
            lost = sum(losing) / len(losing)
            on_one_line = self._share_lost_in(reward, answers, " ".join(form.split()))
            is_length = on_one_line >= self.min_lost_share
            yield CheckFinding(
                "warning",
                f"Reasoning of {len(form.split())} words costs {lost:.0%} of the correct answer's "
                "reward, also on one line."
                if is_length
                else f"Reasoning with line breaks costs {lost:.0%} of the correct answer's reward; "
                "a pattern stops at a line break.",
                ("Accept longer correct responses, or make length a small part of the reward.",)
                if is_length
                else (
                    "Compile the pattern with re.DOTALL, and allow white space between the parts.",
                ),
                (f"full reward: {answers.answer_format!r}", f"less: {form!r}"),
                {"lost": lost},
            )

    def _layout(
        self, context: PreflightContext, reward: UserReward, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        """The layout of tags that the prompts show, with the white space that models write."""
        if answers.is_graded or most_ask(
            context.reward_rows, lambda text: bool(ANSWER_ONLY.search(text))
        ):
            return
        lost = lost_form(reward, answers, _recognized(answers))
        if lost and lost.part > self.max_lost_part and lost.causes:
            yield CheckFinding(
                "warning",
                f"The layout of tags that the prompts ask for loses {lost.part:.0%} of the reward "
                f"with {' or '.join(lost.causes)}.",
                ("Compile the pattern with re.DOTALL, and allow white space around the tags.",),
                (f"full reward: {lost.best!r}", f"less: {lost.usual!r}"),
                {"lost": lost.part},
            )

    def _asked_format(
        self, context: PreflightContext, reward: UserReward, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        """The format that the prompts ask for must be rewarded."""
        prompts = ["\n".join(row.texts()) for row in answers.rows]
        marks = {mark: FORMATS[name] for name, mark in asked_formats(prompts).items()}
        for mark, form in marks.items():
            if mark in answers.answer_format and answers.answer_format in answers.requested:
                continue  # the prompts ask for more around the answer, such as a confidence
            share = self._share_lost_in(reward, answers, form)
            if share >= self.min_lost_share and answers.answer_format == _THOUGHT_BEFORE + form:
                yield _thought_finding(context, answers.answer_format, mark, share)
            elif share >= self.min_lost_share and not is_read_in(
                reward, answers, _recognized(answers), form
            ):
                on_one_line = self._share_lost_in(reward, answers, " ".join(form.split()))
                yield _unread_finding(
                    "critical", mark, share, answers, one_line=on_one_line < self.min_lost_share
                )
        yield from self._format_of_some(reward, answers, prompts, list(marks))
        if marks or answers.format_name.startswith(REQUESTED):
            return
        for tag, spellings in shown_tag(prompts).items():
            share = min(self._share_lost_in(reward, answers, form) for form in spellings)
            if tag not in answers.answer_format and share >= self.min_lost_share:
                yield _unread_finding("critical", tag, share, answers)
                return
        forms = quoted_places(prompts) or quoted_labels(prompts)
        lost = {form: self._share_lost_in(reward, answers, form) for form in forms}
        if lost and min(lost.values()) >= self.min_lost_share:
            label, share = min(lost.items(), key=lambda item: item[1])
            yield _unread_finding("warning", label.replace("{answer}", "…"), share, answers)

    def _format_of_some(
        self,
        reward: UserReward,
        answers: ReferenceAnswers,
        prompts: Sequence[str],
        of_most: Sequence[str],
    ) -> Iterator[CheckFinding]:
        """A format that a part of the prompts ask for must be rewarded in their rows."""
        asked = [asked_formats([prompt]) for prompt in prompts]
        for mark in {mark for each in asked for mark in each.values()} - set(of_most):
            rows = [
                at for at in _recognized(answers)
                if len(asked[at]) == 1 and mark in asked[at].values()
            ]  # fmt: skip
            if not _MIN_ROWS <= len(rows) <= len(prompts):
                continue
            pairs = [
                (at, format_answer(FORMATS[next(iter(asked[at]))], answers.answers[at]))
                for at in rows
            ]
            share = _lost_share(reward, answers, pairs)
            if share >= self.min_lost_share:
                yield CheckFinding(
                    "warning",
                    f"{part_of(len(rows), len(prompts), 'prompts', 'ask')} "
                    f"for {mark}, and {share:.0%} of "
                    "their correct answers in it earn nothing.",
                    ("Have the reward function read each format that prompts ask for.",),
                    (f"rewarded format: {answers.answer_format!r}",),
                    {"share": share},
                )

    def _alternatives(
        self, reward: UserReward, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        """Each answer of a list of accepted answers must be rewarded."""
        refused, total, example = refused_alternatives(reward, answers)
        if refused and len(refused) >= self.min_lost_share * total:
            yield CheckFinding(
                "warning",
                f"{part_of(len(refused), total, 'rows', 'list')} "
                "several answers, and the reward accepts only "
                "the first.",
                ("Compare the response with all accepted answers of the list.",),
                (f"{answers.rows[refused[0]].location}: {example!r:.80} earns nothing",),
                {"share": len(refused) / total},
            )

    def _share_lost_in(self, reward: UserReward, answers: ReferenceAnswers, form: str) -> float:
        pairs = [
            (index, format_answer(form, answers.answers[index])) for index in _recognized(answers)
        ]
        return _lost_share(reward, answers, pairs)


def _unread_finding(
    severity: Severity,
    mark: str,
    share: float,
    answers: ReferenceAnswers,
    *,
    one_line: bool = False,
) -> CheckFinding:
    where = "in this format, with a line break in or before it," if one_line else "in this format"
    advice = (
        "Compile the pattern with re.DOTALL: without it, the dot stops at a line break."
        if one_line
        else "Have the reward function read the format that the prompts ask for."
    )
    return CheckFinding(
        severity,
        f"Prompts ask for {mark}, but {share:.0%} of correct answers {where} earn nothing.",
        (advice,),
        (f"rewarded format: {answers.answer_format!r}",),
        {"share": share},
    )


def _thought_finding(
    context: PreflightContext, rewarded: str, mark: str, share: float
) -> CheckFinding:
    """The format that the prompts ask for earns a reward only behind a thought.

    Reasoning models write the thought unasked. Their templates or names tell; without them, a
    reward that requires a thought is meant for such a model.
    """
    names = [
        value
        for key, value in context.flat_config.items()
        if _MODEL_KEY.search(key) and isinstance(value, str) and "$" not in value
    ]
    template = str(context.tokenizer.chat_template or "") if context.files else ""
    is_known = bool(template or names)
    is_usual = "<think>" in template or any(map(_REASONING_MODEL.search, names))
    return CheckFinding(
        "warning" if is_known and not is_usual else "info",
        f"{share:.0%} of correct answers in {mark} earn a reward only behind a thought in <think>.",
        ("Check that the model writes <think> without being asked, or ask for it.",),
        (f"rewarded format: {rewarded!r}",),
        {"share": share},
    )


def _is_case_asked(answers: ReferenceAnswers) -> bool:
    """Whether the case of letters is a part of the task in some prompts."""
    asked = sum(bool(CASE_COUNTS.search("\n".join(row.texts()))) for row in answers.rows)
    return asked >= _MIN_CASE_ASKED * len(answers.rows)


def _is_list(answer: str) -> bool:
    """Whether commas separate several numbers, such as a place's coordinates."""
    parts = answer.split(",")
    return len(parts) > 1 and not all(len(part) == _GROUP and part.isdigit() for part in parts[1:])


def _are_texts(answers: ReferenceAnswers) -> bool:
    """Whether most answers are sentences."""
    sentences = sum(len(answer.split()) >= _MIN_WORDS for answer in answers.answers)
    return sentences > len(answers.answers) / 2


def _recognized(answers: ReferenceAnswers) -> list[int]:
    """Rows whose correct answer is rewarded, and more than a wrong one."""
    return [
        index
        for index, missed in enumerate(answers.missed)
        if not missed and answers.rewards[index] > answers.wrong[index]
    ]


def _lost_share(
    reward: UserReward, answers: ReferenceAnswers, pairs: Sequence[tuple[int, str]]
) -> float:
    """Share of responses that earn less than half-way from a wrong to the correct answer."""
    if len(pairs) < _MIN_ROWS:
        return 0.0
    try:
        rewards = reward([answers.rows[index] for index, _ in pairs], [text for _, text in pairs])
    except DataError:  # REW103 reports it
        return 0.0
    lost = [
        value < (answers.rewards[index] + max(answers.wrong[index], answers.empty[index])) / 2
        for (index, _), value in zip(pairs, rewards.total, strict=True)
    ]
    return sum(lost) / len(lost)


def _variant(answers: ReferenceAnswers, index: int, variant: Variant) -> str | None:
    """A correct answer in another spelling; None if it has none."""
    prompt = "\n".join(answers.rows[index].texts())
    return variant_of(variant, answers.answer_format, answers.answers[index], prompt)


def _spelling_finding(
    lost: Mapping[str, float], examples: Mapping[str, str], unasked: frozenset[str]
) -> CheckFinding:
    """A finding about the spellings that models have a reason to write; else a note about all."""
    kinds = [kind for kind in lost if kind not in unasked] or list(lost)
    return CheckFinding(
        "info" if unasked.issuperset(lost) else "warning",
        f"Exact-match reward: {max(lost[kind] for kind in kinds):.0%} of correct answers earn "
        f"nothing with another spelling ({', '.join(kinds)}).",
        tuple(_ADVICE[kind] for kind in kinds),
        tuple(f"{kind}: {examples[kind]!r}" for kind in kinds),
        {f"lost: {kind}": lost[kind] for kind in kinds},
    )
