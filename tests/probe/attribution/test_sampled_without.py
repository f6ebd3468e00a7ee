"""Settings of vLLM that act while it draws are proven by drawing without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpodoctor.probe.engines import commands
from grpodoctor.probe.engines.commands import command_of
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution import in_process
from tests.probe.attribution.cases import plain
from tests.probe.attribution.conftest import Directories, Investigate
from tests.probe.attribution.stand_in_vllm import HARMLESS
from tests.samples import sampled

PROGRAM = Path(__file__).with_name("stand_in_vllm.py")
CAUSES = {
    "speculative_config": "speculative-decoding",
    "structured_outputs": "structured-output",
    "enable_prefix_caching": "prefix-caching",
}


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the stand-in wherever vLLM would be started."""

    def command(engine: EngineSpec, request: Path) -> list[str]:
        words = [str(word) for word in command_of(engine, request)]
        return [*words[:-2], str(PROGRAM), words[-1]] if engine.engine == "vllm" else words

    monkeypatch.setattr(commands, "check_installed", lambda _: None)
    monkeypatch.setattr(in_process, "command_of", command)
    monkeypatch.setattr(in_process, "HERE", (*in_process.HERE, PROGRAM.name))


def vllm(model: Path, **options: Any) -> EngineSpec:
    return EngineSpec.of("vllm", str(model), {"threads": 1, **options})


@pytest.mark.slow
@pytest.mark.parametrize("setting", sampled(CAUSES, {"structured_outputs"}))
def test_a_setting_is_proven_by_drawing_without_it(
    at: Directories, asked: Investigate, setting: str
) -> None:
    _, found = asked(vllm(at.dense, **{setting: True}), plain(at.dense))
    assert [each.cause for each in found.causes] == [CAUSES[setting]], found
    named = found.causes[0]
    assert named.confidence == "proven"
    assert f"drawn without {setting} follow the learner" in named.summary


@pytest.mark.slow
@pytest.mark.parametrize("setting", CAUSES)
def test_a_setting_without_effect_is_not_named(
    at: Directories, asked: Investigate, setting: str
) -> None:
    harmless = vllm(at.dense, **{setting: HARMLESS})
    _, found = asked(harmless, plain(at.dense))
    assert found.causes == ()
    _, found = asked(harmless, plain(at.dense, attn_scale=2.0))
    assert CAUSES[setting] not in {each.cause for each in found.causes}


@pytest.mark.slow
def test_the_one_of_two_settings_that_has_the_fault_is_named(
    at: Directories, asked: Investigate
) -> None:
    sampler = vllm(at.dense, speculative_config=HARMLESS, structured_outputs=True)
    _, found = asked(sampler, plain(at.dense))
    assert [each.cause for each in found.causes] == ["structured-output"]
