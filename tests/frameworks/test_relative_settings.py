"""Settings that a table of knobs writes relative to their present value."""

from __future__ import annotations

import pytest

from grpodoctor.frameworks.registry import configurable_frameworks
from grpodoctor.frameworks.relative_settings import with_values
from grpodoctor.frameworks.settings import framework_settings
from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.vocabulary.knobs import Setting


def lines(framework: str, config: dict[str, Setting]) -> list[str]:
    written = framework_settings(remedy_of("lower-gpu-memory").restart_with, framework)
    return [line.line for line in with_values(written, config)]


def test_values_are_computed_from_the_config() -> None:
    config: dict[str, Setting] = {
        "max_tokens_per_gpu": 9217,
        "sglang_mem_fraction_static": 0.7,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
    }
    slime, trl = lines("slime", config), lines("trl", config)
    assert "--max-tokens-per-gpu 4608" in slime
    assert "--sglang-mem-fraction-static 0.6" in slime
    assert "gradient_accumulation_steps=8" in trl


def test_an_unknown_value_gives_an_instruction_in_words() -> None:
    slime = lines("slime", {"sglang_mem_fraction_static": 0.05})
    assert any(line.startswith("Halve --max-tokens-per-gpu (requires ") for line in slime)
    assert any(line.startswith("Lower --sglang-mem-fraction-static by 0.1") for line in slime)
    product = "Multiply gradient_accumulation_steps by the present per_device_train_batch_size."
    assert product in lines("trl", {})


@pytest.mark.parametrize("value", [None, [8192], True, 1, float("nan"), float("inf")])
def test_a_value_that_cannot_be_halved_gives_an_instruction(value: Setting) -> None:
    assert any(line.startswith("Halve") for line in lines("slime", {"max_tokens_per_gpu": value}))


def test_a_large_count_keeps_its_digits() -> None:
    slime = lines("slime", {"max_tokens_per_gpu": 2097154})
    assert any(line.startswith("--max-tokens-per-gpu 1048577") for line in slime)


def test_no_framework_shows_a_placeholder_for_memory() -> None:
    for framework in configurable_frameworks():
        assert not any("<" in line for line in lines(framework.name, {}))
