"""The settings of Adam in frameworks that have them, read from a config and written as advice."""

from __future__ import annotations

import pytest

from grpodoctor.frameworks.settings import framework_settings
from grpodoctor.rules.catalogue import rule_of
from grpodoctor.rules.lint import lint
from grpodoctor.vocabulary.knobs import Setting

WRONG: list[tuple[str, dict[str, Setting], list[str]]] = [
    ("openrlhf", {"actor.adam.betas": "0.99 0.5"}, ["--actor.adam.betas 0.9 0.999"]),
    ("openrlhf", {"adam_betas": "0.99 0.5"}, ["--actor.adam.betas 0.9 0.999"]),
    ("openrlhf", {"actor.adam.eps": 1.0}, ["--actor.adam.eps 1e-8"]),
    ("prime-rl", {"trainer.optim.betas1": 0.99, "trainer.optim.betas2": 0.5},
     ["trainer.optim.betas1=0.9", "trainer.optim.betas2=0.999"]),
]  # fmt: skip


@pytest.mark.parametrize(("framework", "config", "lines"), WRONG)
def test_wrong_settings_are_found_and_the_advice_sets_the_same_keys(
    framework: str, config: dict[str, Setting], lines: list[str]
) -> None:
    with_rate = {**config, "actor.adam.lr": 1e-6, "trainer.optim.lr": 1e-6}
    (finding,) = lint(framework, with_rate, {}, [rule_of("CFG058")]).findings
    assert finding.remedies == ("default-adam",)
    advice = framework_settings({"default_adam": True}, framework)
    assert set(lines) <= {each.line for each in advice}
