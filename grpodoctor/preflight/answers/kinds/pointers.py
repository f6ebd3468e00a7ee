"""Answers that say where the answer is: the path of a file, a link, an identifier."""

from __future__ import annotations

import re

_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/.~]?(?:[\w.-]+[\\/])+[\w.-]+\.[A-Za-z]\w{0,4}")
_LINK = re.compile(r"(?:https?|s3|gs|ftp|hf)://\S+")
_IDENTIFIER = re.compile(
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|(?:sha\d+:|md5:)?[0-9a-f]{32,64}"
)
_ASKED = re.compile(
    r"\b(?:files?|paths?|folders?|director(?:y|ies)|modules?|links?|urls?|uri|address|addresses|"
    r"sites?|website|page|pages|hash|hashes|checksum|digest|md5|sha\d*|commit|uuid|guid|hex|"
    r"identifier|ids?|decode|encrypt|key)\b|[\w-]+/[\w./-]+\.\w+|https?://",
    re.IGNORECASE,
)
"""Prompts to which such a text may be the answer."""


def is_pointer(answer: str, prompt: str) -> bool:
    """Whether an answer is a path, a link or an identifier, which its prompt does not ask for.

    Args:
        answer: the answer.
        prompt: all messages of the prompt.
    """
    text = answer.strip()
    is_reference = any(each.fullmatch(text) for each in (_PATH, _LINK, _IDENTIFIER))
    return is_reference and not _ASKED.search(prompt)
