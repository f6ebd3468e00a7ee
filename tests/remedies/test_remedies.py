import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.settings import ENGINE_SETTINGS, METHOD_SETTINGS, framework_settings
from grpodoctor.remedies.base import Remedy
from grpodoctor.remedies.catalogue import all_remedies, remedy_of
from grpodoctor.remedies.recent_readings import recent_readings
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.knobs import KNOBS, Setting, check_change
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import Mean

UNTREATED: dict[str, Setting] = {
    "loss": "ppo_clip",
    "clip_low": 0.2,
    "clip_high": 0.2,
    "aggregation": "sequence-mean",
    "advantage": "group",
    "correction": "none",
    "correction_cap": 3.0,
    "old_logprobs": "sampler",
    "dynamic_sampling": False,
    "overlong": "none",
    "overlong_buffer": 1,
    "kl_coefficient": 0.0,
    "entropy_coefficient": 0.0,
    "group_size": 4,
    "prompts_per_batch": 16,
    "learning_rate": 1e-6,
    "temperature": 1.0,
    "updates_per_batch": 16,
    "max_length": 4096,
    "sampler_sync_every": 8,
    "routing_replay": "none",
}
IDS = {
    "balance-experts",
    "check-advantages",
    "check-copied-rows",
    "check-end-token",
    "check-kl-sign",
    "check-loading",
    "check-loss-mask",
    "check-prompts",
    "check-reference",
    "check-resume",
    "check-routing-replay",
    "check-schedule",
    "check-weight-sync",
    "cispo",
    "clip-cov",
    "clip-higher",
    "compare-weights",
    "dcpo",
    "default-adam",
    "divisible-batch",
    "dppo",
    "dr-grpo",
    "drop-failed-rollouts",
    "dynamic-sampling",
    "easier-prompts",
    "entropy-bonus",
    "exact-engines",
    "fewer-updates",
    "float16-engines",
    "float32-weights",
    "forking-tokens",
    "gdpo",
    "gmpo",
    "gopo",
    "gspo",
    "harder-prompts",
    "higher-precision-sampler",
    "icepop",
    "keep-checkpoint",
    "kl-cov",
    "kl-in-loss-only",
    "kl-penalty",
    "larger-batch",
    "larger-groups",
    "limit-staleness",
    "lite-ppo",
    "longer-limit",
    "lopti",
    "lower-gpu-memory",
    "lower-learning-rate",
    "lower-temperature",
    "luspo",
    "m2po",
    "mask-environment-tokens",
    "maxrl",
    "mis",
    "one-temperature",
    "overlong-mask",
    "raise-learning-rate",
    "raise-temperature",
    "recheck-reward",
    "recompute-old-logprobs",
    "refilter-prompts",
    "reinforce-rej",
    "repetition-penalty",
    "reweight-rewards",
    "router-loss-off",
    "routing-replay",
    "rspo",
    "sapo",
    "sequence-error-mask",
    "smaller-entropy-bonus",
    "smaller-kl-penalty",
    "soft-overlong",
    "stop-training",
    "sync-sampler",
    "tis",
    "token-level-loss",
    "vespo",
    "warm-up-critic",
    "whole-distribution",
}
_TOKEN_CLIP: dict[str, Setting] = {
    "loss": "ppo_clip",
    "clip_low": 0.2,
    "clip_high": 0.28,
    "aggregation": "token-mean",
}
_WHOLE_CLIP: dict[str, Setting] = {
    "clip_low": 3e-4,
    "clip_high": 4e-4,
    "aggregation": "sequence-mean",
}


_SIZES = ("group_size", "batch_responses", "update_responses", "learner_devices",
          "device_responses")  # fmt: skip
_SET = ("prompts_per_batch", "updates_per_batch")


def test_the_mean_length_is_no_limit_where_a_part_of_the_responses_ends() -> None:
    def longest(truncated: float) -> float | None:
        values = {
            "length/mean": Mean.of([7000.0]), "length/truncated_rate": Mean.of([truncated])
        }  # fmt: skip
        chart = Chart()
        chart.observe(StepRecord(1, values))
        return recent_readings(chart).get("length/max")

    assert longest(0.4) is None
    assert longest(1.0) == 7000


def untreated(remedy: Remedy) -> dict[str, Setting]:
    """Plain GRPO, with the bonus or the penalty of the remedies that lower it."""
    weights: dict[str, dict[str, Setting]] = {
        "smaller-entropy-bonus": {"entropy_coefficient": 0.05},
        "smaller-kl-penalty": {"kl_coefficient": 0.5},
    }
    return {**UNTREATED, **weights.get(remedy.id, {})}


EVERY = pytest.mark.parametrize("remedy", all_remedies(), ids=lambda each: each.id)


def test_every_expected_remedy_is_found_and_sorted_by_id() -> None:
    assert {remedy.id for remedy in all_remedies()} == IDS
    assert [each.id for each in all_remedies()] == sorted(each.id for each in all_remedies())


def test_an_unknown_remedy_names_the_nearest() -> None:
    assert remedy_of(" Clip-Higher ").id == "clip-higher"
    with pytest.raises(ConfigError, match="did you mean clip-higher"):
        remedy_of("clip-hihger")
    with pytest.raises(ConfigError, match="use one of balance-experts, "):
        remedy_of("zzzz")


@EVERY
def test_every_page_has_its_sections(remedy: Remedy) -> None:
    headings = re.findall(r"^(\w[\w ]+):$", remedy.manual(), re.MULTILINE)
    assert headings == [
        "What it does",
        "When it applies",
        "What it costs",
        "What it overlaps",
        "How it is judged",
        "References",
    ]
    assert remedy.title
    assert remedy.paper


@EVERY
def test_every_remedy_is_judged_by_metrics_that_exist(remedy: Remedy) -> None:
    for watch in (*remedy.targets, *remedy.guards):
        assert metric_of(watch.metric) is not None, watch
        assert watch.tolerance >= 0
    assert not any(guard.direction == "toward-baseline" for guard in remedy.guards)


@EVERY
def test_a_person_gets_instructions_and_a_run_is_given_what_it_can_take(remedy: Remedy) -> None:
    change = remedy.change(untreated(remedy))
    if remedy.applicability == "suggest":
        assert not remedy.in_flight
        assert remedy.how
    else:
        assert remedy.in_flight
        assert remedy.slots
        assert {name: check_change(name, value) for name, value in change.items()} == change
        assert change


@EVERY
def test_a_treated_run_is_not_given_the_same_again(remedy: Remedy) -> None:
    once = {**untreated(remedy), **remedy.change(untreated(remedy))}
    gradual = {
        "fewer-updates",
        "kl-penalty",
        "longer-limit",
        "lower-learning-rate",
        "lower-temperature",
        "raise-learning-rate",
    }
    assert remedy.id in gradual or remedy.change(once) == {}
    knobs = dict(UNTREATED)
    for _ in range(60):
        knobs |= remedy.change(knobs)
    assert remedy.id == "longer-limit" or remedy.change(knobs) == {}, "it has no bound"


@EVERY
def test_what_is_not_known_is_not_changed(remedy: Remedy) -> None:
    assert remedy.change({}) == {}
    for missing in UNTREATED:
        known = {name: value for name, value in UNTREATED.items() if name != missing}
        assert remedy.change(known).keys() <= known.keys()


def _settings() -> st.SearchStrategy[Mapping[str, Setting]]:
    def of(name: str) -> st.SearchStrategy[Setting]:
        knob = KNOBS[name]
        if knob.choices:
            return st.sampled_from(knob.choices)
        if knob.low is None or knob.high is None:
            return st.booleans()
        if knob.integer:
            return st.integers(int(knob.low), min(int(knob.high), 10_000))
        return st.floats(knob.low, knob.high)

    return st.fixed_dictionaries({}, optional={name: of(name) for name in KNOBS})


@EVERY
@given(knobs=_settings())
def test_every_change_is_in_bounds_and_changes_something(
    remedy: Remedy, knobs: Mapping[str, Setting]
) -> None:
    change = remedy.change(knobs)
    for name, setting in change.items():
        assert name in knobs
        assert KNOBS[name].check(setting) == setting
    assert not change or any(knobs[name] != setting for name, setting in change.items())


@pytest.mark.parametrize(
    ("remedy_id", "knobs", "expected"),
    [
        ("clip-higher", {"clip_high": 0.2}, {"clip_high": 0.28}),
        ("clip-higher", {"clip_high": 0.3}, {}),
        ("clip-higher", {"clip_high": 0.2, "updates_per_batch": 1}, {}),
        (
            "clip-higher",
            {"clip_high": 0.2, "updates_per_batch": 1, "old_logprobs": "sampler"},
            {"clip_high": 0.28},
        ),
        ("token-level-loss", {"aggregation": "constant"}, {}),
        ("token-level-loss", {"aggregation": "prompt-mean"}, {"aggregation": "token-mean"}),
        ("dr-grpo", {"aggregation": "constant", "advantage": "group"}, {"advantage": "centred"}),
        ("dr-grpo", {"aggregation": "token-mean"}, {}),
        ("lower-learning-rate", {"learning_rate": 1e-4}, {"learning_rate": 3.3e-5}),
        ("lower-learning-rate", {"learning_rate": 2e-7}, {}),
        ("raise-temperature", {"temperature": 1.1}, {"temperature": 1.2}),
        ("lower-temperature", {"temperature": 0.65}, {"temperature": 0.6}),
        ("fewer-updates", {"updates_per_batch": 12}, {"updates_per_batch": 3}),
        ("fewer-updates", {"updates_per_batch": 7}, {"updates_per_batch": 1}),
        ("smaller-entropy-bonus", {"entropy_coefficient": 0.3}, {"entropy_coefficient": 0.001}),
        ("smaller-entropy-bonus", {"entropy_coefficient": 0.001}, {}),
        ("smaller-kl-penalty", {"kl_coefficient": 0.5}, {"kl_coefficient": 0.001}),
        ("smaller-kl-penalty", {"kl_coefficient": 0.001}, {}),
        ("kl-penalty", {"kl_coefficient": 0.04}, {"kl_coefficient": 0.08}),
        *(
            (
                "divisible-batch",
                dict(zip(_SIZES, sizes, strict=True)),
                dict(zip(_SET, to, strict=False)),
            )
            for sizes, to in (
                ((5, 300, 300, 8, 0), (64, 1)),  # 60 prompts of 5 on 8 devices
                ((8, 512, 1024, 0, 0), (64, 1)),
                ((8, 512, 192, 0, 0), (72, 3)),
                ((5, 320, 320, 8, 16), (128, 1)),  # 16 responses in each pass of a device
                ((8, 512, 256, 8, 4), ()),
                ((1, 7, 7, 4, 0), (8, 1)),
            )
        ),
        ("divisible-batch", {"batch_responses": 512, "update_responses": 1024}, {}),
        (
            "soft-overlong",
            {"overlong": "none", "overlong_buffer": 4, "max_length": 20480},
            {"overlong": "soft-punishment", "overlong_buffer": 4096},
        ),
        ("soft-overlong", {"overlong": "mask", "overlong_buffer": 4, "max_length": 20480}, {}),
        (
            "tis",
            {"correction": "none", "correction_cap": 2.0, "old_logprobs": "recompute"},
            {"correction": "tis_token"},
        ),
        (
            "tis",
            {"correction": "tis_sequence", "correction_cap": 2.0, "old_logprobs": "sampler"},
            {},
        ),
        ("sync-sampler", {"sampler_sync_every": 16}, {"sampler_sync_every": 1}),
        ("routing-replay", {"routing_replay": "none"}, {"routing_replay": "R3"}),
        ("routing-replay", {"routing_replay": "R2"}, {}),
        ("routing-replay", {}, {}),
        ("gspo", _TOKEN_CLIP, {**_WHOLE_CLIP, "loss": "gspo"}),
        ("gspo", {**_TOKEN_CLIP, "correction": "tis_sequence"}, {**_WHOLE_CLIP, "loss": "gspo"}),
        (
            "gspo",
            {**_TOKEN_CLIP, "correction": "tis_token", "aggregation": "sequence-mean"},
            {"clip_low": 3e-4, "clip_high": 4e-4, "loss": "gspo_token"},
        ),
        ("gspo", {**_TOKEN_CLIP, "routing_replay": "R3"}, {}),
        ("gspo", {**_TOKEN_CLIP, "loss": "cispo"}, {}),
    ],
)
def test_changes(remedy_id: str, knobs: dict[str, Setting], expected: dict[str, Setting]) -> None:
    assert remedy_of(remedy_id).change(knobs) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("token-level-loss", "dr-grpo"),
        ("clip-higher", "raise-temperature"),
        ("overlong-mask", "soft-overlong"),
        ("lower-learning-rate", "fewer-updates"),
        ("tis", "recompute-old-logprobs"),
        ("gspo", "routing-replay"),
        ("gspo", "clip-higher"),
        ("tis", "mis"),
        ("tis", "icepop"),
        ("tis", "dppo"),
        ("gspo", "cispo"),
        ("clip-higher", "entropy-bonus"),
        ("clip-cov", "kl-cov"),
        ("dr-grpo", "lite-ppo"),
        ("gdpo", "maxrl"),
        ("dynamic-sampling", "reinforce-rej"),
        ("routing-replay", "rspo"),
        ("larger-batch", "lower-learning-rate"),
    ],
)
def test_alternatives_share_a_slot(one: str, other: str) -> None:
    assert set(remedy_of(one).slots) & set(remedy_of(other).slots)


def test_what_changes_the_objective_is_not_called_safe() -> None:
    safe = {each.id for each in all_remedies() if each.applicability == "safe"}
    assert safe == {
        "clip-higher",
        "dynamic-sampling",
        "fewer-updates",
        "lower-learning-rate",
        "raise-learning-rate",
        "recompute-old-logprobs",
        "sync-sampler",
        "tis",
    }


def test_what_compares_within_groups_leaves_a_critic_alone() -> None:
    knobs = {"advantage": "gae", "aggregation": "token-mean", "dynamic_sampling": False}
    assert remedy_of("dynamic-sampling").change(knobs) == {}
    assert remedy_of("dr-grpo").change(knobs) == {"aggregation": "constant"}
    assert remedy_of("dr-grpo").change({**knobs, "aggregation": "constant"}) == {}


@EVERY
def test_alternatives_are_other_remedies(remedy: Remedy) -> None:
    assert set(remedy.alternatives) <= IDS - {remedy.id}
    assert len(remedy.alternatives) == len(set(remedy.alternatives))


@EVERY
def test_what_a_remedy_sets_is_valid(remedy: Remedy) -> None:
    for name, setting in {**remedy.settings, **remedy.requires}.items():
        assert KNOBS[name].check(setting) == setting
    for name, setting in remedy.restart_with.items():
        if name in KNOBS:
            assert KNOBS[name].check(setting) == setting
        else:
            assert name in {**ENGINE_SETTINGS, **METHOD_SETTINGS}
    assert remedy.restart_with.keys().isdisjoint(remedy.settings)


@pytest.mark.parametrize(
    ("remedy_id", "knobs", "readings", "why"),
    [
        ("clip-higher", {}, {"clip/high_rate": 0.0}, "no token is clipped at the upper bound"),
        ("clip-higher", {}, {"clip/high_rate": 0.01}, ""),
        ("clip-higher", {}, {}, ""),
        ("clip-higher", {"loss": "sapo"}, {}, "the loss sapo has no upper clip"),
        ("clip-higher", {"updates_per_batch": 1}, {}, "one update per batch"),
        ("clip-higher", {"updates_per_batch": 1, "old_logprobs": "sampler"}, {}, ""),
        ("longer-limit", {}, {"length/truncated_rate": 0.0}, "no response is truncated"),
        ("soft-overlong", {}, {"length/truncated_rate": 0.0}, "no response is truncated"),
        ("overlong-mask", {}, {"length/truncated_rate": 0.1}, ""),
        ("dynamic-sampling", {"advantage": "gae"}, {}, "the run has a critic"),
        ("dynamic-sampling", {}, {"groups/zero_variance_rate": 0.99}, "hardly any group"),
        ("kl-penalty", {}, {"kl/reference/k1": -2.0}, "the KL estimate is negative"),
        ("fewer-updates", {"updates_per_batch": 1}, {}, "one update"),
        ("gspo", {"loss": "cispo"}, {}, "the loss cispo replaces the clip"),
        ("mis", {"correction": "tis_token"}, {}, "it requires correction none"),
        ("mis", {"correction": "mis_sequence"}, {}, ""),
        ("cispo", {"loss": "sapo"}, {}, "the loss sapo replaces the clip"),
    ],
)
def test_a_remedy_without_its_mechanism_states_why(
    remedy_id: str, knobs: dict[str, Setting], readings: dict[str, float], why: str
) -> None:
    obstacle = remedy_of(remedy_id).obstacle(knobs, readings)
    assert obstacle.startswith(why)
    assert bool(obstacle) == bool(why)


def tuned(remedy_id: str, change: dict[str, Setting], readings: dict[str, float]) -> Setting:
    (value,) = remedy_of(remedy_id).tuned(change, readings).values()
    return value


def test_the_limit_follows_from_the_truncated_share() -> None:
    def limit(truncated: float) -> Setting:
        readings = {"length/truncated_rate": truncated, "length/max": 1024.0}
        return tuned("longer-limit", {"max_length": 2048}, readings)

    assert [limit(share) for share in (0.02, 0.1, 0.2, 0.9)] == [1280, 1792, 2048, 2048]
    assert tuned("longer-limit", {"max_length": 2048}, {}) == 2048


def test_the_cap_follows_from_the_gap_between_the_engines() -> None:
    def cap(gap: float) -> Setting:
        change: dict[str, Setting] = {"correction_cap": 2.0}
        return tuned("tis", change, {"mismatch/logprob_diff_mean": gap})

    assert [cap(gap) for gap in (0.0, 0.02, 0.15, 0.2, 0.3, 3.0)] == [2, 2, 2.5, 3.5, 6.4, 8]
    assert remedy_of("tis").tuned({}, {"mismatch/logprob_diff_mean": 0.3}) == {}


def test_the_learning_rate_follows_from_the_logged_one() -> None:
    unknown: dict[str, Setting] = {"learning_rate": "<current value / 3>"}
    readings = {"optimizer/learning_rate": 3e-6}
    assert tuned("lower-learning-rate", unknown, readings) == 1e-6
    assert tuned("lower-learning-rate", {"learning_rate": 2e-6}, readings) == 2e-6
    assert tuned("raise-learning-rate", unknown, readings) == 9e-6


def test_the_highest_learning_rate_of_a_long_run_counts() -> None:
    """A schedule has lowered the rate for longer than the kept readings reach back."""
    chart = Chart()
    for step in range(1000):
        rate = Mean.of([1e-5 * (1 - step / 1000)])
        chart.observe(StepRecord(step, {"optimizer/learning_rate": rate}))
    assert recent_readings(chart)["optimizer/learning_rate"] == pytest.approx(1e-5, rel=0.01)


def test_one_temperature_prints_both_keys_where_a_framework_has_two() -> None:
    remedy = remedy_of("one-temperature")

    def lines(framework: str) -> list[str]:
        return [each.line for each in framework_settings(remedy.restart_with, framework)]

    assert lines("skyrl")[:2] == [
        "generator.sampling_params.temperature=1.0",
        "trainer.algorithm.temperature=1.0",
    ]
    assert lines("areal")[:2] == ["gconfig.temperature=1.0", "actor.temperature=1.0"]
    assert lines("tinker_cookbook")[0] == "temperature=1.0"
