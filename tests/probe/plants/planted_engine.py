"""The transformers engine with planted faults: `program:.../planted_engine.py?model=DIR&faults=…`.

`faults` is a list such as `window:12+log2`. The faults are written independently of attribution,
which never sees this program's options: the engine describes itself as healthy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[3]))

import engine_transformers
from contract import Processing, Response, Sampling, serve

from tests.probe.plants import (
    computing,
    eighth_draw_faults,
    engine_bugs,
    field_bugs,
    fifth_draw_faults,
    fourth_draw_faults,
    fresh,  # noqa: F401  # registers its faults
    further,
    issue_bugs,
    natural_draw,
    phase_faults,
    recurring_bugs,
    report_bugs,
    reporting,
    rewritten_kernels,
    sampling_faults,
    second_draw_faults,
    seventh_draw_faults,
    sharded,  # noqa: F401  # registers its faults
    sixth_draw_faults,
    third_draw_faults,
    third_draw_serving,
    third_draw_weights,  # noqa: F401  # registers its faults
    unseen_computing,
    unseen_serving,
    upstream_bugs,
)


class Planted:
    """A transformers engine with faults."""

    def __init__(self, engine: Any, faults: Mapping[str, str]) -> None:
        self._engine, self._faults = engine, faults
        self._settings = sampling_faults.Settings(faults)
        for name, value in faults.items():
            if name in computing.FAULTS:
                computing.FAULTS[name](engine, value)

    def describe(self) -> dict[str, Any]:
        """The healthy engine's description."""
        known = self._engine.describe() | {"name": "planted"}
        return known | ({"dtype": "float32"} if "dtype" in self._faults else {})

    def tokenise(self, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
        """As the healthy engine."""
        ids: list[list[int]] = self._engine.tokenise(prompts)
        return ids

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, want: Sequence[str]
    ) -> list[Response]:
        """Sample and report with the faults."""
        read = self._settings.prompts([list(prompt) for prompt in prompts])
        read = engine_bugs.read_prompts(self._faults, read)
        read = report_bugs.read_prompts(self._faults, read)
        read = upstream_bugs.read_prompts(self._faults, read)
        read = second_draw_faults.read_prompts(self._faults, read)
        read = third_draw_serving.read_prompts(self._faults, read)
        read = fourth_draw_faults.read_prompts(self._faults, read)
        read = fifth_draw_faults.read_prompts(self._faults, read)
        read = sixth_draw_faults.read_prompts(self._faults, read)
        read = seventh_draw_faults.read_prompts(self._faults, read)
        with self._settings.processors(self._engine), self._reported_over():
            settings = self._settings.sampling(sampling)
            settings = third_draw_serving.settings(settings, self._faults)
            drawn = unseen_serving.drawn(self._engine, read, settings, want, self._faults)
        if self._settings.is_raw:
            drawn = self._engine.score(drawn, Processing(sampling.temperature), want)
        drawn = further.changed_responses(self._faults, drawn)
        drawn = engine_bugs.drawn(self._engine, read, sampling, want, drawn, self._faults)
        drawn = unseen_serving.reported(drawn, self._raw, self._faults)
        drawn = field_bugs.reported(drawn, self._raw, self._faults)
        drawn = report_bugs.reported(drawn, self._faults)
        drawn = issue_bugs.reported(drawn, self._faults)
        drawn = natural_draw.reported(drawn, self._raw, self._faults)
        drawn = second_draw_faults.reported(drawn, self._raw, sampling.temperature, self._faults)
        drawn = third_draw_serving.reported(drawn, self._faults)
        drawn = fifth_draw_faults.reported(drawn, self._faults)
        drawn = sixth_draw_faults.reported(drawn, self._faults)
        for response in drawn:
            response.prompt_ids = list(prompts[response.prompt])
        return reporting.spoilt(drawn, self._faults)

    def _raw(self, responses: Sequence[Response]) -> list[Response]:
        """The responses with the values of the model at temperature 1."""
        scored: list[Response] = self._engine.score(responses, Processing(), ())
        return scored

    def score(
        self, responses: Sequence[Response], processing: Processing, want: Sequence[str]
    ) -> list[Response]:
        """Score with the faults."""
        if "ignores_temperature" in self._faults:
            processing = replace(processing, temperature=1.0)
        processing = unseen_serving.processing(processing, self._faults)
        processing = third_draw_serving.processing(processing, self._faults)
        originals, responses = responses, self._read(responses)
        with self._reported_over():
            scored = self._engine.score(responses, processing, want)
        scored = [
            replace(each, prompt_ids=original.prompt_ids)
            for each, original in zip(scored, originals, strict=True)
        ]
        scored = third_draw_serving.scored(scored, self._faults)
        scored = fourth_draw_faults.scored(scored, self._faults)
        scored = sixth_draw_faults.scored(scored, self._faults)
        return reporting.spoilt(scored, self._faults)

    @contextmanager
    def _reported_over(self) -> Iterator[None]:
        sets = (further, engine_bugs, issue_bugs, upstream_bugs, recurring_bugs)
        with ExitStack() as stack:
            for each in sets:
                stack.enter_context(each.reported_over(self._faults))
            yield

    def _read(self, responses: Sequence[Response]) -> Sequence[Response]:
        """The responses after the prompts that are really read."""
        if "last_lost" not in self._faults:
            responses = second_draw_faults.read(responses, self._faults)
            responses = third_draw_serving.read(responses, self._faults)
            responses = fourth_draw_faults.read(responses, self._faults)
            responses = eighth_draw_faults.read(responses, self._faults)
            return unseen_serving.read(responses, self._faults)
        return [replace(each, prompt_ids=each.prompt_ids[:-1]) for each in responses]

    def close(self) -> None:
        """Free the model."""
        self._engine.close()
        computing.restore()


def load(model: str, options: Mapping[str, Any]) -> Planted:
    """The engine with the faults of the option `faults`."""
    rest = dict(options)
    listed = [fault.partition(":") for fault in str(rest.pop("faults")).split("+") if fault]
    faults = {name: value for name, _, value in listed}
    sets = (computing.ATTENTION, further.NEED_EAGER, unseen_computing.NEED_EAGER)
    if faults.keys() & engine_bugs.NEED_EAGER.union(
        field_bugs.NEED_EAGER,
        eighth_draw_faults.NEED_EAGER,
        fifth_draw_faults.NEED_EAGER,
        fourth_draw_faults.NEED_EAGER,
        natural_draw.NEED_EAGER,
        phase_faults.NEED_EAGER,
        recurring_bugs.NEED_EAGER,
        rewritten_kernels.NEED_EAGER,
        seventh_draw_faults.NEED_EAGER,
        sixth_draw_faults.NEED_EAGER,
        third_draw_faults.NEED_EAGER,
        *sets,
    ):
        rest["attention"] = "eager"
    if "dtype" in faults:
        rest["dtype"] = faults["dtype"]
    return Planted(engine_transformers.load(model, rest), faults)


if __name__ == "__main__":
    serve(load)
