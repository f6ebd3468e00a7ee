"""The two model directories have different architecture settings."""

from __future__ import annotations

import json
from typing import Any

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.engine_files import read_config
from grpodoctor.probe.attribution.engine_variants import model_path, with_model
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tensors import link_files, write_once
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.inputs.engine_spec import EngineSpec

_IRRELEVANT = frozenset(
    [
        *("_name_or_path", "architectures", "auto_map", "bos_token_id", "chunk_size_feed_forward"),
        *("dtype", "eos_token_id", "id2label", "initializer_range", "label2id", "tokenizer_class"),
        *("output_attentions", "output_hidden_states", "pad_token_id", "quantization_config"),
        *("router_aux_loss_coef", "torch_dtype", "transformers_version", "use_cache"),
    ]
)
"""Keys that do not affect log-probabilities, or that other causes examine."""
_MOST_KEYS = 5


class ModelConfig(Cause):
    """Proven by running the learner's weights with the sampler's configuration."""

    id = "model-config"
    title = "The two models are configured differently"
    remedies = (
        "Give both engines the same config.json. One side changed or overrides a key such as "
        "rope_theta, a norm's epsilon or a sliding window, or lost it in a conversion.",
    )
    is_surrogate = True
    when = "gap"

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The two configurations differ in some keys."""
        keys = _differing(*experiments.configs())
        return Hypothesis(0.8, {"keys": ",".join(keys)}) if keys else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Run the learner's weights with the sampler's values, all at once, then one by one."""
        keys = str(hypothesis.facts["keys"]).split(",")
        theirs, ours = experiments.configs()
        after = experiments.vary(variant, learner=self._configured(experiments, variant, keys))
        causing = keys
        if 1 < len(keys) <= _MOST_KEYS and after.gap < variant.gap:
            gaps = {
                key: experiments.vary(
                    variant, learner=self._configured(experiments, variant, [key])
                ).gap
                for key in keys
            }
            causing = [key for key in keys if gaps[key] < 0.9 * variant.gap] or keys
        details = tuple(
            f"{key}: sampler {_shown(theirs.get(key))}, learner {_shown(ours.get(key))}"
            for key in causing
        )
        return ExperimentResult(
            summary=f"with the sampler's {', '.join(causing)}, the learner agrees: {details[0]}",
            after=after,
            details=details,
        )

    def _configured(
        self, experiments: Experiments, variant: Variant, keys: list[str]
    ) -> EngineSpec:
        """The learner with some of the sampler's settings, in a directory of links."""
        learner = variant.setup.learner
        source = model_path(learner)
        (theirs, _), config = experiments.configs(), read_config(source)
        for key in keys:
            if key in theirs:
                config[key] = theirs[key]
            else:
                config.pop(key, None)
        folder = experiments.scratch(f"config-{'-'.join(keys)}")
        link_files(source, folder, without=("config.json",))
        write_once(folder / "config.json", json.dumps(config).encode())
        return with_model(learner, folder)


def _differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    if not one or not other or one.get("model_type") != other.get("model_type"):
        return []
    keys = sorted((set(one) | set(other)) - _IRRELEVANT)
    return [key for key in keys if one.get(key) != other.get(key)]


def _shown(value: Any) -> str:
    return "absent" if value is None else json.dumps(value)[:60]
