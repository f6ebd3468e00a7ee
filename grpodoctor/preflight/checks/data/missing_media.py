"""DAT118."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import part_of

_SHOWN = 4
_MEDIUM = r"image|video|audio"
_PLACEHOLDER = re.compile(
    rf"<\|?(?P<medium>{_MEDIUM})(?:_pad|_start|_soft_token|[ _]?\d+)?\|?>|<\|vision_start\|>",
    re.IGNORECASE,
)
"""How data sets and templates mark the place of an image, for example `<image>`."""
_PICTURE = r"(?:figure|diagram|graph|picture|image|drawing|illustration|chart|photo(?:graph)?)"
_REFERENCE = re.compile(
    rf"\b{_PICTURE} (?:[^\s.]+ ){{0,4}}?(?:below|above|shown|depicted|on the (?:left|right))\b|"
    rf"\b(?:in|from|see|to) the (?:accompanying |following |adjacent |attached |given )?"
    r"(?:figure|diagram|picture|image)(?=[,.;:]|$| (?:below|above|shown|here))",
    re.IGNORECASE | re.MULTILINE,
)
"""Words that point to a picture next to the text."""
_DRAWN = re.compile(
    r"\[asy\]|\\begin\{(?:tikz|array|tabular)|<svg|<img|!\[|https?://|```|\|.*\|.*\||"
    r"--?>|\bedges?\b|(?:^|[.!?:]\s)(?:please )?(?:paint|draw|sketch|generate|describe|caption)\b",
    re.IGNORECASE,
)
"""The picture as text or as a link, and tasks about pictures."""
_WRITTEN_DOWN = re.compile(
    r"\b(?:ocr|recogni[sz]ed|detected|detections|transcribed|transcript(?:ion)?|captions?|"
    r"annotations?|bounding boxes|scene graph|alt[- ]text)\b[^.:\n]{0,60}:[ \t]*\n",
    re.IGNORECASE,
)
"""The headline of the content of a picture or sound: what a program has read in it."""
_COLUMN = re.compile(rf"(?:{_MEDIUM})|pixel|multi_?modal", re.IGNORECASE)
_ENCODERS = (
    "vision_config",
    "audio_config",
    "thinker_config",
    "mm_vision_tower",
    "visual",
    "img_processor",
)
"""Keys of config.json of models that read more than text."""


class MissingMedia(Check):
    """Prompts mark the place of an image that does not exist, or that the model cannot read.

    What it sees:
        Prompts with a placeholder such as <image>, with a part of the type image, video or audio,
        or with words that point to a picture ("in the figure below", "the graph is shown"), unless
        the text contains the drawing, a table, a link, or a list of what was detected or
        recognized. Reported if the row has no column with the
        medium, or if config.json declares a model that reads only text.

    Why it matters:
        The model sees the placeholder as letters and cannot know the answer. It is rewarded for
        guesses and learns to describe images that it has not seen.

    What to do:
        Keep the column of images when the data is converted, use a model that reads images, or
        remove the rows.

    When it is wrong:
        A loader may add the images under the row's id at run time. Tasks about HTML may contain
        such tags.

    References:
        None.
    """

    code: ClassVar[str] = "DAT118"
    name: ClassVar[str] = "missing-images"
    summary: ClassVar[str] = "Prompts mark images that are missing or that the model cannot read."
    min_share: ClassVar[float] = 0.01
    """Share of prompts from which the check reports: single ones may be about such tags."""
    critical_share: ClassVar[float] = 0.5

    def examine(self, context: PreflightContext) -> CheckResult:
        """Search each prompt for placeholders and parts."""
        if not context.rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        marked = [row for row in context.rows if _marks_medium(row)]
        reads_text_only = context.files is not None and not reads_media(context)
        missing = [row for row in marked if reads_text_only or not has_medium(row)]
        share = len(missing) / len(context.rows)
        if share < self.min_share:
            return ()
        without = sum(not has_medium(row) for row in missing)
        problem = (
            "their row has none" if without > len(missing) / 2 else "the model reads only text"
        )
        return (
            CheckFinding(
                "critical" if share >= self.critical_share else "warning",
                f"{part_of(len(missing), len(context.rows), 'prompts', 'refer')} "
                "to an image, video or sound, "
                f"but {problem}.",
                ("Keep the column of images, use a model that reads them, or remove the rows.",),
                tuple(f"{row.location}: {row.prompt[:80]!r}" for row in missing[:_SHOWN]),
                {"share": share},
            ),
        )


def _marks_medium(row: PromptRow) -> bool:
    texts = row.texts()
    return (
        bool(_parts(row))
        or any(_PLACEHOLDER.search(text) for text in texts)
        or (any(map(_REFERENCE.search, texts)) and not _has_content(texts))
    )


def _has_content(texts: Sequence[str]) -> bool:
    """Whether texts contain the picture, as a drawing, a link, or what was recognized in it."""
    return any(_DRAWN.search(text) or _WRITTEN_DOWN.search(text) for text in texts)


def reads_media(context: PreflightContext) -> bool:
    """Whether config.json declares a model that reads more than text."""
    return any(context.config_value(key) for key in _ENCODERS)


def has_medium(row: PromptRow) -> bool:
    """Whether a row has an image, video or sound, in a column or in a message."""
    columns = any(_COLUMN.search(str(name)) and value for name, value in row.columns.items())
    return columns or any(_is_filled(part) for part in _parts(row))


def _parts(row: PromptRow) -> list[Mapping[str, Any]]:
    """The parts of messages that are no text."""
    contents = [message.get("content") for message in row.messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [
        part
        for part in parts
        if isinstance(part, Mapping) and re.search(_MEDIUM, str(part.get("type")), re.IGNORECASE)
    ]


def _is_filled(part: Mapping[str, Any]) -> bool:
    return any(value for key, value in part.items() if key not in ("type", "text"))
