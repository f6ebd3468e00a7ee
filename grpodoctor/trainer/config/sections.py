"""The sections of the bundled trainer's configuration, one per concern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field, FiniteFloat, field_validator

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.algorithms.registry import check_name
from grpodoctor.trainer.section import Section


class ModelConfig(Section):
    """Which policy is trained."""

    name: str = "builtin"
    """`builtin` for the tiny character model, else a local path or a hub name."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype of the learner's weights; the built-in model is always float32.

    AdamW keeps its state in the same. With bfloat16 an update smaller than about 1/256 of a weight
    is rounded away, and at the learning rates of reinforcement learning most are: train float32
    weights with `compute=bfloat16`, or low-rank adapters, which are float32 always.
    """
    compute: Literal["weights", "bfloat16"] = "weights"
    """What matrices are multiplied in: the weights' dtype, or bfloat16 by torch's autocast."""
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d{1,2})?)$")
    """Where the model is; `auto` takes the first CUDA device if there is one, else the CPU."""
    gradient_checkpointing: bool = False
    """Keep each layer's input alone for the backward pass, and compute the rest a second time."""
    lora_rank: int = Field(0, ge=0, le=4096)
    """Rank of low-rank adapters, which alone are trained; 0 trains all weights."""
    lora_alpha: int = Field(32, ge=1)
    """Scale of the adapters: what they add is multiplied by alpha / rank."""
    lora_targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    """Names of the layers with adapters, such as `q_proj,v_proj`.

    `all-linear` means all but the output head; the fused experts of a mixture-of-experts model are
    no linear layers and stay as they are.
    """
    width: int = Field(64, ge=16, le=512, multiple_of=8)
    """Hidden size of the built-in model."""
    layers: int = Field(2, ge=1, le=12)
    """Layers of the built-in model."""
    heads: int = Field(4, ge=1, le=16)
    """Attention heads of the built-in model; twice as many must divide the width."""
    experts: int = Field(0, ge=0, le=64)
    """Experts in each layer of the built-in model, a mixture in the manner of Qwen3; 0 is dense."""
    experts_per_token: int = Field(2, ge=1, le=16)
    """Experts that each token activates; together they are as large as the dense layer."""
    warm_start_steps: int = Field(1000, ge=0, le=20_000)
    """Supervised steps before the first run of the built-in model; the result is cached."""

    @field_validator("lora_targets", mode="before")
    @classmethod
    def _as_names(cls, targets: object) -> object:
        if not isinstance(targets, str) or targets == "all-linear":
            return targets
        return tuple(name.strip() for name in targets.split(",") if name.strip())

    @field_validator("lora_targets")
    @classmethod
    def _are_some(cls, targets: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not targets:
            raise ConfigError("no layer is named", where="model.lora_targets")
        return targets


BuiltinReward = Literal["task", "math", "length", "boxed"]
"""Rewards that go by a name: the task's own verifier, math-verify, brevity, a boxed answer."""

_REWARD_NAME = r"[A-Za-z0-9_-]{1,40}"


class RewardTerm(Section):
    """One of several rewards."""

    function: str
    """`module:function`, as in `task.reward`, or `task`, `math`, `length` or `boxed`."""
    weight: FiniteFloat = 1.0
    """Of it in the sum; 0 records it and nothing else."""

    @field_validator("function")
    @classmethod
    def _is_known(cls, function: str) -> str:
        if ":" not in function:
            check_name(function, get_args(BuiltinReward), "built-in reward")
        return function


class TaskConfig(Section):
    """What it is trained on."""

    name: str = "arithmetic"
    """A built-in task; ignored when `data` is given."""
    data: str | None = None
    """JSONL or Parquet file with the columns `prompt` and `answer`."""
    heldout_data: str | None = None
    """The same for evaluation; without it the last tenth of `data` is held out."""
    reward: str | None = None
    """`module:function` called with prompts, completions and answers; the task's own otherwise."""
    rewards: dict[str, RewardTerm] = Field(default_factory=dict)
    """Several rewards by name, whose weighted sum is the reward; each is recorded by its name.

    `[task.rewards.style]` with `function` and `weight`, or a list of tables with a `name` each.
    The function of one without is the built-in one of its name: `task.rewards.length.weight=0.1`.
    """
    difficulty: int = Field(3, ge=1, le=8)
    """Size of the built-in tasks' problems: operations, digits or items."""
    verifier: Literal["last", "any", "math"] = "last"
    """Which answers of a response the reward looks at; `any` invites the policy to list many.

    `math` compares the last answer with that of a `data` file as mathematics, by math-verify: 0.5
    is 1/2. The others compare texts and numbers.
    """
    verify_seconds: float = Field(5.0, gt=0, le=600)
    """Processor time for one answer under `math`; one that takes longer counts as wrong."""
    format_weight: float = Field(0.0, ge=0, le=1)
    """Weight of the built-in tasks' format component in the reward; correctness weighs 1."""
    hedge_rate: float = Field(0.0, ge=0, le=1)
    """Share of the warm start's responses that add a second answer; what `any` can amplify."""

    @field_validator("rewards", mode="before")
    @classmethod
    def _by_name(cls, rewards: object) -> object:
        return _named_rewards(rewards)


def _named_rewards(rewards: object) -> object:
    """A list of tables as a table of tables, with the names and functions that go without saying.

    Raises:
        ConfigError: if two have the same name, or one has a name that no metric can have.
    """
    if isinstance(rewards, list | tuple):
        pairs = [_named(each) for each in rewards if isinstance(each, Mapping)]
        names = [name for name, _ in pairs]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ConfigError(
                f"two rewards are called {twice[0][:40]!r}",
                where="task.rewards",
                remedy="give each a name of its own",
            )
        rewards = dict(pairs) if len(pairs) == len(rewards) else rewards
    if not isinstance(rewards, Mapping):
        return rewards
    for name in rewards:
        if not re.fullmatch(_REWARD_NAME, str(name)):
            raise ConfigError(
                f"a reward cannot be called {str(name)[:40]!r}",
                where="task.rewards",
                remedy="name it with letters, digits, - and _",
            )
    return {
        name: {"function": name, **term} if isinstance(term, Mapping) else term
        for name, term in rewards.items()
    }


def _named(term: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    rest = {key: value for key, value in term.items() if key != "name"}
    return str(term.get("name", str(term.get("function", "")).rpartition(":")[2])), rest


class RolloutConfig(Section):
    """How the batch of responses is drawn."""

    prompts_per_batch: int = Field(16, ge=1)
    """Prompts per rollout batch."""
    group_size: int = Field(8, ge=2)
    """Responses per prompt; the group mean is the baseline, so one is not enough."""
    max_length: int = Field(28, ge=1)
    """Longest response, in tokens."""
    temperature: float = Field(1.0, gt=0, le=10)
    """Sampling temperature; the learner's log-probabilities are taken at the same."""
    dynamic_sampling: bool = False
    """Replace groups without variance in reward by fresh ones (DAPO)."""
    refill: Literal["rounds", "missing"] = "rounds"
    """How they are replaced: whole rounds, or only what is `missing` (Olmo 3's active sampling)."""
    resample_limit: int = Field(4, ge=1, le=64)
    """Most rounds of dynamic sampling per batch; then the batch is used as it is."""
    variance_of: Literal["reward", "correct"] = "reward"
    """What has to differ within a group: the reward, or which answers are right (DAPO)."""
    filter_groups: bool = False
    """Leave groups without variance in reward out of the batch and its denominators (ScaleRL)."""
    drop_duplicates: bool = False
    """Leave responses that repeat an earlier one of their group out of the loss."""


class EngineConfig(Section):
    """Which engine samples, and how far it may be from the learner."""

    kind: Literal["builtin", "vllm", "server"] = "builtin"
    """`vllm` samples with vLLM in this process, `server` with a vLLM server reached over HTTP."""
    precision: Literal["learner", "bf16", "int8", "int4"] = "learner"
    """`learner` samples from the learner itself; the others from a fake-quantised copy.

    With `vllm` it is the dtype of vLLM's weights; a server has its own, so that `learner` stays.
    """
    temperature: float | None = Field(None, gt=0, le=10)
    """A temperature of the engine's own, which the learner does not know of; none by default."""
    sync_every: int = Field(1, ge=1)
    """Steps between two weight syncs; 1 keeps the engine fresh."""
    old_logprobs: Literal["recompute", "sampler"] = "recompute"
    """Whose log-probabilities stand for the old policy in the ratio."""
    routing_replay: Literal["none", "R2", "R3"] = "none"
    """Whose experts a mixture of experts is held to in its updates.

    `R2` takes those of the learner when the batch began, `R3` those of the engine that sampled, in
    scoring too. The router learns all the same.
    """
    url: str = ""
    """Where the `server` listens, such as `http://127.0.0.1:8000`."""
    served_model: str = ""
    """The name under which the server serves the policy; empty takes the only one it has."""
    wait: float = Field(60.0, ge=0, le=3600)
    """Longest wait for the server to be ready when the run begins, in seconds."""
    timeout: float = Field(600.0, gt=0, le=86_400)
    """Longest silence of the server in the midst of a request, in seconds.

    It must be longer than sampling a whole batch takes.
    """
    sync_dir: str = ""
    """Where weights are handed over to vLLM; empty takes shared memory where there is any.

    A server must see it under the same path: on another machine, name a directory both mount.
    """
    tensor_parallel: int = Field(1, ge=1, le=64)
    """Devices that share each layer of the model with `vllm`; a server has its own setting."""
    memory_share: float = Field(0.3, gt=0, le=0.95)
    """Share of the device's memory for weights and cache with `vllm`; the learner wants the rest.

    On a CPU it is the share of the main memory.
    """
    max_model_len: int | None = Field(None, ge=2)
    """Longest prompt and response that `vllm` makes room for; the model's context by default."""

    @field_validator("url")
    @classmethod
    def _is_a_url(cls, url: str) -> str:
        parts = urlsplit(url)  # its port is a ValueError where it is no number up to 65535
        if url and not (parts.scheme in ("http", "https") and parts.hostname and parts.port != 0):
            raise ValueError("write http://HOST:PORT or https://HOST:PORT")
        return url.rstrip("/")


class CriticConfig(Section):
    """The value model that the advantage `gae` stands on; there is none with any other."""

    learning_rate: float = Field(1e-3, ge=0, le=1)
    """AdamW's learning rate; the rest of AdamW is the policy's. VAPO has twice the policy's."""
    gae_lambda: float = Field(1.0, ge=0, le=1)
    """Lambda of the returns that it learns: 1 takes them as they came, VAPO's; PPO's is 0.95."""
    value_clip: float | None = Field(None, gt=0)
    """How far a value may move on one batch before it stops being pulled; unbounded by default."""
    passes: int = Field(0, ge=0, le=100)
    """Passes over a batch in mini-batches of its own; 0 takes the policy's mini-batches."""
    pretrain_steps: int = Field(0, ge=0)
    """Training steps at the start in which it alone learns, from the whole return; VAPO has 50."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Its gradient is scaled down to this norm."""


class OptimizerConfig(Section):
    """AdamW and how often it steps."""

    learning_rate: float = Field(1e-4, ge=0, le=1)
    """Learning rate after warm-up."""
    warmup_steps: int = Field(0, ge=0)
    """Training steps over which the learning rate rises linearly."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """AdamW's first moment."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """AdamW's second moment."""
    weight_decay: float = Field(0.0, ge=0, le=1)
    """AdamW's weight decay."""
    max_grad_norm: float = Field(1.0, gt=0)
    """The gradient is scaled down to this norm."""
    updates_per_batch: int = Field(4, ge=1)
    """Optimizer steps per rollout batch (mini-batches times epochs); Lopti takes them twice."""
    epochs: int = Field(1, ge=1)
    """Passes over the batch; `updates_per_batch` is divided among them."""
    micro_batch: int = Field(0, ge=0)
    """Responses per forward pass; 0 takes a mini-batch whole. Gradients do not depend on it."""


class EvaluationConfig(Section):
    """Held-out evaluation."""

    every: int = Field(10, ge=0)
    """Steps between evaluations; 0 never evaluates."""
    prompts: int = Field(64, ge=1)
    """Held-out prompts."""
    samples: int = Field(1, ge=1)
    """Responses per prompt; more than one gives pass@k."""


class CheckpointConfig(Section):
    """Checkpoints for an exact resume."""

    every: int = Field(0, ge=0)
    """Steps between checkpoints; 0 writes one at the end only."""
    keep: int = Field(2, ge=1)
    """Checkpoints kept."""


class RecordConfig(Section):
    """What is recorded about the run."""

    enabled: bool = True
    """Recording changes no number of the training; without it there is nothing to watch."""
    depth: Literal["off", "summary", "worst", "full"] = "summary"
    """Per-token columns of the rollout files."""
    worst: int = Field(8, ge=0)
    """Responses recorded in full at depth `worst`."""
    weights_every: int = Field(1, ge=0)
    """Steps between two measurements of how far the weights moved; 0 never measures it.

    Each costs a copy of the weights and a pass over them: raise it for a large model.
    """
    experts_every: int = Field(5, ge=0)
    """Steps between two looks at the routers of a mixture of experts, from the first step on.

    Each costs two forward passes over 32 responses; 0 never looks.
    """

    def measures_experts(self, step: int) -> bool:
        """Whether the routers of a mixture of experts are measured at `step`."""
        every = self.experts_every
        return self.enabled and every > 0 and (step - 1) % every == 0


class RanksConfig(Section):
    """Several processes that train together, as `torchrun` starts them."""

    timeout: float = Field(1800.0, gt=0, le=86_400)
    """Longest wait for another rank, in seconds; then the run ends.

    It must be longer than loading the model, scoring a batch by the reward function or writing a
    checkpoint takes.
    """
