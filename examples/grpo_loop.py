"""A GRPO loop in plain torch, instrumented with grpodoctor.

    python examples/grpo_loop.py runs/loop 200
    grpodoctor watch runs/loop --apply safe      # in another terminal

The model learns to count up from the token of its prompt.
"""

import argparse

import torch
from torch.distributions import Categorical
from torch.nn.utils import clip_grad_norm_
from transformers import Qwen2Config, Qwen2ForCausalLM

import grpodoctor

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("run_dir", nargs="?", default="runs/loop", help="directory of the run")
parser.add_argument("steps", nargs="?", type=int, default=100)
given = parser.parse_args()
groups, size, length, clip = 8, 8, 6, 0.2
torch.manual_seed(0)
model = Qwen2ForCausalLM(
    Qwen2Config(vocab_size=16, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                num_attention_heads=2, num_key_value_heads=2)
)  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)


def learning_rate() -> float:
    """The current learning rate."""
    return optimizer.param_groups[0]["lr"]


def set_learning_rate(value: float) -> None:
    """Change it from the next update on."""
    optimizer.param_groups[0]["lr"] = value


doctor = grpodoctor.Doctor(given.run_dir, model="tiny Qwen2", seed=0)
doctor.knob("learning_rate", learning_rate, set_learning_rate, bounds=(0, 1e-2))
with doctor:
    for number in range(given.steps):
        with doctor.step(number) as step:
            prompts = torch.randint(16, (groups, 1)).repeat_interleave(size, dim=0)
            sequences, sampler_logprobs = prompts, []
            for _ in range(length):
                with torch.no_grad():
                    policy = Categorical(logits=model(sequences).logits[:, -1])
                token = policy.sample()
                sampler_logprobs.append(policy.log_prob(token))
                sequences = torch.cat([sequences, token[:, None]], dim=1)
            tokens = sequences[:, 1:]
            rewards = (tokens == (sequences[:, :-1] + 1) % 16).float().mean(dim=1)
            grouped = rewards.view(groups, size)
            centred = grouped - grouped.mean(dim=1, keepdim=True)
            advantages = (centred / (grouped.std(dim=1, keepdim=True) + 1e-4)).view(-1, 1)
            step.rollouts(tokens=tokens, mask=torch.ones_like(tokens), rewards=rewards,
                          groups=size, advantages=advantages[:, 0],
                          sampler_logprobs=torch.stack(sampler_logprobs, dim=1))  # fmt: skip
            old_logprobs = None
            for _ in range(2):
                logits = model(sequences).logits[:, :-1]
                logprobs = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
                if old_logprobs is None:
                    old_logprobs = logprobs.detach()
                    step.logits(logits)
                ratio = (logprobs - old_logprobs).exp()
                clipped = ratio.clamp(1 - clip, 1 + clip)
                loss = -torch.min(ratio * advantages, clipped * advantages).mean()
                optimizer.zero_grad()
                loss.backward()
                grad_norm = clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                step.update(loss=loss, grad_norm=grad_norm, learning_rate=learning_rate(),
                            logprobs=logprobs, clip_low=clip, clip_high=clip)  # fmt: skip
print(doctor.report())
