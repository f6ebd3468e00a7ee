import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.errors import ConfigError
from grpodoctor.remedies.base import Remedy
from grpodoctor.remedies.catalogue import all_remedies, remedy_of
from grpodoctor.vocabulary.knobs import KNOBS, Setting, check_change
from grpodoctor.vocabulary.metrics import metric_of

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
    "learning_rate": 1e-6,
    "temperature": 1.0,
    "updates_per_batch": 16,
    "max_length": 4096,
    "sampler_sync_every": 8,
    "routing_replay": "none",
}
IDS = {
    "balance-experts",
    "check-loss-mask",
    "check-routing-replay",
    "clip-higher",
    "dr-grpo",
    "dynamic-sampling",
    "easier-prompts",
    "fewer-updates",
    "gspo",
    "harder-prompts",
    "higher-precision-sampler",
    "kl-penalty",
    "larger-groups",
    "longer-limit",
    "lower-learning-rate",
    "lower-temperature",
    "overlong-mask",
    "raise-temperature",
    "recheck-reward",
    "recompute-old-logprobs",
    "routing-replay",
    "soft-overlong",
    "stop-training",
    "sync-sampler",
    "tis",
    "token-level-loss",
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
EVERY = pytest.mark.parametrize("remedy", all_remedies(), ids=lambda each: each.id)


def test_every_expected_remedy_is_found_and_sorted_by_id() -> None:
    assert {remedy.id for remedy in all_remedies()} >= IDS
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
    change = remedy.change(UNTREATED)
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
    once = {**UNTREATED, **remedy.change(UNTREATED)}
    gradual = {
        "fewer-updates",
        "kl-penalty",
        "longer-limit",
        "lower-learning-rate",
        "lower-temperature",
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
        ("kl-penalty", {"kl_coefficient": 0.04}, {"kl_coefficient": 0.08}),
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
        "recompute-old-logprobs",
        "sync-sampler",
        "tis",
    }


def test_what_compares_within_groups_leaves_a_critic_alone() -> None:
    knobs = {"advantage": "gae", "aggregation": "token-mean", "dynamic_sampling": False}
    assert remedy_of("dynamic-sampling").change(knobs) == {}
    assert remedy_of("dr-grpo").change(knobs) == {"aggregation": "constant"}
    assert remedy_of("dr-grpo").change({**knobs, "aggregation": "constant"}) == {}
