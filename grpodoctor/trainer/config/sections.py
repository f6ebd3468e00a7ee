"""The sections of the bundled trainer's configuration, one per concern.

Sections that only one family of algorithms reads are in that family's package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field, FiniteFloat, SerializeAsAny, field_validator

from grpodoctor.errors import ConfigError
from grpodoctor.support.suggestions import check_name
from grpodoctor.trainer.algorithms.advantages.settings import AdvantageConfig
from grpodoctor.trainer.algorithms.corrections.settings import CorrectionConfig
from grpodoctor.trainer.algorithms.filters.difficulty import DifficultyConfig
from grpodoctor.trainer.algorithms.losses.settings import LossConfig
from grpodoctor.trainer.algorithms.losses.token_level.ppo_clip import PpoClip
from grpodoctor.trainer.algorithms.reweightings.settings import ReweightingConfig
from grpodoctor.trainer.algorithms.shaping.repetition import RepetitionConfig
from grpodoctor.trainer.algorithms.shaping.soft_overlong import OverlongConfig
from grpodoctor.trainer.config_section import ConfigSection

MAX_STEPS = 1_000_000_000
"""Upper bound of all settings that count training steps."""


class ModelConfig(ConfigSection):
    """The policy to train."""

    name: str = "builtin"
    """`builtin` for the tiny character model, otherwise a local path or a Hugging Face Hub name."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype of the learner's weights; the built-in model is always float32.

    AdamW keeps its state in the same dtype. With bfloat16, updates smaller than about 1/256 of a
    weight are rounded away, which at RL learning rates are most updates. Train float32 weights with
    `compute=bfloat16`, or LoRA adapters, which are always float32.
    """
    compute: Literal["weights", "bfloat16"] = "weights"
    """Dtype of matrix multiplications: the weights' dtype, or bfloat16 by torch autocast."""
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d{1,2})?)$")
    """Device of the model; `auto` takes the first CUDA device, or the CPU without one."""
    gradient_checkpointing: bool = False
    """Keep only each layer's input for the backward pass and recompute the rest."""
    lora_rank: int = Field(0, ge=0, le=4096)
    """Rank of LoRA adapters, which are then the only trained weights; 0 trains all weights."""
    lora_alpha: int = Field(32, ge=1, le=1_000_000)
    """LoRA alpha: the adapters' output is multiplied by alpha / rank."""
    lora_targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    """Names of the layers with adapters, such as `q_proj,v_proj`.

    `all-linear` means all linear layers except the output head. The fused experts of a
    mixture-of-experts model are not linear layers and stay unchanged.
    """
    width: int = Field(64, ge=16, le=512, multiple_of=8)
    """Hidden size of the built-in model."""
    layers: int = Field(2, ge=1, le=12)
    """Layers of the built-in model."""
    heads: int = Field(4, ge=1, le=16)
    """Attention heads of the built-in model; the width must be a multiple of twice this number."""
    experts: int = Field(0, ge=0, le=64)
    """Experts per layer of the built-in model, as in Qwen3; 0 is dense."""
    experts_per_token: int = Field(2, ge=1, le=16)
    """Experts that each token activates; together they are as large as the dense layer."""
    warm_start_steps: int = Field(1000, ge=0, le=20_000)
    """Supervised steps before the first run of the built-in model; the result is cached."""
    initial_seed: int = Field(0, ge=0, le=2**31 - 1)
    """Seed of the built-in model's weights before the warm start. Runs that should differ in their
    reinforcement learning alone have the same."""

    @field_validator("lora_targets", mode="before")
    @classmethod
    def _split_names(cls, targets: object) -> object:
        if not isinstance(targets, str) or targets == "all-linear":
            return targets
        return tuple(name.strip() for name in targets.split(",") if name.strip())

    @field_validator("lora_targets")
    @classmethod
    def _refuse_empty(cls, targets: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not targets:
            raise ConfigError(
                "no layer is named",
                where="model.lora_targets",
                remedy="name layers such as q_proj,v_proj, or use all-linear",
            )
        return targets


BuiltinReward = Literal["task", "math", "length", "boxed"]
"""Built-in rewards: the task's own verifier, math-verify, brevity, a boxed answer."""

_REWARD_NAME = r"[A-Za-z0-9_-]{1,40}"


class RewardTerm(ConfigSection):
    """One of several rewards."""

    function: str
    """A function as in `task.reward`, or `task`, `math`, `length` or `boxed`."""
    weight: FiniteFloat = 1.0
    """Weight in the sum; 0 only records the reward."""

    @field_validator("function")
    @classmethod
    def _is_known(cls, function: str) -> str:
        if ":" not in function:
            check_name(function, get_args(BuiltinReward), "built-in reward")
        return function


class TaskConfig(ConfigSection):
    """The prompts and rewards to train on."""

    name: str = "arithmetic"
    """A built-in task; ignored if `data` is set."""
    data: str | None = None
    """JSONL or Parquet file with the columns `prompt` and `answer`."""
    heldout_data: str | None = None
    """The same for evaluation; by default the last tenth of `data` is held out."""
    reward: str | None = None
    """Reward function, as `FILE.py:function` or `module:function`; the task's own by default.

    Its parameters are `(prompts, completions, answers)`, or those of a TRL or verl reward.
    """
    reward_seconds: float = Field(600.0, gt=0, le=86_400)
    """Time limit of a reward function for one batch, on the clock."""
    rewards: dict[str, RewardTerm] = Field(default_factory=dict)
    """Several rewards by name; their weighted sum is the reward, and each is recorded by name.

    `[task.rewards.style]` with `function` and `weight`, or a list of tables with a `name` each. If
    `function` is omitted, the name is that of a built-in reward: `task.rewards.length.weight=0.1`.
    """
    difficulty: int = Field(3, ge=1, le=8)
    """Size of the built-in tasks' problems: operations, digits or items."""
    verifier: Literal["last", "any", "math"] = "last"
    """Which answer of a response the reward checks; `any` invites the policy to list many.

    `math` compares the last answer with that of a `data` file as mathematics, using math-verify:
    0.5 equals 1/2. The others compare text and numbers.
    """
    verify_seconds: float = Field(5.0, gt=0, le=600)
    """Processor time limit per answer for `math`, in seconds; a slower answer counts as wrong."""
    format_weight: float = Field(0.0, ge=0, le=1)
    """Weight of the built-in tasks' format component in the reward; correctness weighs 1."""
    hedge_rate: float = Field(0.0, ge=0, le=1)
    """Fraction of warm-start responses that add a second answer, which `any` can reinforce."""

    @field_validator("rewards", mode="before")
    @classmethod
    def _by_name(cls, rewards: object) -> object:
        return _named_rewards(rewards)


def _named_rewards(rewards: object) -> object:
    """A list of tables as a table of tables, with default names and functions filled in.

    Raises:
        ConfigError: if two rewards have the same name, or a name is not valid in a metric name.
    """
    if isinstance(rewards, list | tuple):
        pairs = [_named(term) for term in rewards if isinstance(term, Mapping)]
        names = [name for name, _ in pairs]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise ConfigError(
                f"two rewards are named {repeated[0][:40]!r}",
                where="task.rewards",
                remedy="give each reward its own name",
            )
        rewards = dict(pairs) if len(pairs) == len(rewards) else rewards
    if not isinstance(rewards, Mapping):
        return rewards
    for name in rewards:
        if not re.fullmatch(_REWARD_NAME, str(name)):
            raise ConfigError(
                f"a reward cannot be named {str(name)[:40]!r}",
                where="task.rewards",
                remedy="use letters, digits, - and _",
            )
    return {
        name: {"function": name, **term} if isinstance(term, Mapping) else term
        for name, term in rewards.items()
    }


def _named(term: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    rest = {key: value for key, value in term.items() if key != "name"}
    return str(term.get("name", str(term.get("function", "")).rpartition(":")[2])), rest


class RolloutConfig(ConfigSection):
    """How a batch of responses is sampled."""

    prompts_per_batch: int = Field(16, ge=1, le=1_000_000)
    """Prompts per rollout batch."""
    group_size: int = Field(8, ge=2, le=100_000)
    """Responses per prompt; at least two, because the group mean is the baseline."""
    max_length: int = Field(28, ge=1, le=10_000_000)
    """Maximum response length, in tokens."""
    temperature: float = Field(1.0, gt=0, le=10)
    """Sampling temperature; the learner's log-probabilities use the same."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample from the most likely tokens that together have this probability; 1 keeps all.

    The sampler reports log-probabilities of the truncated distribution; the learner scores with the
    whole vocabulary. The mismatch is real and is recorded.
    """
    top_k: int = Field(0, ge=0, le=10_000_000)
    """Sample from this many most likely tokens; 0 keeps all."""
    dynamic_sampling: bool = False
    """Replace groups without reward variance by new ones (DAPO)."""
    refill: Literal["rounds", "missing"] = "rounds"
    """How to replace them: whole rounds, or only `missing` groups (Olmo 3's active sampling)."""
    resample_limit: int = Field(4, ge=1, le=64)
    """Maximum rounds of dynamic sampling per batch; then the batch is used as it is."""
    variance_of: Literal["reward", "correct"] = "reward"
    """What must differ within a group: the reward, or the correctness of the answers (DAPO)."""
    filter_groups: bool = False
    """Drop groups without reward variance from the batch and its denominators (ScaleRL)."""
    drop_duplicates: bool = False
    """Mask responses that repeat an earlier response of their group in the loss."""

    @property
    def truncates_distribution(self) -> bool:
        """Whether some tokens can never be sampled."""
        return self.top_p < 1 or self.top_k > 0


class EngineConfig(ConfigSection):
    """The sampling engine, and how far it may differ from the learner."""

    kind: Literal["builtin", "vllm", "server"] = "builtin"
    """`vllm` samples with vLLM in this process, `server` with a vLLM server over HTTP."""
    precision: Literal["learner", "bf16", "int8", "int4"] = "learner"
    """`learner` samples from the learner itself, the others from a fake-quantized copy.

    With `vllm` it is the dtype of vLLM's weights. A server has its own dtype; keep `learner`.
    """
    temperature: float | None = Field(None, gt=0, le=10)
    """Temperature of the engine if it differs from the learner's, to provoke a mismatch."""
    sync_every: int = Field(1, ge=1, le=MAX_STEPS)
    """Steps between two weight syncs; 1 keeps the engine on-policy."""
    old_logprobs: Literal["recompute", "sampler"] = "recompute"
    """Source of the old policy's log-probabilities in the ratio."""
    routing_replay: Literal["none", "R2", "R3"] = "none"
    """Experts that a mixture-of-experts learner must use in its updates.

    `R2` replays the learner's experts from the start of the batch. `R3` replays the sampling
    engine's, in scoring too. The router is trained in either case.
    """
    url: str = ""
    """Address of the `server`, such as `http://127.0.0.1:8000`."""
    served_model: str = ""
    """Name under which the server serves the policy; empty takes the only one."""
    wait: float = Field(60.0, ge=0, le=3600)
    """Maximum wait for the server at the start of the run, in seconds."""
    timeout: float = Field(600.0, gt=0, le=86_400)
    """Maximum time without data from the server during a request, in seconds.

    It must be longer than sampling a whole batch takes.
    """
    sync_dir: str = ""
    """Folder through which vLLM receives weights; if empty, shared memory is used where it exists.

    A server must see it under the same path. For another machine, use a folder that both mount.
    """
    tensor_parallel: int = Field(1, ge=1, le=64)
    """Tensor-parallel size of `vllm`; a server has its own setting."""
    memory_share: float = Field(0.3, gt=0, le=0.95)
    """Fraction of device memory for vLLM's weights and cache; the learner needs the rest.

    On a CPU it is the fraction of main memory.
    """
    max_model_len: int | None = Field(None, ge=2, le=10_000_000)
    """Maximum length of prompt plus response for `vllm`; by default the model's context length."""

    @field_validator("url")
    @classmethod
    def _is_a_url(cls, url: str) -> str:
        parts = urlsplit(url)  # `port` raises ValueError unless it is a number up to 65535
        if url and not (parts.scheme in ("http", "https") and parts.hostname and parts.port != 0):
            raise ValueError("write http://HOST:PORT or https://HOST:PORT")
        return url.rstrip("/")


class CriticConfig(ConfigSection):
    """The value model of the advantage `gae`; other advantages have none."""

    learning_rate: float = Field(1e-3, ge=0, le=1)
    """AdamW learning rate; other AdamW settings are the policy's. VAPO uses twice the policy's."""
    gae_lambda: float = Field(1.0, ge=0, le=1)
    """Lambda of the critic's target returns: 1 is the observed return (VAPO); PPO uses 0.95."""
    value_clip: float | None = Field(None, gt=0)
    """Largest change of a value on one batch before its gradient stops; unbounded by default."""
    passes: int = Field(0, ge=0, le=100)
    """Passes over a batch in separate mini-batches; 0 uses the policy's mini-batches."""
    pretrain_steps: int = Field(0, ge=0, le=MAX_STEPS)
    """Initial steps in which only the critic learns, from the observed return; VAPO uses 50."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradient clipping norm."""


class OptimizerConfig(ConfigSection):
    """AdamW and the number of updates."""

    learning_rate: float = Field(1e-4, ge=0, le=1)
    """Learning rate after warmup."""
    warmup_steps: int = Field(0, ge=0, le=MAX_STEPS)
    """Training steps of linear learning-rate warmup."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate from the end of the warmup to the end of the run.

    A resumed run with more steps follows the schedule of the new number of steps.
    """
    final_learning_rate: float = Field(0.0, ge=0, le=1)
    """Learning rate that the schedules `linear` and `cosine` would reach after the last step."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """AdamW beta1."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """AdamW beta2."""
    epsilon: float = Field(1e-8, gt=0, le=1)
    """AdamW epsilon: added to the root of the second moment."""
    weight_decay: float = Field(0.0, ge=0, le=1)
    """AdamW weight decay."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradient clipping norm."""
    updates_per_batch: int = Field(4, ge=1, le=1_000_000)
    """Optimizer steps per rollout batch (mini-batches times epochs); Lopti doubles them."""
    epochs: int = Field(1, ge=1, le=10_000)
    """Passes over the batch; `updates_per_batch` is divided among them."""
    micro_batch: int = Field(0, ge=0, le=1_000_000)
    """Responses per forward pass; 0 uses the whole mini-batch. It does not change the gradients."""


class EvaluationConfig(ConfigSection):
    """Held-out evaluation."""

    every: int = Field(10, ge=0, le=MAX_STEPS)
    """Steps between evaluations; 0 disables them."""
    prompts: int = Field(64, ge=1, le=1_000_000)
    """Held-out prompts."""
    samples: int = Field(1, ge=1, le=10_000)
    """Responses per prompt; more than one gives pass@k."""
    temperature: float = Field(1.0, ge=0, le=10)
    """Sampling temperature of the evaluation, independent of the rollout's; 0 is greedy.

    A change of `rollout.temperature` therefore does not change the held-out measure.
    """


class CheckpointConfig(ConfigSection):
    """Checkpoints for an exact resume."""

    every: int = Field(0, ge=0, le=MAX_STEPS)
    """Steps between checkpoints; 0 writes only the last one."""
    keep: int = Field(2, ge=1, le=1_000_000)
    """Number of checkpoints to keep."""


class RecordConfig(ConfigSection):
    """What is recorded about the run."""

    enabled: bool = True
    """Record the run; recording does not change the training, and `watch` needs it."""
    depth: Literal["off", "summary", "worst", "full"] = "summary"
    """Responses that have per-token columns in the rollout files."""
    worst: int = Field(8, ge=0, le=1_000_000)
    """Number of responses recorded in full with `depth=worst`."""
    weights_every: int = Field(1, ge=0, le=MAX_STEPS)
    """Steps between two measurements of the weight change; 0 disables them.

    Each costs a copy of the weights and a pass over them; raise it for a large model.
    """
    experts_every: int = Field(5, ge=0, le=MAX_STEPS)
    """Steps between two measurements of expert routing, starting with the first step; 0 disables.

    Each costs two forward passes over 32 responses.
    """

    def measures_experts(self, step: int) -> bool:
        """Whether the routers of a mixture of experts are measured at `step`."""
        every = self.experts_every
        return self.enabled and every > 0 and (step - 1) % every == 0


class RanksConfig(ConfigSection):
    """Several training processes, as started by `torchrun`."""

    timeout: float = Field(1800.0, gt=0, le=86_400)
    """Maximum wait for another rank, in seconds; then the run ends.

    It must be longer than loading the model, scoring a batch by the reward function or writing a
    checkpoint takes.
    """


class AllSections(ConfigSection):
    """Every setting of a training run, without the checks across sections."""

    steps: int = Field(100, ge=1, le=MAX_STEPS)
    """Training steps, one rollout batch each."""
    seed: int = Field(0, ge=0, le=2**63 - 1)
    """Seed of prompts, sampling and initialization."""
    threads: int = Field(0, ge=0, le=1024)
    """Torch threads; 0 keeps torch's default."""
    model: ModelConfig = ModelConfig()
    task: TaskConfig = TaskConfig()
    rollout: RolloutConfig = RolloutConfig()
    engine: EngineConfig = EngineConfig()
    overlong: OverlongConfig = OverlongConfig()
    repetition: RepetitionConfig = RepetitionConfig()
    difficulty: DifficultyConfig = DifficultyConfig()
    advantage: AdvantageConfig = AdvantageConfig()
    critic: CriticConfig = CriticConfig()
    reweighting: ReweightingConfig = ReweightingConfig()
    correction: CorrectionConfig = CorrectionConfig()
    loss: SerializeAsAny[LossConfig] = PpoClip()
    optimizer: OptimizerConfig = OptimizerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    record: RecordConfig = RecordConfig()
    ranks: RanksConfig = RanksConfig()
