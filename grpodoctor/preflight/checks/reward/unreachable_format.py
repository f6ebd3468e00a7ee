"""REW106."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from grpodoctor.errors import DataError, ModelError
from grpodoctor.preflight.answers.constructed_answers import (
    FORMATS,
    answer_formats,
    format_answer,
    with_reasoning,
)
from grpodoctor.preflight.answers.kinds.class_names import requested_names
from grpodoctor.preflight.answers.kinds.test_calls import tested_function
from grpodoctor.preflight.answers.multiple_choice import letter_of_number
from grpodoctor.preflight.answers.reference_answers import (
    WITHIN_FENCE,
    WITHIN_TAGS,
    ReferenceAnswers,
)
from grpodoctor.preflight.answers.requested.requested_formats import (
    OF_THOUGHTS,
    ask_for_reasons,
    requested_tags,
)
from grpodoctor.preflight.answers.requested.source_tags import tags_read
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.chat_template import render_text
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.rules.base import Severity
from grpodoctor.support.numbers import part_of
from grpodoctor.trainer.rewards.user_reward import UserReward

_THOUGHT = re.compile(r"<think>.*?</think>\s*", re.DOTALL)
_NO_THOUGHT = re.compile(
    r"/no_?think\b|\b(?:do not|don't|without) (?:think|reason|explain)(?:ing)?\b|"
    r"detailed thinking off",
    re.IGNORECASE,
)
"""Switches of Qwen3 and Nemotron, and instructions that forbid a thought."""
_MARKS: Mapping[str, str] = {"<answer>": "answer>", "####": "####", "\\boxed": "boxed"}
"""What a format writes around an answer, and how a prompt names it."""
_WRITTEN_UNASKED = frozenset({"\\boxed"})
"""Models that were trained on mathematics write a box without being asked."""
_MAX_ROWS = 500
_TRIED_ROWS = 4
"""Rows on which the text of the EOS token is tried in every format."""
_SHOWN = 4
_OPENED_TAG = re.compile(r"<\w+>\s*$")
_OPENING = re.compile(r"<([A-Za-z]\w*)>")
_EMPTY_TAG = re.compile(r"<(\w+)>\s*</\1>\s*$")


class UnreachableFormat(Check):
    """The reward requires a format that the model does not write.

    What it sees:
        Reports if the usual format, such as a code block, earns a reward only within tags that the
        prompts do not ask for, or an answer only in a code fence (```json) that they do not name.

        The formats in which correct answers are rewarded. Reports if all of them have a mark, such
        as answer tags, that most prompts and the chat template do not mention. Also reports if the
        prompt ends with an opened or an empty tag, such as <think>, and the reward wants this tag
        in the response; if a part of the reward requires the text of an EOS token; if prompts
        switch thinking off (/no_think) and the reward requires a thought; if the config has a stop
        string that the reward needs (`</answer>`), or that ends the reasoning which the prompts ask
        for (a line break); if unit tests call a function that the prompt
        does not name; if the prompts letter their options (A, B, C) and the reward takes only the
        number of an option; and if they ask for yes or no and the reward takes only true or false,
        or another such pair.

    Why it matters:
        The model does not know that it should write the tags, or they are already in the prompt.
        Every response is scored as wrong, all groups are all-incorrect, and nothing is learned.

    What to do:
        Ask for the format in each prompt or in a system message. Have the reward function accept
        a response without the tag that the prompt opens, or add the tag before scoring.

    When it is wrong:
        Some trainers add a system message at run time (ms-swift: --system). Models trained on
        mathematics write a box unasked, so a missing request for a box is only a note.

    References:
        open-r1 issues 235 and 405: the reward for the format stays at zero.
    """

    code: ClassVar[str] = "REW106"
    name: ClassVar[str] = "unreachable-reward-format"
    summary: ClassVar[str] = "The reward requires a format that the model does not write."
    max_asking: ClassVar[float] = 0.9
    """Share of prompts that must ask for the format."""
    max_lost_part: ClassVar[float] = 0.1
    """Part of the reward that a response may lose without the tag that the prompt opens."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare the rewarded formats with the prompts."""
        unnamed = (*self._unnamed_functions(context), *self._other_tags(context))
        usable = context.rewarded_answers()
        if isinstance(usable, SkippedCheck):
            return unnamed or usable
        reward, answers = usable
        return (
            *unnamed,
            *self._not_requested(context, answers),
            *self._only_within_tags(context, answers),
            *self._only_within_fence(context, answers),
            *self._written_by_prompt(context, reward, answers),
            *self._end_token(context, reward, answers),
            *self._stopped(context, reward, answers),
            *self._thought(context, reward, answers),
            *self._letters(reward, answers),
            *self._names(reward, answers),
        )

    def _unnamed_functions(self, context: PreflightContext) -> Iterator[CheckFinding]:
        """Prompts that do not name the function that their unit tests call."""
        rows = list(spread_rows(context.reward_rows, _MAX_ROWS))
        tested = [(row, name) for row in rows if (name := tested_function(row.columns))]
        unnamed = [(row, name) for row, name in tested if name not in _prompt_text(context, row)]
        if len(unnamed) > len(tested) / 2:
            yield CheckFinding(
                "warning",
                f"{part_of(len(unnamed), len(tested), 'prompts', 'do')} "
                "not name the function that their "
                "tests call.",
                ("Add the name or the signature of the function to each prompt.",),
                tuple(f"{row.location}: tests call {name!r}" for row, name in unnamed[:_SHOWN]),
                {"share": len(unnamed) / len(tested)},
            )

    def _other_tags(self, context: PreflightContext) -> Iterator[CheckFinding]:
        """Tags that the reward reads and no prompt names, while the prompts ask for others."""
        read = set(tags_read(context.reward.spec)) - OF_THOUGHTS if context.reward else set()
        rows = list(spread_rows(context.reward_rows, _MAX_ROWS))
        asked = set(requested_tags(["\n".join(row.texts()) for row in rows])) - OF_THOUGHTS
        if not read or not asked or read & asked:
            return
        texts = [_prompt_text(context, row) for row in rows]
        if any(f"<{name}>" in text for name in read for text in texts):
            return
        names = [", ".join(f"<{name}>" for name in sorted(each)) for each in (read, asked)]
        yield CheckFinding(
            "critical",
            f"The reward function reads {names[0]}, which no prompt names; the prompts ask for "
            f"{names[1]}.",
            ("Ask for the tags that the reward function reads, or read those of the prompts.",),
        )

    def _letters(self, reward: UserReward, answers: ReferenceAnswers) -> Iterator[CheckFinding]:
        """Options with letters in the prompts, whose numbers the reward wants."""
        letters = [letter_of_number(row) for row in answers.rows]
        chosen = [at for at, letter in enumerate(letters) if letter and not answers.missed[at]]
        if len(chosen) <= len(letters) / 2:
            return
        texts = [format_answer(answers.answer_format, letters[index]) for index in chosen]
        refused = _refused(reward, answers, chosen, texts)
        if len(refused) > (1 - self.max_lost_part) * len(chosen):
            yield CheckFinding(
                "critical",
                f"{part_of(len(chosen), len(letters), 'prompts', 'letter')} "
                "the options, and the reward "
                "takes only the option's number.",
                ("Store the letters as answers, or number the options in the prompts.",),
                tuple(
                    f"{answers.rows[index].location}: answer {answers.rows[index].answer!r:.20}"
                    for index in refused[:_SHOWN]
                ),
            )

    def _names(self, reward: UserReward, answers: ReferenceAnswers) -> Iterator[CheckFinding]:
        """Verdicts that the prompts and the answers name differently."""
        prompts = ["\n".join(row.texts()) for row in answers.rows]
        names = requested_names(prompts, answers.answers)
        chosen = [at for at, missed in enumerate(answers.missed) if names and not missed]
        texts = [
            format_answer(answers.answer_format, names[answers.answers[at].strip().casefold()])
            for at in chosen
        ]
        refused = _refused(reward, answers, chosen, texts) if chosen else []
        if refused and len(refused) > (1 - self.max_lost_part) * len(chosen):
            own, asked = (" or ".join(each) for each in (names, names.values()))
            yield CheckFinding(
                "critical",
                f"The prompts ask for {asked}, and the reward takes only {own}.",
                (f"Store {asked} as answers, or have the reward function accept both.",),
                tuple(
                    f"{answers.rows[at].location}: answer {answers.rows[at].answer!r:.20}"
                    for at in refused[:_SHOWN]
                ),
            )

    def _stopped(
        self, context: PreflightContext, reward: UserReward, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        """Stop strings of the config without which a correct response earns nothing."""
        chosen = [at for at, missed in enumerate(answers.missed) if not missed]
        form = _usual_form(reward, answers, chosen) if context.stop_strings else ""
        whole = {at: format_answer(form, answers.answers[at]) for at in chosen}
        for stop in context.stop_strings:
            cut = [at for at in chosen if stop in whole[at]]
            texts = [whole[at].partition(stop)[0] for at in cut]
            refused = _refused(reward, answers, cut, texts) if cut else []
            if refused and len(refused) > len(chosen) / 2:
                yield CheckFinding(
                    "critical",
                    f"The stop string {stop!r} ends responses and is cut off; correct responses "
                    "earn less with what is left.",
                    (
                        "Keep it in the output (vLLM: include_stop_str_in_output=True), or remove "
                        "it from the stop strings.",
                    ),
                    (f"rewarded response: {form!r}",),
                    {"share": len(refused) / len(chosen)},
                )

    def _thought(
        self, context: PreflightContext, reward: UserReward, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        """A thought that the reward requires, and that a switch in the prompts forbids."""
        rest = _THOUGHT.sub("", answers.answer_format)
        switched = [row for row in answers.rows if _NO_THOUGHT.search(_prompt_text(context, row))]
        chosen = [at for at, missed in enumerate(answers.missed) if not missed]
        if rest == answers.answer_format or len(switched) <= len(answers.rows) / 2 or not chosen:
            return
        texts = [format_answer(rest, answers.answers[at]) for at in chosen]
        refused = _refused(reward, answers, chosen, texts)
        if len(refused) > len(chosen) / 2:
            yield CheckFinding(
                "critical",
                f"{part_of(len(switched), len(answers.rows), 'prompts', 'switch')} "
                "thinking off, and the "
                "reward requires <think>.",
                ("Remove the switch (/no_think), or do not require a thought.",),
                (f"rewarded format: {answers.answer_format!r}",),
                {"share": len(refused) / len(chosen)},
            )

    def _not_requested(
        self, context: PreflightContext, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        mark = _required_mark(context, answers)
        if not mark:
            return
        asking = sum(_MARKS[mark] in _prompt_text(context, row) for row in answers.rows)
        share = asking / len(answers.rows)
        if share > self.max_asking:
            return
        severity: Severity = "info" if mark in _WRITTEN_UNASKED else "warning"
        yield CheckFinding(
            severity,
            f"Only answers in {mark} earn a reward, but {1 - share:.0%} of prompts do not ask for "
            "it.",
            (f"Ask for {mark} in each prompt or in a system message.",),
            (f"rewarded format: {answers.answer_format!r}",),
            {"asking": share},
        )

    def _only_within_tags(
        self, context: PreflightContext, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        """Tags around the usual format, such as a code block, that no prompt asks for."""
        names = _OPENING.findall(answers.answer_format)
        if not answers.format_name.endswith(WITHIN_TAGS) or not names:
            return
        texts = [_prompt_text(context, row) for row in answers.rows]
        asking = sum(all(f"<{name}>" in text for name in names) for text in texts)
        if asking <= self.max_asking * len(texts):
            tags = " and ".join(f"<{name}>" for name in names)
            yield CheckFinding(
                "critical",
                f"Correct answers earn a reward only within {tags}, which "
                f"{1 - asking / len(texts):.0%} of prompts do not ask for.",
                (f"Ask for {tags} in each prompt, or accept answers without them.",),
                (f"rewarded format: {answers.answer_format!r}",),
                {"asking": asking / len(texts)},
            )

    def _only_within_fence(
        self, context: PreflightContext, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        """A code fence that the reward requires, and that the prompts ask for in no words."""
        language = answers.format_name.removesuffix(WITHIN_FENCE)
        if language == answers.format_name:
            return
        asked = re.compile(
            rf"```|\bfence|\bcode[ -]?block|\bmarkdown\b|\b{language}\b", re.IGNORECASE
        )
        texts = [_prompt_text(context, row) for row in answers.rows]
        asking = sum(bool(asked.search(text)) for text in texts) / len(texts)
        if asking <= self.max_asking:
            yield CheckFinding(
                "critical",
                f"Correct answers earn a reward only in a ```{language} block, which "
                f"{1 - asking:.0%} of prompts do not ask for.",
                (f"Ask for a ```{language} block in each prompt, or read answers without one.",),
                (f"rewarded format: {answers.answer_format!r}",),
                {"asking": asking},
            )

    def _written_by_prompt(
        self, context: PreflightContext, reward: UserReward, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        form = answers.answer_format
        tag, rest = _written_part(_prompt_text(context, answers.rows[0]), form)
        if not tag:
            return
        chosen = [index for index, missed in enumerate(answers.missed) if not missed]
        texts = [format_answer(rest, answers.answers[index]) for index in chosen]
        try:
            rewards = reward([answers.rows[index] for index in chosen], texts).total
        except DataError:  # REW103 reports it
            return
        parts = answers.lost_parts(chosen, rewards)
        losing = [part for part in parts if part > self.max_lost_part]
        if len(losing) > len(chosen) / 2:
            part = sum(losing) / len(losing)
            yield CheckFinding(
                "critical",
                f"The prompt already ends with {tag}; correct responses without it lose {part:.0%} "
                "of their reward.",
                (
                    f"Accept responses without {tag}, or add it before they are scored. If the "
                    "template ends the thought, switch thinking on (enable_thinking=True).",
                ),
                (f"rewarded format: {form!r}", f"what the model can write: {rest!r}"),
                {"lost": part},
            )

    def _end_token(
        self, context: PreflightContext, reward: UserReward, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        """A reward for the text of the EOS token, which trainers remove from responses."""
        few = [at for at, missed in enumerate(answers.missed) if not missed][:_TRIED_ROWS]
        rows = [answers.rows[at] for at in few]
        forms = {answers.answer_format, *answer_formats(context.settings).values()}
        for end in _end_texts(context) if few else ():
            for form in sorted(forms):
                texts = [format_answer(form, answers.answers[at]) for at in few]
                other_end = " " + "x" * (len(end) - 1)
                try:
                    without, ended, longer = (
                        reward(rows, [f"{text}{behind}" for text in texts]).total
                        for behind in ("", end, other_end)
                    )
                except DataError:  # REW103 reports it
                    continue
                most = [max(pair) for pair in zip(without, longer, strict=True)]
                if sum(one < other for one, other in zip(most, ended, strict=True)) == len(few):
                    yield CheckFinding(
                        "critical",
                        f"A part of the reward requires the text {end!r} at the end of responses; "
                        "trainers decode responses without special tokens.",
                        (f"Remove {end!r} from the pattern.",),
                        (f"earns less: {form!r}", f"earns more: {form + end!r}"),
                    )
                    return


def _usual_form(reward: UserReward, answers: ReferenceAnswers, chosen: Sequence[int]) -> str:
    """The rewarded format, with reasoning if the prompts ask for it and the reward allows it."""
    form = answers.answer_format
    if not ask_for_reasons(["\n".join(row.texts()) for row in answers.rows]):
        return form
    reasoned = with_reasoning(form)
    texts = [format_answer(reasoned, answers.answers[at]) for at in chosen]
    is_refused = len(_refused(reward, answers, chosen, texts)) > len(chosen) / 2
    return form if is_refused else reasoned


def _end_texts(context: PreflightContext) -> list[str]:
    """The texts of the EOS tokens; empty without a model."""
    if context.files is None:
        return []
    texts = (context.token_text(token) for token in sorted(context.end_tokens))
    return [text for text in texts if text]


def _written_part(prompt: str, form: str) -> tuple[str, str]:
    """The beginning of a format that the prompt ends with, and the rest; empty if there is none.

    A prompt ends with an opened tag, or with a tag that is empty: the template has switched
    thinking off.
    """
    closed, opened = _EMPTY_TAG.search(prompt), _OPENED_TAG.search(prompt)
    if closed and form.startswith(f"<{closed[1]}>"):
        rest = form.partition(f"</{closed[1]}>")[2]
        return f"<{closed[1]}></{closed[1]}>", rest.lstrip("\n")
    tag = opened[0].strip() if opened else ""
    return (tag, form.removeprefix(tag).lstrip("\n")) if tag and form.startswith(tag) else ("", "")


def _refused(
    reward: UserReward, answers: ReferenceAnswers, chosen: Sequence[int], texts: Sequence[str]
) -> list[int]:
    """The rows whose response earns less than the correct answer in its format."""
    try:
        rewards = reward([answers.rows[at] for at in chosen], texts).total
    except DataError:  # REW103 reports it
        return []
    return [at for at, value in zip(chosen, rewards, strict=True) if value < answers.rewards[at]]


def _required_mark(context: PreflightContext, answers: ReferenceAnswers) -> str:
    """The mark without which no correct answer is rewarded; empty if there is none."""
    if context.settings.gold_format:
        return next((mark for mark in _MARKS if mark in context.settings.gold_format), "")
    forms = {**answer_formats(context.settings), "the data's own solutions": "{answer}"}
    rewarded = [
        FORMATS.get(name, forms[name])
        for name, rewards in answers.by_format.items()
        if name in FORMATS and _rewards_most(answers, rewards)
    ]
    shared = [mark for mark in _MARKS if rewarded and all(mark in form for form in rewarded)]
    return shared[0] if shared else ""


def _rewards_most(answers: ReferenceAnswers, rewards: tuple[float, ...]) -> bool:
    """Whether a format earns more than half of the way from a bad to a correct answer."""
    enough = [
        value > (right + max(wrong, empty)) / 2
        for value, right, wrong, empty in zip(
            rewards, answers.rewards, answers.wrong, answers.empty, strict=True
        )
    ]
    return sum(enough) > len(enough) / 2


def _prompt_text(context: PreflightContext, row: PromptRow) -> str:
    """The prompt as the model sees it, with what the template adds if there is a model."""
    plain = "\n".join(row.texts())
    if context.files is None or not (context.tokenizer.chat_template and row.messages):
        return plain
    try:
        return render_text(context.tokenizer, row.conversation(), generation=True)
    except ModelError:  # DAT105 reports it
        return plain
