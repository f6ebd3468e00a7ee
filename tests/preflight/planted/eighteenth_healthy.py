"""Eight sound sets of the eighteenth examination."""

from __future__ import annotations

from collections.abc import Iterator

from tests.preflight.planted import eighteenth_rewards as w
from tests.preflight.planted import eighteenth_sets as s
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import GEMMA, LLAMA

_MEDICAL = r"""
import re

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"Answer:\s*\(?([A-D])\b", solution_str)
    return float(bool(found) and found[-1] == ground_truth)
"""


def eighteenth_healthy() -> tuple[Case, ...]:
    """Eight sets without a mistake, in two halves of four."""
    return (*healthy_first(), *healthy_second())


def healthy_first() -> Iterator[Case]:
    """Four sound sets of the first half."""
    yield Case(
        name="invoices with nested fields", rows=s.json_rows(260, 9101), reward=w.JSON, framework="trl", run_config=trl(),
    )  # fmt: skip
    yield Case(
        name="verdicts in double brackets", rows=s.verdict_rows(300, 9103), reward=w.VERDICT, model=LLAMA,
    )  # fmt: skip
    yield Case(
        name="support conversations", rows=s.action_rows(300, 9105), held_out=s.action_rows(60, 9195), reward=w.ACTION, framework="trl", run_config=trl(),
    )  # fmt: skip
    yield Case(
        name="business texts with a rubric", rows=s.rubric_rows(240, 9107), reward=w.RUBRIC, model=GEMMA,
    )  # fmt: skip


def healthy_second() -> Iterator[Case]:
    """Four sound sets of the second half."""
    yield Case(
        name="medical vignettes", rows=s.medical_rows(240, 9102), reward=_MEDICAL, suffix=".parquet", framework="verl", run_config=verl(),
    )  # fmt: skip
    yield Case(
        name="functions with tests and solutions", rows=s.code_rows(120, 9104), reward=w.CODE, framework="trl", run_config=trl(),
    )  # fmt: skip
    yield Case(
        name="questions with search results", rows=s.search_rows(300, 9106), reward=w.TAGGED, suffix=".parquet", framework="verl", run_config=verl(),
    )  # fmt: skip
    yield Case(
        name="calls of three tools", rows=s.call_rows(300, 9108), reward=w.CALL,
    )  # fmt: skip
