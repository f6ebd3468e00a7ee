"""A stand-in for TRL's vLLM: it samples from a copy of the model and reports log-probabilities."""

from __future__ import annotations

from typing import Any

import torch


class EngineStub:
    """The interface that `GRPOTrainer` uses of its vLLM engine.

    Args:
        trainer: the trainer; it samples from this engine from now on.
        gap: the reported log-probabilities of every third token are too high by this much, as those
            of an engine that computes with other numbers.
    """

    def __init__(self, trainer: Any, gap: float = 0.0) -> None:
        learner = trainer.model
        learner = learner.get_base_model() if hasattr(learner, "get_base_model") else learner
        with torch.random.fork_rng():  # a deep copy would share TRL's replaced forward function
            self.model = type(learner)(learner.config).eval()
        self.temperature, self.gap = trainer.temperature, gap
        self._trainer = trainer
        self.model.load_state_dict(self.learner_weights())
        trainer.use_vllm, trainer._last_loaded_step = True, -1
        trainer.vllm_generation = self

    def sync_weights(self) -> None:
        """Take the trainer's weights."""
        self.model.load_state_dict(self.learner_weights())

    def learner_weights(self) -> dict[str, torch.Tensor]:
        """The trainer's weights under the engine's names; adapters are merged, as TRL does it."""
        model = self._trainer.model
        if not hasattr(model, "merge_adapter"):
            return model.state_dict()
        model.merge_adapter()
        merged = {
            name.removeprefix("base_model.model.").replace(".base_layer", ""): each.detach().clone()
            for name, each in model.named_parameters()
            if "lora_" not in name
        }
        model.unmerge_adapter()
        return merged

    def generate(self, prompts: list[Any], **_: Any) -> tuple[Any, ...]:
        """One response per prompt, with the log-probability of each token.

        Before 1.0, the engine got texts and returned the ids of the prompts and further fields.
        """
        if not isinstance(prompts[0], str):
            return (None, *self._sampled(prompts), None)
        ids = self._trainer.processing_class(text=prompts)["input_ids"]
        return (ids, *self._sampled(ids), None, {})

    def _sampled(self, prompts: list[list[int]]) -> tuple[Any, Any]:
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(each)) + each for each in prompts])
        mask = torch.tensor([[0] * (width - len(each)) + [1] * len(each) for each in prompts])
        with torch.no_grad():
            sampled = self.model.generate(
                input_ids=ids, attention_mask=mask, do_sample=True, top_k=0,
                max_new_tokens=self._trainer.max_completion_length, temperature=self.temperature,
                return_dict_in_generate=True, output_scores=True,
                **(self._trainer.args.generation_kwargs or {}),
            )  # fmt: skip
        scores = torch.stack(sampled.scores, dim=1).log_softmax(-1)
        tokens = sampled.sequences[:, width:]
        logprobs = scores.gather(2, tokens.unsqueeze(-1)).squeeze(-1)
        logprobs = logprobs + self.gap * (tokens % 3 == 0)
        lengths = [(row.index(1) + 1 if 1 in row else len(row)) for row in tokens.tolist()]
        cut = list(zip(tokens.tolist(), logprobs.tolist(), lengths, strict=True))
        completions = [row[:length] for row, _, length in cut]
        return completions, [[[x] for x in row[:length]] for _, row, length in cut]
