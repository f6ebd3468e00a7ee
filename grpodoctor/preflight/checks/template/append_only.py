"""DAT101."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from grpodoctor.errors import ModelError
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.chat_template import render_ids, render_text
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck

_TURNS: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "What is 2 + 3?"},
    {"role": "assistant", "content": "<think>\nTwo and three.\n</think>\n\nIt is 5."},
    {"role": "user", "content": "And 4 + 4?"},
)
_ANSWER_STARTS = ("<think>", "Two and three", "It is 5")
"""Possible first words of the rendered answer: some templates rewrite the thoughts."""
_OPENED_THOUGHT = re.compile(r"\s*<\|?think\w*\|?>\s*")
_SHOWN_TOKENS = 12


class AppendOnlyTemplate(Check):
    """The chat template changes earlier turns when a later one is added.

    What it sees:
        Renders a conversation of two questions turn by turn. Reports one of three problems: the
        token ids of the shorter conversation are not a prefix of the longer one; the generation
        prompt is not a prefix of the rendered answer; or the template has no generation prompt
        although answers have a header.

    Why it matters:
        The engine samples from one sequence of tokens, and the learner computes gradients on
        another. In multi-turn training, every turn but the last is then off-policy, and the
        log-probabilities of engine and learner differ for a reason that no precision setting
        explains. Templates that drop the thoughts of earlier turns do so on purpose, for inference.
        Without a generation prompt the model continues the question, or must write the header
        itself.

    What to do:
        Train on the sampled token ids and never render a conversation again, or use a template that
        only appends. Single-turn runs are not affected by changes of earlier turns; the finding is
        then a note. Fix a template without a generation prompt.

    When it is wrong:
        Some templates reject conversations of this shape. The check skips conversations that cannot
        be rendered.

    References:
        TRL's documentation of chat templates for training calls such a template prefix-preserving.
    """

    code: ClassVar[str] = "DAT101"
    name: ClassVar[str] = "template-not-prefix-preserving"
    former_names: ClassVar[tuple[str, ...]] = ("template-not-append-only",)
    summary: ClassVar[str] = "The chat template changes earlier turns when a later one is added."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Render a conversation turn by turn."""
        if not context.tokenizer.chat_template:
            return SkippedCheck("the tokenizer has no chat template")
        multi_turn = any(
            message.get("role") == "assistant" for row in context.rows for message in row.messages
        )
        findings = [
            *_missing_generation_prompt(context),
            *_changed_answer(context, multi_turn=multi_turn),
        ]
        try:
            findings += _changed_first_turn(context, multi_turn=multi_turn)
        except ModelError as error:
            return findings or SkippedCheck(f"only one question could be rendered: {error.what}")
        return findings


def _missing_generation_prompt(context: PreflightContext) -> Iterator[CheckFinding]:
    bare, prompted = (
        render_text(context.tokenizer, _TURNS[:1], generation=on) for on in (False, True)
    )
    rest = render_text(context.tokenizer, _TURNS[:2])[len(bare) :]
    positions = [rest.find(start) for start in _ANSWER_STARTS if start in rest]
    header = rest[: min(positions)].strip() if positions else ""
    if bare == prompted and header:
        yield CheckFinding(
            "critical",
            f"The template has no generation prompt, so the model must write {header!r} itself.",
            ("Add it at the end of chat_template if add_generation_prompt is set.",),
        )


def _changed_answer(context: PreflightContext, *, multi_turn: bool) -> Iterator[CheckFinding]:
    """Whether a rendered answer starts with the generation prompt."""
    if difference := _difference(context, _TURNS[:1], _TURNS[:2], generation=True):
        prompted = render_text(context.tokenizer, _TURNS[:1], generation=True)
        bare = render_text(context.tokenizer, _TURNS[:1])
        opened = prompted.startswith(bare) and _OPENED_THOUGHT.search(prompted[len(bare) :])
        harmless = bool(opened) and not multi_turn
        yield CheckFinding(
            "info" if harmless else "warning",
            "The generation prompt differs from the start of a rendered answer"
            + ("; single-turn training on sampled ids is not affected." if harmless else "."),
            ("Train on the sampled token ids; do not render the answer again.",),
            difference,
        )


def _changed_first_turn(context: PreflightContext, *, multi_turn: bool) -> Iterator[CheckFinding]:
    """Whether a second question changes the rendered first answer."""
    if difference := _difference(context, _TURNS[:2], _TURNS, generation=False):
        yield CheckFinding(
            "warning" if multi_turn else "info",
            "A second question changes how the first answer is rendered"
            + ("." if multi_turn else "; your single-turn prompts are not affected."),
            ("Train on the sampled token ids, or use a template that only appends.",),
            difference,
        )


def _difference(
    context: PreflightContext,
    shorter: tuple[dict[str, Any], ...],
    longer: tuple[dict[str, Any], ...],
    *,
    generation: bool,
) -> tuple[str, ...]:
    """Where two renderings first differ; empty if the longer one only appends."""
    short_ids = render_ids(context.tokenizer, shorter, generation=generation)
    long_ids = render_ids(context.tokenizer, longer)
    if long_ids[: len(short_ids)] == short_ids:
        return ()
    pairs = enumerate(zip(short_ids, long_ids, strict=False))
    start = next(
        (index for index, (short, long) in pairs if short != long),
        min(len(short_ids), len(long_ids)),
    )
    decode = context.tokenizer.decode
    return (
        f"first difference at token {start}",
        f"before: {decode(short_ids[start : start + _SHOWN_TOKENS])!r}",
        f"after: {decode(long_ids[start : start + _SHOWN_TOKENS])!r}",
    )
