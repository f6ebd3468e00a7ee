"""The canary with a real vLLM as the sampler, which loads the learner's weights while it runs.

The server computes in bfloat16 and the learner in float32, so the noise is that of real engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from grpodoctor.hooks.weight_delivery.canary import DeliveryCanary
from grpodoctor.runs.records import StepRecord
from grpodoctor.trainer.engines.vllm_engine import VllmEngine
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.model.saved_weights import checkpoint_weights
from grpodoctor.trainer.model.scoring import score
from grpodoctor.vocabulary.values import Reading, scalar
from tests.rules.scenario import Patient
from tests.trainer.engines.vllm_helpers import drawn, opened, prompts_of, save_model, served

pytestmark = pytest.mark.slow  # the trainer's own tests start such a server, too

SYNCS = 4
Sync = Callable[[VllmEngine, Policy, int], None]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(model, tmp_path_factory.mktemp("server"), "bfloat16") as url:
        yield url


def deliver(engine: VllmEngine, _policy: Policy, number: int) -> None:
    engine.sync(number)


def forget(_engine: VllmEngine, _policy: Policy, _number: int) -> None:
    """Nothing is sent."""


def drop_values(engine: VllmEngine, policy: Policy, number: int) -> None:
    """The adapters of v_proj are not merged into the sent weights."""
    dropped = [each for name, each in policy.model.named_parameters() if "v_proj.lora_B" in name]
    kept = [each.detach().clone() for each in dropped]
    with torch.no_grad():
        for each in dropped:
            each.zero_()
    engine.sync(number)
    with torch.no_grad():
        for each, value in zip(dropped, kept, strict=True):
            each.copy_(value)


def swap_rows(engine: VllmEngine, policy: Policy, number: int) -> None:
    """From the second sync on, the last layer's weights arrive in the wrong rows."""
    pairs = list(checkpoint_weights(policy.model))
    if number > 2:
        pairs = [
            (name, each.roll(1, 0) if "layers.1.mlp.up_proj" in name else each)
            for name, each in pairs
        ]
    engine._transfer(iter(pairs), number)


def train(policy: Policy, samples: object) -> None:
    """Two optimizer steps towards even tokens."""
    trained = [each for each in policy.model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-3)
    for _ in range(2):
        with torch.enable_grad():
            logits = policy.model(samples.tokens_BL).logits[:, :-1].log_softmax(-1)
            tokens = samples.tokens_BL[:, 1:, None]
            loss = -(
                logits.gather(-1, tokens)[..., 0] * ((tokens[..., 0] % 2 == 0).float() - 0.5)
            ).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def checked(model: Path, server: str, sync: Sync) -> list[dict[str, Reading]]:
    with opened(model, server, "model.lora_rank=4", "rollout.max_length=64") as (engine, policy):
        canary = DeliveryCanary(
            policy.model, lambda samples: score(policy.model, samples, 1.0).logprobs_BT
        )
        prompts = prompts_of(policy, *(f"{number}+{number}=" for number in range(4)))
        results = []
        for number in range(1, SYNCS + 1):
            if number > 1:
                sync(engine, policy, number)
            samples = drawn(engine, prompts, number)
            sampler_RT = samples.logprobs_BT.numpy()
            results.append(canary.check(samples, sampler_RT, samples.mask_BT.numpy()))
            train(policy, samples)
        return results


@pytest.mark.parametrize(
    ("sync", "code", "named"),
    [
        (deliver, None, ""),
        (forget, "SYN006", "of the learner's change since the start"),
        (drop_values, "SYN006", "of the updates of v_proj"),
        (swap_rows, "SYN007", "fit no weights of the learner"),
    ],
)
def test_what_vllm_did_not_receive_is_named(
    model: Path, server: str, sync: Sync, code: str | None, named: str
) -> None:
    results = checked(model, server, sync)
    patient = Patient([StepRecord(step, values) for step, values in enumerate(results, 1)])
    findings = patient.findings("SYN006") + patient.findings("SYN007")
    assert 0 < scalar(results[0]["delivery/gap"]) < 0.05  # bfloat16 against float32
    if code is None:
        assert findings == []
        return
    (finding,) = findings
    assert finding.code == code
    assert finding.onset_step == (3 if code == "SYN007" else 2)
    assert named in finding.summary
