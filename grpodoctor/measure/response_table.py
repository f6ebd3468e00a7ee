"""Readings of a step of a rollout dump, from one row of figures per response.

A dump is too large for memory, so its reader reduces each response to a row of numbers. A row
depends only on its response, and a step is measured from all its rows. The readings therefore do
not depend on how the dump is split into shards or on who reads it.

In a column, NaN means unknown, and an infinity stands for a value that is not finite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from grpodoctor.measure.agreement import agreement_readings
from grpodoctor.measure.answers import answer_readings
from grpodoctor.measure.buckets import RankedMeans, bucket_readings, keep_lowest
from grpodoctor.measure.groups import (
    EXPECTED_DUPLICATES,
    PROMPT_HASH,
    REPEATED_PROMPTS,
    UNCENTRED_RATE,
    Groups,
    equal_text_readings,
    expected_duplicates,
    groups_of,
    length_gap,
    repeated_prompt_rate,
    reward_groups,
    uncentred_rate,
)
from grpodoctor.measure.responses import bound_excess, mean_over
from grpodoctor.measure.same_answers import same_answer_readings
from grpodoctor.measure.similarity import group_similarity
from grpodoctor.measure.subsample import (
    COMPRESSED_RESPONSES,
    PAIRED_RESPONSES,
    SEARCHED_RESPONSES,
    HashRanks,
    lowest_ranked,
    only_where,
    prompt_ranks,
)
from grpodoctor.support.arrays import np, with_errstate
from grpodoctor.vocabulary.values import (
    Max,
    Mean,
    NotApplicable,
    Quantiles,
    Rate,
    Reading,
    exact_sum,
    merge_all,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from grpodoctor.measure.batch import Flags

Column: TypeAlias = "NDArray[np.float64]"
COMPONENT = "component/"
"""Prefix of the columns of reward components."""
_OF_WHOLE_GROUPS = frozenset({"logprob", "in_loss", "reward", "advantage"})
_INTEGER_COLUMNS = {
    "step": "int64", "rank": "int64", "group": "uint64", "text": "uint64",
    "prompt": "uint64", "hash_rank": "uint64", "signature": "uint64", "final": "uint64",
    PROMPT_HASH: "uint64",
}  # fmt: skip
"""Integer columns. In `group`, `text`, `final`, `signature` and the prompts, 0 means unknown; a
response with `hash_rank` 0 is never selected."""


@dataclass(slots=True)
class ResponseTable:
    """Figures of responses by column, and the maxima of a step with their responses."""

    columns: dict[str, NDArray[np.generic]]
    maxima: dict[int, dict[str, Reading]] = field(default_factory=dict)
    """Maxima by step."""
    bucketed: dict[int, list[RankedMeans]] = field(default_factory=dict)
    """By step, the bucket means of the selected responses."""

    def __len__(self) -> int:
        return next((column.size for column in self.columns.values()), 0)

    def of_step(self, step: int) -> ResponseTable:
        """The rows of one step."""
        rows = self.columns["step"] == step
        columns = {name: values[rows] for name, values in self.columns.items()}
        bucketed = {step: self.bucketed[step]} if step in self.bucketed else {}
        return ResponseTable(columns, {step: self.maxima.get(step, {})}, bucketed)


def join_tables(parts: list[ResponseTable]) -> ResponseTable:
    """Concatenate tables, in the order of the parts."""
    names = sorted({name for part in parts for name in part.columns})
    columns = {
        name: np.concatenate([part.columns.get(name, _blank(name, len(part))) for part in parts])
        for name in names
    }
    maxima: dict[int, dict[str, Reading]] = {}
    for part in parts:
        for step, readings in part.maxima.items():
            maxima[step] = merge_all(maxima.get(step, {}), readings)
    bucketed: dict[int, list[RankedMeans]] = {}
    for part in parts:
        for step, rows in part.bucketed.items():
            bucketed[step] = keep_lowest([*bucketed[step], *rows]) if step in bucketed else rows
    return ResponseTable(columns, maxima, bucketed)


def _blank(name: str, count: int) -> NDArray[np.generic]:
    kind = _INTEGER_COLUMNS.get(name)
    return np.full(count, np.nan) if kind is None else np.zeros(count, kind)


def table_readings(table: ResponseTable) -> dict[str, Reading]:
    """All readings of the rows of one step, by canonical metric name."""
    columns = table.columns
    readings: dict[str, Reading] = {}
    for measure in (
        _rewards, _answers, _lengths, _groups, _advantages, _texts, _entropies, _gaps,
    ):  # fmt: skip
        readings |= measure(columns)
    for each in table.maxima.values():
        readings |= each
    for rows in table.bucketed.values():
        readings |= bucket_readings(rows)
    return readings


def _known(columns: Mapping[str, NDArray[np.generic]], name: str) -> Column | None:
    """The known entries of a column; None if there are none."""
    if name not in columns:
        return None
    values = columns[name].astype(np.float64, copy=False)
    kept = values[~np.isnan(values)]
    return kept if kept.size else None


def _together(columns: Mapping[str, NDArray[np.generic]], *names: str) -> tuple[Column, ...] | None:
    """Columns of the rows in which all of them are known; None if there are no such rows."""
    if any(name not in columns for name in names):
        return None
    values = [columns[name].astype(np.float64, copy=False) for name in names]
    kept = ~np.any([np.isnan(each) for each in values], axis=0)
    return tuple(each[kept] for each in values) if kept.any() else None


def correctness(columns: Mapping[str, NDArray[np.generic]]) -> NDArray[np.float64] | None:
    """Whether each response is correct: 1, 0 or NaN; None if unknown.

    Without a column `correct`, rewards that are all 0 or 1, or all -1 or 1, are used.
    """
    if (known := columns.get("correct")) is not None and not np.isnan(_double(known)).all():
        return _double(known)
    rewards = columns.get("reward")
    if rewards is None:
        return None
    seen = set(np.unique(_double(rewards)[~np.isnan(_double(rewards))]).tolist())
    if not seen or not (seen <= {0.0, 1.0} or seen <= {-1.0, 1.0}):
        return None
    return np.where(np.isnan(_double(rewards)), np.nan, _double(rewards) > 0)


def _double(values: NDArray[np.generic]) -> Column:
    return values.astype(np.float64, copy=False)


@with_errstate(over="ignore", invalid="ignore")
def _spread(values: Column) -> Mean:
    finite = values[np.isfinite(values)]
    return Mean.of([np.std(finite)] if finite.size else [np.nan])


def _rewards(columns: Mapping[str, NDArray[np.generic]]) -> dict[str, Reading]:
    readings: dict[str, Reading] = {}
    if (rewards := _known(columns, "reward")) is not None:
        readings |= {"reward/mean": Mean.of(rewards), "reward/std": _spread(rewards)}
    if (both := _together(columns, "reward", "truncated")) is not None:
        readings["reward/truncated"] = mean_over(both[0], both[1] > 0, "no response was truncated")
    for name in columns:
        if name.startswith(COMPONENT) and (values := _known(columns, name)) is not None:
            stem = f"reward/component/{name.removeprefix(COMPONENT).replace('/', '_')}"
            readings |= {f"{stem}/mean": Mean.of(values), f"{stem}/std": _spread(values)}
    correct = correctness(columns)
    if correct is not None:
        readings["accuracy/train"] = Rate.of(correct[~np.isnan(correct)] > 0)
    return readings


def _answers(columns: Mapping[str, NDArray[np.generic]]) -> dict[str, Reading]:
    if "answer" not in columns or "reward" not in columns:
        return {}
    return answer_readings(_double(columns["answer"]), _double(columns["reward"]), columns["group"])


def _lengths(columns: Mapping[str, NDArray[np.generic]]) -> dict[str, Reading]:
    readings: dict[str, Reading] = {}
    if (truncated := _known(columns, "truncated")) is not None:
        readings["length/truncated_rate"] = Rate.of(truncated > 0)
    lengths = _known(columns, "length")
    if lengths is None:
        return readings
    readings |= {"length/mean": Mean.of(lengths), "length/p95": Quantiles.of(lengths)}
    if (both := _together(columns, "length", "truncated")) is not None:
        why = "every response was truncated"
        readings["length/terminated_mean"] = mean_over(both[0], both[1] == 0, why)
    if (correct := correctness(columns)) is not None:
        both = _together({"l": columns["length"], "c": correct}, "l", "c")
        if both is not None:
            readings |= {
                "length/correct": mean_over(both[0], both[1] > 0, "no response is correct"),
                "length/incorrect": mean_over(both[0], both[1] == 0, "every response is correct"),
            }
    return readings


def _groups(columns: Mapping[str, NDArray[np.generic]]) -> dict[str, Reading]:
    """Readings of groups, if the dump has group ids.

    Without total rewards, the advantages are used: they are equal exactly where the rewards were.
    """
    grouped = columns["group"] != 0
    if not grouped.any():
        return {}
    columns = {name: values[grouped] for name, values in columns.items()}
    groups = groups_of(columns["group"].astype(np.uint64))
    readings: dict[str, Reading] = {}
    if (texts := columns["text"]).all():
        order = np.lexsort((texts, columns["group"]))
        same = [each[order[1:]] == each[order[:-1]] for each in (texts, columns["group"])]
        readings["groups/duplicate_rate"] = Rate(int((same[0] & same[1]).sum()), texts.size)
        if (scores := _scores(columns)) is not None:
            readings |= equal_text_readings(groups, texts, scores[1])
            readings |= _same_answers(columns, groups, scores[1])
    if (repeated := _repeated_prompts(columns)) is not None:
        readings[REPEATED_PROMPTS] = repeated
    similarity = _similarity(columns)
    if similarity is not None:
        readings["groups/text_similarity"] = similarity
    return readings | _whole_groups(columns, groups) | _group_rewards(columns, groups)


def _same_answers(
    columns: Mapping[str, NDArray[np.generic]], groups: Groups, scores_B: Column
) -> dict[str, Reading]:
    """Readings of responses with one final answer; none without texts."""
    if "final" not in columns or "characters" not in columns:
        return {}
    lengths_B = _double(columns["characters"])
    if np.isnan(lengths_B).any():
        return {}
    answers_B = columns["final"].astype(np.uint64, copy=False)
    return same_answer_readings(groups, answers_B, columns["text"], scores_B, lengths_B)


def _repeated_prompts(columns: Mapping[str, NDArray[np.generic]]) -> Rate | None:
    """Groups with the prompt of an earlier group; None if the rows do not tell."""
    rows_B = columns.get(PROMPT_HASH, columns.get("prompt"))
    if rows_B is None or not rows_B.all():
        return None
    return repeated_prompt_rate(columns["group"].astype(np.uint64), rows_B.astype(np.uint64))


def _whole_groups(columns: Mapping[str, NDArray[np.generic]], groups: Groups) -> dict[str, Reading]:
    """Readings that need every response of a group; their columns are there if all are."""
    known = {name: _double(values) for name, values in columns.items() if name in _OF_WHOLE_GROUPS}
    known = {name: values for name, values in known.items() if not np.isnan(values).any()}
    readings: dict[str, Reading] = {}
    if "logprob" in known:
        readings[EXPECTED_DUPLICATES] = expected_duplicates(groups, known["logprob"])
    if known.keys() >= {"reward", "advantage", "in_loss"}:
        in_loss_B = known["in_loss"] > 0
        rate = uncentred_rate(groups, known["advantage"], known["reward"], in_loss_B)
        readings[UNCENTRED_RATE] = rate
    return readings


def _similarity(columns: Mapping[str, NDArray[np.generic]]) -> Reading | None:
    """How similar the responses of a group are; None without texts and prompts."""
    if "signature" not in columns:
        return None
    signatures_B, prompts_B, hash_ranks_B = (
        columns[name].astype(np.uint64, copy=False) for name in ("signature", "prompt", "hash_rank")
    )
    ranks_B: HashRanks = only_where(prompt_ranks(prompts_B, hash_ranks_B), signatures_B != 0)
    owners = [columns["rank"]] if "rank" in columns else []
    selected_B = lowest_ranked(ranks_B, PAIRED_RESPONSES, *owners)
    return group_similarity(signatures_B[selected_B], columns["group"][selected_B])


def _scores(columns: Mapping[str, NDArray[np.generic]]) -> tuple[str, Column] | None:
    """The first of rewards and advantages that is known for all responses, with its name."""
    for source in ("reward", "advantage"):
        if source in columns and not np.isnan(_double(columns[source])).any():
            return source, _double(columns[source])
    return None


_SMALLEST_GROUP = 2
"""Responses of a group whose rewards can differ. A dump may hold one of many to each prompt."""


def _group_rewards(
    columns: Mapping[str, NDArray[np.generic]], groups: Groups
) -> dict[str, Reading]:
    if groups.sizes_G.max(initial=0) < _SMALLEST_GROUP:
        return {}
    parts = {
        name.removeprefix(COMPONENT): _double(values)
        for name, values in columns.items()
        if name.startswith(COMPONENT) and not np.isnan(_double(values)).any()
    }
    correct = correctness(columns)
    if correct is not None and np.isnan(correct).any():
        correct = None
    flags = None if correct is None else correct > 0
    readings: dict[str, Reading] = {}
    if correct is not None and "final" in columns:
        answers_B = columns["final"].astype(np.uint64, copy=False)
        readings |= agreement_readings(groups, answers_B, correct)
    if (scores := _scores(columns)) is not None:
        readings |= reward_groups(groups, scores[1], parts, flags)
        if scores[0] == "advantage":
            readings.pop("groups/reward_std")
    magnitudes = (
        np.abs(_double(columns["advantage"])) if "advantage" in columns else np.array([np.nan])
    )
    if np.isfinite(magnitudes).all():
        readings["advantage/bound_excess"] = bound_excess(magnitudes, groups)
    lengths = _double(columns["length"]) if "length" in columns else np.array([np.nan])
    if flags is not None and not np.isnan(lengths).any():
        readings["length/group_gap"] = length_gap(lengths, groups, flags)
    return readings


def _advantages(columns: Mapping[str, NDArray[np.generic]]) -> dict[str, Reading]:
    both = _together(columns, "advantage", "length")
    if both is None:
        return {}
    advantages, lengths = both
    tokens = int(lengths.sum())
    return {
        "advantage/positive_rate": Rate(int(lengths[advantages > 0].sum()), tokens),
        "advantage/zero_rate": Rate(int(lengths[advantages == 0].sum()), tokens),
    }


def _texts(columns: Mapping[str, NDArray[np.generic]]) -> dict[str, Reading]:
    readings: dict[str, Reading] = {}
    of_all: tuple[tuple[str, str, Callable[[Column], Reading]], ...] = (
        ("loop", "text/repetition_rate", lambda values: Rate.of(values > 0)),
        ("staleness", "staleness/mean", Mean.of),
    )
    of_selected: tuple[tuple[str, str, int, Callable[[Column], Reading]], ...] = (
        (
            "reflects",
            "text/reflection_rate",
            SEARCHED_RESPONSES,
            lambda values: Rate.of(values > 0),
        ),
        ("compression", "text/compression_ratio", COMPRESSED_RESPONSES, Mean.of),
        ("trigrams", "text/unique_ngram_rate", COMPRESSED_RESPONSES, Mean.of),
    )
    for column, metric, summarize in of_all:
        if (values := _known(columns, column)) is not None:
            readings[metric] = summarize(values)
    for column, metric, most, summarize in of_selected:
        if column in columns and (values := _selected(columns, column, most)) is not None:
            readings[metric] = summarize(values)
    return readings


def _selected(columns: Mapping[str, NDArray[np.generic]], name: str, most: int) -> Column | None:
    """The known entries of the selected responses; shards measure all candidates."""
    hash_ranks_B = only_where(
        columns["hash_rank"].astype(np.uint64, copy=False), ~np.isnan(_double(columns[name]))
    )
    ranks = [columns["rank"]] if "rank" in columns else []
    return _known({name: columns[name][lowest_ranked(hash_ranks_B, most, *ranks)]}, name)


def _entropies(columns: Mapping[str, NDArray[np.generic]]) -> dict[str, Reading]:
    both = _together(columns, "entropy", "entropy/tokens")
    return {} if both is None else {"entropy/mean": _mean_of_sums(both[0], both[1])}


def _mean_of_sums(sums: Column, counts: Column, broken: int = 0) -> Mean:
    """A mean over tokens, from the sum of each response."""
    finite = np.isfinite(sums)
    lost = int(counts[~finite].sum())
    return Mean(exact_sum(sums[finite]), int(counts[finite].sum()), broken + lost)


def _gaps(columns: Mapping[str, NDArray[np.generic]]) -> dict[str, Reading]:
    """`mismatch/*`, if the dump has the log-probabilities of both sides."""
    names = [name for name in columns if name.startswith("gap/")]
    rows = _together(columns, *names) if names else None
    if rows is None:
        return {}
    of = dict(zip(names, rows, strict=True))
    tokens, broken = of["gap/tokens"], int(of["gap/nonfinite"].sum())
    seen = int(tokens.sum())
    readings: dict[str, Reading] = {"mismatch/nonfinite": Rate(broken, seen + broken)}
    if not seen:
        return readings
    bias = _mean_of_sums(of["gap/bias"], tokens)
    squared = of["gap/squared_excess"] + 2 * of["gap/excess"]
    readings |= {
        "mismatch/bias": bias,
        "mismatch/kl_k1": Mean(-bias.total, bias.count, bias.nonfinite),
        "mismatch/kl_k3": _mean_of_sums(np.maximum(of["gap/excess"] - of["gap/bias"], 0.0), tokens),
        "mismatch/chi2": _mean_of_sums(squared, tokens),
        "mismatch/far_rate": Rate(int(of["gap/far"].sum()), seen),
        "mismatch/ess": _effective(of["gap/excess"], squared, seen),
        "mismatch/pearson": _pearson(of, seen),
    }
    return readings | _per_response(of, tokens > 0)


def _per_response(of: Mapping[str, Column], filled: Flags) -> dict[str, Reading]:
    tokens = of["gap/tokens"][filled]
    readings: dict[str, Reading] = {}
    for name in ("prob_diff", "logprob_diff"):
        readings[f"mismatch/{name}_mean"] = Mean.of(of[f"gap/{name}"][filled] / tokens)
        readings[f"mismatch/{name}_max"] = Mean.of(of[f"gap/{name}_max"][filled])
    return readings


def _effective(excess: Column, squared: Column, tokens: int) -> Reading:
    """Effective sample size (sum w)² / (N sum w²), from the sums of w - 1 and w² - 1."""
    if not (np.isfinite(excess).all() and np.isfinite(squared).all()):
        return NotApplicable("an importance weight exceeds the largest number")
    total = exact_sum(excess) + tokens
    squares = exact_sum(squared) + tokens
    return (
        Mean.of([float(total * total / (tokens * squares))])
        if squares
        else NotApplicable("all weights are zero")
    )


def _pearson(of: Mapping[str, Column], tokens: int) -> Reading:
    """Correlation of the two probabilities, from sums of their products."""
    sums = {name: of[f"gap/{name}"] for name in ("q", "qq", "qe", "qqe", "qqee")}
    if not all(np.isfinite(each).all() for each in sums.values()):
        return NotApplicable("a probability exceeds the largest number")
    q, qq, qe, qqe, qqee = (exact_sum(each) for each in sums.values())
    p, pq, pp = q + qe, qq + qqe, qq + 2 * qqe + qqee
    variances = (pp * tokens - p * p) * (qq * tokens - q * q)
    if variances <= 0:
        return NotApplicable("the probabilities of one side are all equal")
    covariance: Fraction = pq * tokens - p * q
    return Mean.of([float(covariance) / float(variances) ** 0.5])


def step_maxima(
    columns: Mapping[str, NDArray[np.generic]], name_of: Callable[[int], str]
) -> dict[int, dict[str, Reading]]:
    """The maxima of each step, with the response that has them.

    Args:
        columns: the rows.
        name_of: gives the response id of a row.
    """
    maxima: dict[int, dict[str, Reading]] = {}
    for metric, values in _candidates(columns):
        steps = columns["step"]
        for step in np.unique(steps[~np.isnan(values)]).tolist():
            rows = np.flatnonzero((steps == step) & ~np.isnan(values))
            best = values[rows].max()
            names = [name_of(row) for row in rows[values[rows] == best].tolist()]
            maxima.setdefault(step, {})[metric] = Max(float(best), min(names))
    return maxima


def _candidates(columns: Mapping[str, NDArray[np.generic]]) -> list[tuple[str, Column]]:
    """Metrics whose maximum is reported, and their values; NaN if a response has none."""
    candidates = []
    if "length" in columns:
        candidates.append(("length/max", _double(columns["length"])))
    if "advantage" in columns:
        candidates.append(("advantage/abs_max", np.abs(_double(columns["advantage"]))))
    if "gap/tokens" in columns:
        tokens = _double(columns["gap/tokens"])
        counts = np.where(tokens > 0, tokens, np.nan)
        for name in ("prob_diff", "logprob_diff"):
            total, largest = _double(columns[f"gap/{name}"]), _double(columns[f"gap/{name}_max"])
            candidates.append((f"mismatch/{name}_mean/worst_sequence", total / counts))
            candidates.append(
                (f"mismatch/{name}_max/worst_sequence", np.where(tokens > 0, largest, np.nan))
            )
    return candidates
