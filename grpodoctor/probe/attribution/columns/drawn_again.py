"""Whether responses that the sampler draws without a setting agree with the learner."""

from __future__ import annotations

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.inputs.engine_spec import Option


def agrees_without(
    experiments: Experiments, variant: Variant, option: str, off: Option | None
) -> bool:
    """Whether other responses, drawn without an option of vLLM, agree with the learner.

    Args:
        experiments: of the case.
        variant: the gap.
        option: the option of the sampler; the caller knows that it is on.
        off: the value that turns it off; None if it is off when it is not given.

    Raises:
        BudgetSpentError: if the time budget is used up.
    """
    case = experiments.case
    if case.sampler.engine != "vllm" or variant.setup.swapped:
        return False
    try:
        tokens = experiments.sampled_again(case.sampler.with_options(**{option: off}))
    except EngineError:
        return False
    return not experiments.is_loud(tokens.gap)
