"""The columns in which data sets keep prompts."""

from __future__ import annotations

PROMPT_COLUMNS = (
    "messages", "prompt", "question", "problem", "input", "instruction", "query", "text",
    "conversations", "conversation",
)  # fmt: skip
"""Columns that may hold the prompt, in order of preference."""
