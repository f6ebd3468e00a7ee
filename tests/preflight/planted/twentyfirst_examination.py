"""A twenty-fourth set: 48 mistakes, chosen from a table of places and mechanisms.

Places: training data, held-out data, prompts, template, tokenizer, special tokens, model config,
generation, reward, judge, sandbox, trainer config, batch arithmetic, adapter, resume. Mechanisms:
missing, exchanged, shifted, repeated, truncated, wrong type, unit or scale, constant, leaking,
encoding, locale, case, white space, wrong column, swallowed exception, slow, shared state, too
strict, too lenient. About a third are the kinds of earlier sets in another form. A seed draws the
halves. The author had not read the checks; the accepted statements were written before the first
run, from the list of checks in docs/preflight.md.
"""

from __future__ import annotations

import random

from tests.preflight.planted.cases import Case
from tests.preflight.planted.twentyfirst_data import data_faults
from tests.preflight.planted.twentyfirst_runs import run_faults

_SEED = 2301


def drawn_faults() -> tuple[Case, ...]:
    """Forty-eight faults, in the order of their kinds."""
    return (*data_faults(), *run_faults())


def _first_names() -> frozenset[int]:
    return frozenset(random.Random(_SEED).sample(range(48), 24))


def first_half() -> tuple[Case, ...]:
    """Twenty-four mistakes: half A."""
    chosen = _first_names()
    return tuple(case for at, case in enumerate(drawn_faults()) if at in chosen)


def second_half() -> tuple[Case, ...]:
    """Twenty-four mistakes: half B."""
    chosen = _first_names()
    return tuple(case for at, case in enumerate(drawn_faults()) if at not in chosen)
