"""Keys that resemble a setting."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from grpodoctor.frameworks.complete_config import complete_config
from grpodoctor.frameworks.misspelt_keys import misspelt_keys
from grpodoctor.frameworks.package_settings import package_settings


@pytest.mark.parametrize(
    ("key", "known", "meant"),
    [
        ("num_generation", "num_generations", True),
        ("data.train_batchsize", "data.train_batch_size", True),
        ("data.train_bacth_size", "data.train_batch_size", True),
        ("eval.train_batchsize", "data.train_batch_size", False),
        ("local_rank", "lora_rank", False),
        ("top_p", "top_k", False),
        ("vllm_max_len1", "vllm_max_len2", False),
        ("max_prompt_length", "max_length", False),
        ("min_prompt_length", "max_prompt_length", False),
    ],
)
def test_only_a_slip_is_a_misspelt_key(key: str, known: str, meant: bool) -> None:
    assert misspelt_keys({key: 1}, {known}) == ({key: known} if meant else {})


def test_settings_of_an_installed_package_are_read_without_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trl, verl = tmp_path / "trl" / "trainer", tmp_path / "verl" / "trainer" / "config"
    for folder in (trl, verl):
        folder.mkdir(parents=True)
    for package in ("trl", "verl"):
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (trl / "grpo_config.py").write_text(
        "class GRPOConfig(Base):\n    replayed_prompts: int = 1\n"
        "class Other:\n    ignored: int = 1\n"
    )
    (verl / "_generated_ppo_trainer.yaml").write_text("data:\n  sampler_class: null\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("trl", "verl"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    package_settings.cache_clear()
    assert "replayed_prompts" in package_settings("trl")
    assert "ignored" not in package_settings("trl")
    assert package_settings("verl") == {"data", "data.sampler_class"}
    config = complete_config("trl", {"num_generations": 8, "replayed_promts": 2}, {})
    assert config.misspelt == {"replayed_promts": "replayed_prompts"}
    package_settings.cache_clear()


def test_a_framework_that_is_not_installed_has_no_settings() -> None:
    assert package_settings("slime") == frozenset()
