"""The plants of `natural_draw` load and do what they state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.probe.plants import computing
from tests.probe.plants.catalogue import unseen
from tests.probe.plants.families import checkpoint
from tests.probe.plants.issue_bugs import _modules_with
from tests.probe.plants.set_checks import hidden

PLANTS = [each for each in unseen() if each.group.startswith("natural-draw")]


def test_there_are_many_families() -> None:
    assert len({each.family for each in PLANTS}) >= 20


def test_a_query_head_reads_the_key_head_of_its_number_modulo_the_count(load: Any) -> None:
    """Exchanging the middle query heads of four, with their outputs, undoes the fault."""
    engine, healthy = load("cwm"), load("cwm")
    computing.FAULTS["kv_heads_in_turn"](engine, "")
    size = healthy._model.config.head_dim
    order = torch.arange(4 * size).view(4, size)[[0, 2, 1, 3]].flatten()
    with torch.no_grad():
        for attention in _modules_with(engine, "q_proj"):
            attention.q_proj.weight.copy_(attention.q_proj.weight[order].clone())
            attention.o_proj.weight.copy_(attention.o_proj.weight[:, order].clone())
    assert torch.allclose(hidden(engine), hidden(healthy), atol=1e-5)


def test_an_old_prefix_changes_what_follows_a_prompt_but_not_whole_sequences(
    load: Any, root: Path
) -> None:
    engine = load("arcee")
    ids = torch.randint(3, 64, (2, 12), generator=torch.Generator().manual_seed(1))
    seen, plain = torch.ones_like(ids), hidden(engine)
    expected, _ = engine._split.next_logits(ids, seen, None)
    stale = checkpoint(root / "arcee-stale", "arcee", changed=0.15)
    computing.FAULTS["old_prefix"](engine, str(stale))
    logits, _ = engine._split.next_logits(ids, seen, None)
    assert (logits - expected).abs().max() > 0.05
    assert torch.equal(hidden(engine), plain)


def test_positions_count_the_padding_of_shorter_prompts_alone(load: Any) -> None:
    from contract import Processing, Response

    engine, healthy = load("opt"), load("opt")
    computing.FAULTS["positions_from_padding"](engine, "")
    given = [Response([5, 9, 11, 6], [8, 9], []), Response([5, 9], [8, 12], [])]
    long, short = engine.score(given, Processing(), ())
    plain_long, plain_short = healthy.score(given, Processing(), ())
    assert long.logprobs == pytest.approx(plain_long.logprobs, abs=1e-4)
    assert short.logprobs != pytest.approx(plain_short.logprobs, abs=0.05)
