"""Runs the engines of attribution's experiments and reads their output."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.case import Case
from grpodoctor.probe.attribution.edit_effects import EffectMemory
from grpodoctor.probe.attribution.edits import (
    EditFamily,
    Edits,
    as_json,
    parse_families,
    parse_tensors,
)
from grpodoctor.probe.attribution.engine_files import read_config, read_ids
from grpodoctor.probe.attribution.engine_variants import config_overrides, model_path
from grpodoctor.probe.attribution.exact_responses import effective_gap
from grpodoctor.probe.attribution.found_weights import FoundWeights
from grpodoctor.probe.attribution.rounding import (
    Rounding,
    RoundingFlips,
    coarser_of,
    in_precision,
    rounding_between,
    usual_rounding,
)
from grpodoctor.probe.attribution.some_responses import (
    prompts_behind,
    spread,
    write_behind,
    write_some,
)
from grpodoctor.probe.attribution.tokens import Experts, Floats, Integers, Tokens
from grpodoctor.probe.attribution.variant import Setup, Variant
from grpodoctor.probe.contract import Processing
from grpodoctor.probe.controls.expert_replay import replay_job
from grpodoctor.probe.engines.jobs import (
    JobRunner,
    SampleJob,
    ScoreJob,
    TokenizeJob,
    Want,
    WhatIfsJob,
    computes_in,
)
from grpodoctor.probe.engines.shards import read_shards
from grpodoctor.probe.engines.store import content_key, rollouts_key
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.severity import EXACT, QUIET

_PART_TOKENS = 64_000
_SCREEN_TOKENS = 512
"""Tokens on which the many what-if edits are tried first; the best ones are tried on the part."""
MOST_EDIT_PASSES = 3000
"""Passes of edits after which no further search of edits begins: without a bound, each of several
first causes of an unknown gap is followed by as many passes as the first one."""
_MOST_KNOWN_PASSES = 1500
"""The same while generic edits wait: they must still have their turn."""
_FEWEST, _MOST = 64, 256
"""Bounds on the number of responses in an experiment."""
_MOST_SCORES_IN_MEMORY = 8
_COLUMNS: tuple[Want, ...] = ("entropy", "ranks", "temperatures")


@dataclass(frozen=True, slots=True)
class _Scores:
    """An engine's log-probabilities of responses, and the folder with its experts."""

    logprobs_N: Floats
    lengths_B: Integers
    folder: Path


class Experiments:
    """Runs experiments on a part of a case's responses; scores each job once."""

    def __init__(self, runner: JobRunner, case: Case) -> None:
        self.runner, self.case = runner, case
        self.found = FoundWeights(case)
        self.rollouts = runner.part_of(case.rollouts, self._responses())
        self.named: set[str] = set()
        """Ids of the causes named so far."""
        self.excluded: dict[str, float] = {}
        """What-if edits that were tried, with the smallest share of the gap that each left."""
        self.effects = EffectMemory()
        """What edits did in the first setup in which they were tried."""
        self.tries_generic = True
        """Whether searches of edits end with generic ones. The known kinds are tried on top of each
        other first: a pair of them costs less, and says more, than a generic edit."""
        self.edit_passes = 0
        """Passes that edits took so far."""
        self.generic_searches: set[str] = set()
        """The setups of this gap's remainders for which generic edits were tried."""
        self.pair_searches: set[str] = set()
        """The setups in which two changes were searched together."""
        self.locations: dict[tuple[str, int], Any] = {}
        """The places to which the differences point, by setup and number of tokens."""
        self._folders: dict[tuple[str, ScoreJob], Path] = {}
        """The scores of each job. A search has hundreds: their numbers stay on disk."""
        self._read_scores = lru_cache(maxsize=_MOST_SCORES_IN_MEMORY)(self._scores_in)
        self._responses_of_part = 0
        """Responses of the part; known after the first scoring."""
        self.left_out: RoundingFlips | None = None
        """Flips by rounding, if the search is limited to the other tokens."""

    def _responses(self) -> int:
        per_response = self.case.comparison.tokens / max(self.case.comparison.responses, 1)
        return int(np.clip(_PART_TOKENS / max(per_response, 1), _FEWEST, _MOST))

    def first(self) -> Variant:
        """The original measurement, with the columns that signatures need.

        Raises:
            EngineError: if the learner cannot score the part again and its shards do not match.
            BudgetSpentError: if the time budget is used up.
        """
        case = self.case
        setup = Setup(case.learner, case.processing, case.own_prompts)
        job = self._job(setup)
        try:
            (scored,) = self.runner.run(case.learner, [replace(job, want=self._columns)])
        except EngineError:
            scored = case.scored  # a recorded learner has no further columns
        tokens = Tokens.read(self.rollouts, scored)
        self._folders[case.learner.key, job] = scored
        self._responses_of_part = tokens.lengths_B.size
        return Variant(setup, tokens)

    @cached_property
    def _routes(self) -> tuple[Want, ...]:
        """The experts, if either side has any."""
        is_known = Tokens.read(self.rollouts, self.case.scored).sampler_experts_NLK is not None
        layers = self.case.learner_facts.settings.get("router_layers")
        return ("experts",) if is_known or layers else ()

    @property
    def _columns(self) -> tuple[Want, ...]:
        return (*_COLUMNS, *self._routes)

    def columns(self, engine: EngineSpec, processing: Processing, edits: Edits = ()) -> Tokens:
        """The part's tokens as an engine scores them with edits, with the columns of signatures.

        Raises:
            EngineError: if the engine cannot score.
            BudgetSpentError: if the time budget is used up.
        """
        job = replace(self._job(Setup(engine, processing, edits=edits)), want=self._columns)
        (scored,) = self.runner.run(engine, [job])
        return Tokens.read(self.rollouts, scored)

    def sampled_again(self, sampler: EngineSpec) -> Tokens:
        """Tokens that another setup of the sampler draws, as the learner scores them.

        Raises:
            EngineError: if an engine fails.
            BudgetSpentError: if the time budget is used up.
        """
        case = self.case
        (rollouts,) = self.runner.run(sampler, [SampleJob(sampling=case.sampling)])
        part = self.runner.part_of(rollouts, self._responses())
        job = ScoreJob(rollouts=part, processing=case.processing, want=_COLUMNS)
        (scored,) = self.runner.run(case.learner, [job])
        return Tokens.read(part, scored)

    def with_columns(self, variant: Variant) -> Variant:
        """A variant with the columns of its own setup: those of the first scoring do not apply.

        Raises:
            EngineError: if the learner cannot score.
            BudgetSpentError: if the time budget is used up.
        """
        setup = variant.setup
        job = replace(self._job(setup), want=self._columns)
        (scored,) = self.runner.run(setup.learner, [job])
        columns = Tokens.read(self.rollouts, scored).with_mapped_temperatures(setup.learner_column)
        return Variant(setup, variant.tokens.with_columns(columns))

    def vary(self, variant: Variant, **changes: Any) -> Variant:
        """The same tokens under another setup.

        Raises:
            EngineError: if an engine does not support the setup.
            BudgetSpentError: if the time budget is used up.
        """
        setup = replace(variant.setup, **changes)
        tokens = variant.tokens
        other = setup.rescored
        if other is not None and other != variant.setup.rescored:
            # Engines score given tokens under the whole distribution at temperature 1.
            setup = replace(setup, processing=Processing())
            own = self._score(other, self._job(Setup(other, setup.processing)))
            tokens = tokens.with_sampler(*self._cut(own, tokens))
        keys = ("learner", "processing", "own_prompts", "behind", "replay", "edits")
        if any(getattr(setup, key) != getattr(variant.setup, key) for key in keys):
            scores = self._score(setup.learner, self._job(setup))
            learner_N, experts_NLK = self._cut(scores, tokens)
            learner_N = setup.learner_column(tokens.lengths_B, learner_N)
            tokens = tokens.with_learner(learner_N, experts_NLK)
        return Variant(setup, tokens)

    def with_routes(self, variant: Variant) -> Variant:
        """The variant with the learner's experts of its setup, if they are known."""
        folder = self._folders.get((variant.setup.learner.key, self._job(variant.setup)))
        if folder is None or variant.tokens.learner_experts_NLK is not None:
            return variant
        _, experts_NLK = self._cut(self._read_scores(folder), variant.tokens)
        return Variant(variant.setup, replace(variant.tokens, learner_experts_NLK=experts_NLK))

    def _cut(self, scores: _Scores, tokens: Tokens) -> tuple[Floats, Experts | None]:
        """The scores of the tokens in memory, and their experts."""
        count = tokens.sampler_N.size
        parts = [each.experts_NLK for each in read_shards(scores.folder)] if self._routes else []
        known = [part for part in parts if part is not None]
        is_known = bool(parts) and len(known) == len(parts)
        return scores.logprobs_N[:count], np.concatenate(known)[:count] if is_known else None

    def _scored(self, engine: EngineSpec) -> Tokens:
        """The tokens with another engine's scores as learner."""
        tokens = Tokens.read(self.rollouts, self.case.scored)
        scores = self._score(engine, self._job(Setup(engine, self.case.processing)))
        return tokens.with_learner(*self._cut(scores, tokens))

    def _job(self, setup: Setup, **more: Any) -> ScoreJob:
        """The learner's job in a setup."""
        rollouts = setup.behind or self.rollouts
        own_prompts = setup.own_prompts or setup.behind is not None
        if setup.replay:
            return replay_job(rollouts, setup.processing, own_prompts=own_prompts)
        return ScoreJob(
            rollouts=rollouts,
            processing=setup.processing,
            own_prompts=own_prompts,
            what_if=as_json(setup.edits),
            want=self._routes,
            **more,
        )

    def score(
        self,
        engine: EngineSpec,
        processing: Processing,
        *,
        backwards: bool = False,
        repeat: int = 0,
        rollouts: Path | None = None,
    ) -> Floats:
        """An engine's log-probabilities of the part's tokens, shape (N,).

        Args:
            engine: that scores.
            processing: of its log-probabilities.
            backwards: whether the responses are in reverse order.
            repeat: number of the repetition.
            rollouts: responses to score instead of the part's.

        Raises:
            EngineError: if the engine cannot score.
            BudgetSpentError: if the time budget is used up.
        """
        if rollouts is not None:
            job = ScoreJob(rollouts=rollouts, processing=processing)
        else:
            job = self._job(Setup(engine, processing), backwards=backwards, repeat=repeat)
        return self._score(engine, job).logprobs_N

    def _score(self, engine: EngineSpec, job: ScoreJob) -> _Scores:
        return self._score_each(engine, [job])[0]

    def score_all(
        self, engine: EngineSpec, processings: Sequence[Processing], setup: Setup
    ) -> list[Floats]:
        """Like `score` in a setup under several processings, loading the engine once."""
        setup = replace(setup, replay=False)
        jobs = [self._job(replace(setup, processing=each)) for each in processings]
        return [scores.logprobs_N for scores in self._score_each(engine, jobs)]

    def _score_each(self, engine: EngineSpec, jobs: Sequence[ScoreJob]) -> list[_Scores]:
        """Score the jobs that have no scores yet."""
        missing = [job for job in dict.fromkeys(jobs) if (engine.key, job) not in self._folders]
        if missing:
            for job, folder in zip(missing, self.runner.run(engine, missing), strict=True):
                self._folders[engine.key, job] = folder
        return [self._read_scores(self._folders[engine.key, job]) for job in jobs]

    def _scores_in(self, folder: Path) -> _Scores:
        """The scores of a folder; those of a record begin with the part."""
        shards = list(read_shards(folder))
        lengths_B = np.concatenate([shard.lengths_B for shard in shards])
        logprobs_N = np.concatenate([shard.logprobs_N for shard in shards]).astype(np.float64)
        if self._responses_of_part:
            lengths_B = lengths_B[: self._responses_of_part]
        return _Scores(logprobs_N[: int(lengths_B.sum())], lengths_B, folder)

    def what_ifs(self, engine: EngineSpec) -> tuple[EditFamily, ...]:
        """The edits that an engine's model allows; empty if it cannot compute differently.

        Raises:
            EngineError: if the engine fails.
            BudgetSpentError: if the time budget is used up.
        """
        if not engine.kind.can_alter:
            return ()
        (folder,) = self.runner.run(engine, [WhatIfsJob()])
        return parse_families(folder / "what_ifs.json")

    def tensor_names(self, engine: EngineSpec) -> tuple[str, ...]:
        """The names of the tensors that an engine can take from another checkpoint.

        Raises:
            EngineError: if the engine fails.
            BudgetSpentError: if the time budget is used up.
        """
        (folder,) = self.runner.run(engine, [WhatIfsJob()])
        return parse_tensors(folder / "what_ifs.json")

    def score_edits(
        self, setup: Setup, edits: Sequence[Edits], rollouts: Path | None = None
    ) -> list[Floats | None]:
        """The learner's log-probabilities with each list of edits, None where one does not fit.

        Loads the learner once.

        Args:
            setup: the learner's other settings.
            edits: the lists of edits.
            rollouts: responses to score instead of the part's.
        """
        jobs = [
            self._job(replace(setup, edits=each, replay=False))
            if rollouts is None
            else ScoreJob(rollouts=rollouts, processing=setup.processing, what_if=as_json(each))
            for each in edits
        ]
        missing = [job for job in jobs if (setup.learner.key, job) not in self._folders]
        if missing:
            self.edit_passes += len(set(missing))
            folders = self.runner.attempt(setup.learner, list(dict.fromkeys(missing)))
            for job, folder in zip(dict.fromkeys(missing), folders, strict=True):
                if isinstance(folder, Path):
                    self._folders[setup.learner.key, job] = folder
        folders_of = [self._folders.get((setup.learner.key, job)) for job in jobs]
        known = [None if folder is None else self._read_scores(folder) for folder in folders_of]
        return [
            None if one is None else setup.learner_column(one.lengths_B, one.logprobs_N)
            for one in known
        ]

    def sub_sample(self, variant: Variant) -> tuple[Path | None, Integers]:
        """A folder with a few of the part's responses, and the indices of their tokens.

        The responses follow the prompts that the learner reads in this variant. None, and all
        tokens, if a few of the responses cannot be scored alone.
        """
        if variant.setup.own_prompts or variant.setup.needs_all:
            return None, np.arange(variant.tokens.sampler_N.size)
        wanted_B = spread(variant.tokens, _SCREEN_TOKENS)
        return self.folder_of(variant, wanted_B), self._indices(variant, wanted_B)

    def one_of_each_prompt(self, variant: Variant) -> tuple[Path | None, Integers]:
        """A folder with the first response to each prompt that counts, and its tokens' indices.

        None, and all tokens, if the learner's values of a response depend on those of others.
        """
        tokens = variant.tokens
        if variant.setup.needs_all:
            return None, np.arange(tokens.sampler_N.size)
        counted_B = np.unique(tokens.rows_N[tokens.counted_N])
        _, first = np.unique(tokens.prompt_B[counted_B], return_index=True)
        wanted_B = set(counted_B[first].tolist())
        return self.folder_of(variant, wanted_B), self._indices(variant, wanted_B)

    @staticmethod
    def _indices(variant: Variant, wanted_B: Set[int]) -> Integers:
        return np.flatnonzero(np.isin(variant.tokens.rows_N, sorted(wanted_B)))

    def folder_of(self, variant: Variant, wanted_B: Set[int]) -> Path:
        """A folder with some of the part's responses, after the prompts that the learner reads."""
        behind = variant.setup.behind
        key = content_key("screen", rollouts_key(behind or self.rollouts), sorted(wanted_B))
        folder = self.scratch(f"screen-{key}")
        write_some(folder, self.rollouts, wanted_B, prompts_behind(behind))
        return folder

    @cached_property
    def rounding(self) -> Rounding:
        """What rounding to the coarser of the two precisions does to this model.

        If the learner cannot measure it, the value of other models.
        """
        coarse = coarser_of(*self.dtypes)
        if coarse == "float32":
            return usual_rounding(coarse)
        learner = self.case.learner
        try:
            exact, rounded = (
                self._scored(in_precision(learner, dtype)) for dtype in ("float32", coarse)
            )
        except EngineError:
            return usual_rounding(coarse)
        measured = rounding_between(exact, rounded)
        return measured.without_routes() if exact.sampler_experts_NLK is None else measured

    @property
    def has_passes(self) -> bool:
        """Whether further searches of edits may begin; without it, an unknown gap has no end."""
        return self.edit_passes < (MOST_EDIT_PASSES if self.tries_generic else _MOST_KNOWN_PASSES)

    @property
    def noise(self) -> float:
        """k3 that rounding causes in the tokens of the search."""
        return self.left_out.noise if self.left_out else self.rounding.noise

    @property
    def limit(self) -> float:
        """The largest k3 that counts as rounding."""
        return max(EXACT, QUIET * self.noise)

    def is_loud(self, gap: float) -> bool:
        """Whether a gap exceeds rounding."""
        return gap > self.limit

    def effective_gap(self, before: Variant, after: Variant) -> float:
        """The gap by which several experiments on a variant are compared."""
        return effective_gap(before.tokens, after.tokens, self.limit)

    def exceeds_rounding(self, variant: Variant) -> bool:
        """Whether a variant's gap exceeds rounding, also apart from flips by rounding."""
        if not self.is_loud(variant.gap):
            return False
        return not self.rounding.remains_without_flips(self.with_routes(variant).tokens)

    @property
    def dtypes(self) -> tuple[str, str]:
        """The sampler's and the learner's precision."""
        sampler, learner = map(computes_in, (self.case.sampler_facts, self.case.learner_facts))
        return sampler, learner

    @cached_property
    def sampled_prompts(self) -> dict[int, list[int]]:
        """Each prompt's token ids as the sampler reports them, by prompt number."""
        ids: dict[int, list[int]] = {}
        for shard in read_shards(self.rollouts):
            parts = np.split(shard.prompt_ids_P, shard.prompt_offsets[1:-1])
            for number, part in zip(shard.prompt_B.tolist(), parts, strict=True):
                ids.setdefault(number, part.tolist())
        return ids

    def learner_prompts(self) -> list[list[int]]:
        """The prompts' token ids as the learner tokenizes them.

        Raises:
            EngineError: if the learner has no tokenizer.
            BudgetSpentError: if the time budget is used up.
        """
        return read_ids(self.runner.run(self.case.learner, [TokenizeJob()])[0])

    def behind(self, prompts: Mapping[int, Sequence[int]]) -> Path:
        """Create a folder with the part's responses after other prompts, keyed by prompt number."""
        ids = [{"ids": list(prompts.get(n, ()))} for n in range(max(prompts) + 1)]
        key = content_key("behind", rollouts_key(self.rollouts), ids)
        folder = self.scratch(f"behind-{key}")
        write_behind(folder, self.rollouts, ids, key)
        return folder

    def variants_behind(self, variant: Variant, folders: Sequence[Path]) -> list[Variant]:
        """Variants in which the learner scores after other prompts; loads the learner once.

        Raises:
            EngineError: if the learner cannot score after given prompts.
            BudgetSpentError: if the time budget is used up.
        """
        setup = variant.setup
        jobs = [self._job(replace(setup, behind=each)) for each in folders]
        self._score_each(setup.learner, jobs)
        return [self.vary(variant, behind=folder) for folder in folders]

    def configs(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Both models' `config.json` with the overrides of engine options; empty if not local."""
        engines = self.case.sampler, self.case.learner
        sampler, learner = (
            read_config(model_path(engine)) | config_overrides(engine) for engine in engines
        )
        return sampler, learner

    def scratch(self, name: str) -> Path:
        """A folder for files of an experiment; a repeated probe uses the same folder."""
        safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:80]
        folder = self.case.scored.parent / "attribution" / safe
        folder.mkdir(parents=True, exist_ok=True)
        return folder
