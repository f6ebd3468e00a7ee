"""The cause that a report names first, in runs in which one fault has several effects."""

from dataclasses import replace

import pytest

from grpodoctor.monitor.advice import advice_for, with_alternatives
from grpodoctor.monitor.diagnosis.first_action import first_action_of
from grpodoctor.monitor.diagnosis.problems import RunContext, problems_of
from grpodoctor.monitor.replay import replay
from grpodoctor.rules.base import Finding
from grpodoctor.rules.catalogue import all_rules, rule_of
from grpodoctor.runs.records import Manifest
from grpodoctor.vocabulary.values import Rate
from tests.rules.scenario import every, healthy, noisy, ramp, steps

FAILURES = {
    "DAT002": "tools/failure_rate",
    "DAT003": "rollouts/aborted_rate",
    "DAT004": "environment/invalid_action_rate",
}
REWARD, GRADIENT, LOSS, KL = (
    "reward/mean",
    "optimizer/grad_norm",
    "optimizer/loss",
    "kl/reference/k3",
)
QUIET = {
    "entropy/mean": noisy(0.4, 0.01, 1),
    "length/mean": noisy(600, 10, 2),
    GRADIENT: noisy(0.4, 0.03, 3),
}


def diagnosed(folder, curves, count=100, **knobs):
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_bytes(Manifest(knobs=knobs).to_json())
    records = steps(count, {**QUIET, **curves})
    (folder / "steps.jsonl").write_bytes(b"".join(record.to_line() for record in records))
    return replay(folder).report.diagnosis


def heads(diagnosis):
    """The alarms that head a problem, and the codes that each explains."""
    return {
        problem.cause.code: {symptom.finding.code for symptom in problem.symptoms}
        for problem in diagnosis.problems
        if problem.severity != "info"
    }


@pytest.mark.parametrize("code", FAILURES)
@pytest.mark.parametrize("length", [1, 40], ids=["at once", "slowly"])
def test_failures_that_climb_explain_the_fall_of_the_reward(tmp_path, code, length):
    diagnosis = diagnosed(
        tmp_path / "run",
        {
            FAILURES[code]: noisy(ramp(0.02, 0.8, length, begin=45), 0.01, 4),
            REWARD: noisy(ramp(0.5, 0.1, length, begin=45), 0.02, 5),
        },
        count=120,
    )
    assert diagnosis.verdict.code == code
    assert "reward fell from 0.5" in diagnosis.verdict.sentence
    assert "checkpoint" not in diagnosis.verdict.sentence
    assert "REW002" in heads(diagnosis)[code]


@pytest.mark.parametrize("code", FAILURES)
@pytest.mark.parametrize(
    "share",
    [0.6, ramp(0.02, 0.6, 10, begin=10), ramp(0.02, 0.13, 10, begin=45)],
    ids=["constant", "long before", "few"],
)
def test_failures_that_did_not_climb_with_the_fall_do_not_explain_it(tmp_path, code, share):
    reward = noisy(ramp(0.5, 0.1, 20, begin=75), 0.02, 5)
    curves = {FAILURES[code]: noisy(share, 0.01, 4), REWARD: reward}
    found = heads(diagnosed(tmp_path / "run", curves, count=130))
    assert "REW002" in found
    assert "REW002" not in found.get(code, ())


@pytest.mark.parametrize("code", ["DAT002", "DAT004"])
def test_a_policy_that_drifted_first_causes_its_failures(tmp_path, code):
    """A public run: KL to 3, then invalid actions to .94 while the score falls."""
    curves = {
        FAILURES[code]: noisy(ramp(0.02, 0.8, 20, begin=50), 0.01, 4),
        REWARD: noisy(ramp(0.5, 0.1, 20, begin=50), 0.02, 5),
        KL: noisy(ramp(0.01, 3.0, 20, begin=20), 0.01, 6),
    }
    diagnosis = diagnosed(tmp_path / "run", curves)
    assert diagnosis.verdict.code != code
    assert "REW002" not in heads(diagnosis).get(code, ())


def spiked(at, *, fall=50, kl=1.5):
    """A gradient, a loss and a KL that spike at a step, and a reward that falls at another."""

    def spike(usual, peak):
        return lambda step: peak if step == at else usual(step)

    return {
        GRADIENT: spike(noisy(0.4, 0.03, 3), 90.0),
        LOSS: spike(noisy(0.0, 0.01, 7, low=-1), 8.0),
        KL: noisy(lambda step: kl if step >= at else 0.001, 0.0001, 8),
        REWARD: noisy(lambda step: 0.4 if step < fall else 0.1, 0.02, 5),
    }


def test_a_spike_at_the_onset_explains_fall_and_drift(tmp_path):
    diagnosis = diagnosed(tmp_path / "run", spiked(50))
    (codes,) = heads(diagnosis).values()
    assert {"REW002", "KLD002"} <= codes
    sentence = diagnosis.verdict.sentence
    assert diagnosis.verdict.code == "OPT002"
    assert sentence.startswith("Reward fell from 0.4")
    assert "first, return to a checkpoint from before step 50, then" in sentence
    assert "Caused by OPT002 gradient-spike at step" in sentence


def test_a_policy_that_huge_gradients_ruin_loses_its_entropy_afterwards(tmp_path):
    """A public run: gradients of 713 times the median, a falling reward, then little entropy."""
    usual = noisy(4.0, 0.3, 3)
    curves = {
        GRADIENT: lambda step: usual(step) * (300 if step > 60 and step % 6 == 0 else 1),
        "kl/old_policy/k1": noisy(0.001, 0.0001, 8),
        REWARD: noisy(ramp(0.38, 0.06, 20, begin=65), 0.01, 5),
        "entropy/mean": noisy(ramp(1.1, 0.1, 20, begin=75), 0.02, 6),
    }
    diagnosis = diagnosed(tmp_path / "run", curves, count=110)
    assert diagnosis.verdict.code == "OPT002"
    assert {"REW002", "ENT001"} <= heads(diagnosis)["OPT002"]


@pytest.mark.parametrize("at", [25, 58])
def test_a_spike_at_another_time_explains_no_fall(tmp_path, at):
    found = heads(diagnosed(tmp_path / "run", spiked(at, kl=0.002)))
    assert "REW002" in found


def test_truncation_that_grew_after_a_fall_does_not_explain_it(tmp_path):
    """A reward of 1.8 that turns negative at once, and responses that grow forty steps later."""
    cut = noisy(ramp(0.06, 0.97, 20, begin=85), 0.01, 4)
    curves = {
        "length/truncated_rate": lambda step: 0.0 if step < 30 else cut(step),
        REWARD: noisy(lambda step: 1.8 if step < 60 else -0.1, 0.03, 5, low=-9),
    }
    found = heads(diagnosed(tmp_path / "run", curves, count=130))
    assert "REW002" not in found["LEN002"]
    together = {**curves, REWARD: noisy(ramp(1.8, -0.1, 20, begin=85), 0.03, 5, low=-9)}
    assert "REW002" in heads(diagnosed(tmp_path / "other", together, count=130))["LEN002"]


def test_evaluations_that_fell_come_before_training_prompts_that_are_solved(tmp_path):
    """A verifier that accepts anything: all groups are correct, and the evaluations fall again."""
    correct = [236, 256, 266, 307, 348, 369, 364, 374, 338, 317, 323, 312, 307]
    curves = {
        REWARD: noisy(ramp(0.6, 0.995, 70), 0.005, 5),
        "groups/all_correct_rate": noisy(ramp(0.1, 0.95, 70), 0.01, 4),
        "accuracy/heldout": every(10, lambda step: Rate(correct[step // 10], 512)),
    }
    found = heads(diagnosed(tmp_path / "run", curves, count=125))
    assert "GRP001" in found["REW003"]


LEVEL = {REWARD: noisy(0.3, 0.02, 5), GRADIENT: noisy(0.3, 0.01, 3)}
OTHER_CAUSES = {
    "MIS001": {"mismatch/logprob_diff_mean": noisy(0.17, 0.01, 4)},
    "DAT003": {"rollouts/aborted_rate": noisy(0.43, 0.02, 4)},
    "DAT004": {"environment/invalid_action_rate": noisy(0.89, 0.01, 4)},
    "GRP006": {"critic/explained_variance": noisy(-0.7, 0.5, 4, low=-9)},
    "GRP002": {"groups/all_incorrect_rate": noisy(0.7, 0.02, 4), REWARD: noisy(0.05, 0.005, 5)},
}


def test_level_responses_alone_are_small_updates(tmp_path):
    assert list(heads(diagnosed(tmp_path / "run", LEVEL))) == ["OPT005"]


@pytest.mark.parametrize("code", OTHER_CAUSES)
def test_level_responses_with_another_cause_are_no_problem_of_their_own(tmp_path, code):
    found = heads(diagnosed(tmp_path / "run", LEVEL | OTHER_CAUSES[code]))
    assert list(found) == [code]
    assert "OPT005" in found[code]


def test_updates_that_are_measured_as_small_remain_a_cause(tmp_path):
    curves = LEVEL | OTHER_CAUSES["MIS001"] | {KL: noisy(2e-5, 1e-6, 6)}
    assert set(heads(diagnosed(tmp_path / "run", curves))) == {"MIS001", "OPT005"}


@pytest.mark.parametrize("seed", range(5))
def test_healthy_agents_with_failures_and_spikes_have_no_alarm(tmp_path, seed):
    curves = healthy(seed) | {
        "tools/failure_rate": noisy(ramp(0.3, 0.05, 60), 0.02, seed),
        "environment/invalid_action_rate": noisy(ramp(0.3, 0.02, 60), 0.02, seed + 50),
        "critic/explained_variance": noisy(ramp(-0.3, 0.5, 25), 0.1, seed, low=-9),
        "experts/replay_fallback_rate": 0.0,
        "correction/weight_mean": noisy(0.99, 0.01, seed),
    }
    assert heads(diagnosed(tmp_path / "run", curves)) == {}


def cut(length, entropy):
    """Every response is cut at a limit, with an entropy of the sampled tokens."""
    return {
        "entropy/mean": noisy(entropy, 0.05, 4),
        "length/mean": length,
        "length/max": length,
        "length/truncated_rate": 1.0,
        REWARD: noisy(0.03, 0.01, 5),
    }


def test_a_short_limit_that_every_response_reaches_comes_before_the_entropy(tmp_path):
    short = diagnosed(tmp_path / "short", cut(40, 2.6))
    assert short.verdict.code == "LEN002"
    assert "ENT006" in heads(short)
    long = diagnosed(tmp_path / "long", cut(900, 2.6))
    assert long.verdict.code == "ENT006"


def truncated(share, begin=85):
    """A run whose reward falls from `begin` on, with a truncated share."""
    return {
        "length/truncated_rate": noisy(share, 0.004, 4),
        REWARD: noisy(ramp(0.5, 0.1, 20, begin=begin), 0.02, 5),
    }


def test_truncation_that_was_always_there_does_not_explain_a_later_fall(tmp_path):
    diagnosis = diagnosed(tmp_path / "run", truncated(0.6), count=130)
    assert diagnosis.verdict.code == "REW002"
    assert "REW002" not in heads(diagnosis)["LEN002"]


@pytest.mark.parametrize(
    "curves",
    [truncated(ramp(0.4, 0.8, 20, begin=85)), truncated(0.6, begin=12)],
    ids=["it grew with the fall", "an early fall"],
)
def test_truncation_explains_a_fall_that_it_grew_or_began_with(tmp_path, curves):
    diagnosis = diagnosed(tmp_path / "run", curves, count=130)
    assert diagnosis.verdict.code == "LEN002"
    assert "REW002" in heads(diagnosis)["LEN002"]


@pytest.mark.parametrize(("share", "first"), [(0.55, "GRP002"), (0.97, "LEN002")])
def test_truncation_is_no_reason_for_a_zero_reward_where_responses_end(tmp_path, share, first):
    """A public run: 55 % were cut, and those that ended earned 0 too."""
    curves = {
        "length/truncated_rate": noisy(share, 0.01, 4),
        REWARD: 0.0,
        "groups/all_incorrect_rate": 1.0,
        "groups/zero_variance_rate": 1.0,
    }
    diagnosis = diagnosed(tmp_path / "run", curves, count=40)
    assert diagnosis.verdict.code == first
    assert ("GRP002" in heads(diagnosis)) is (first == "GRP002")


LENGTH, TRUNCATED, HELDOUT = "length/mean", "length/truncated_rate", "accuracy/heldout"


def harder_prompts(heldout, length):
    """From step 60 on hardly any response succeeds, and most are truncated."""
    return {
        REWARD: noisy(ramp(0.85, 0.1, 1, begin=60), 0.02, 5),
        LENGTH: noisy(ramp(400, length, 1, begin=60), 10, 6),
        TRUNCATED: noisy(ramp(0.01, 0.6, 1, begin=60), 0.005, 7),
        **({HELDOUT: every(5, heldout)} if heldout else {}),
    }


@pytest.mark.parametrize("heldout", [noisy(0.7, 0.01, 8), noisy(ramp(0.7, 0.67, 20), 0.01, 8)])
def test_held_out_prompts_that_are_solved_as_before_clear_the_policy(tmp_path, heldout):
    diagnosis = diagnosed(tmp_path / "run", harder_prompts(heldout, 900), count=110)
    assert diagnosis.verdict.code == "REW002"
    assert "while held-out accuracy stayed at" in diagnosis.verdict.sentence
    assert "checkpoint" not in diagnosis.verdict.sentence
    assert "LEN002" in heads(diagnosis)["REW002"]


@pytest.mark.parametrize(
    "heldout",
    [None, noisy(ramp(0.7, 0.1, 1, begin=60), 0.01, 8), 0.7],
    ids=["no evaluation", "held-out prompts fail too", "one evaluation is repeated"],
)
def test_a_fall_that_evaluations_do_not_contradict_is_due_to_truncation(tmp_path, heldout):
    diagnosis = diagnosed(tmp_path / "run", harder_prompts(heldout, 440), count=110)
    assert diagnosis.verdict.code == "LEN002"
    assert "stayed at" not in diagnosis.verdict.sentence


def test_a_lower_limit_is_named_before_the_fall_that_it_causes(tmp_path):
    curves = harder_prompts(noisy(0.7, 0.01, 8), 200)
    diagnosis = diagnosed(tmp_path / "run", curves, count=110)
    assert diagnosis.verdict.code == "LEN002"
    assert "REW002" in heads(diagnosis)["LEN002"]


def _first_action(rule, framework, **resolved):
    cause = Finding(
        rule.code, rule.name, "warning", 10, 50, True, "It is wrong.", (), rule.remedies, ()
    )
    (problem,) = problems_of([cause], RunContext(rules={rule.code: rule}))
    ids = with_alternatives(rule.remedies)
    advice = {each: replace(advice_for(each, {}, framework), **resolved) for each in ids}
    return first_action_of(problem, advice)


@pytest.mark.parametrize("framework", ["trl", "verl", "acme"])
def test_every_alarm_has_a_first_action(framework):
    info_only = {"INS002", "INS003", "CLP002"}
    for rule in all_rules():
        if rule.code not in info_only:
            assert _first_action(rule, framework), rule.code


def test_without_a_remedy_that_can_help_the_first_action_is_the_test_of_the_cause():
    obstructed = {"obstacle": "the framework always does this"}
    action = _first_action(rule_of("CLP001"), "trl", **obstructed)
    assert action.startswith("Log the importance ratio before the first update")
    assert "hand" in _first_action(rule_of("INS001"), "verl")


def test_a_log_that_disagrees_with_its_dump_says_what_to_do_first(tmp_path):
    curves = {REWARD: 0.9, f"{REWARD}/recomputed": 0.45}
    sentence = diagnosed(tmp_path / "run", curves, 20).verdict.sentence
    assert "first, recompute the logged value" in sentence


def test_a_penalty_that_holds_the_policy_is_lowered_first(tmp_path):
    curves = {REWARD: noisy(0.3, 0.01, 5), KL: noisy(4e-4, 5e-5, 6)}
    plain = diagnosed(tmp_path / "a", curves)
    assert plain.verdict.code == "OPT005"
    assert "first, lower the KL coefficient" not in plain.verdict.sentence
    logged = diagnosed(tmp_path / "b", {**curves, "optimizer/kl_coefficient": 0.3})
    assert "first, lower the KL coefficient to 0.001" in logged.verdict.sentence
    weak = diagnosed(tmp_path / "c", {**curves, "optimizer/kl_coefficient": 0.01})
    assert weak.verdict.sentence == plain.verdict.sentence


@pytest.mark.parametrize(("shown", "count"), [(None, 2), ("environment-change", 1)])
def test_a_changed_environment_links_findings_only_if_one_shows_it(shown, count):
    """A wrong reward leads to a fall of the reward only through another environment."""
    rules = [rule_of("REW010"), rule_of("REW002")]
    findings = [
        Finding(rule.code, rule.name, "warning", onset, 90, True, "It is wrong.", (), (), (), each)
        for rule, onset, each in zip(rules, (10, 20), (None, shown), strict=True)
    ]
    context = RunContext(rules={rule.code: rule for rule in rules})
    assert len(problems_of(findings, context)) == count


def test_a_collapse_onto_one_reward_is_dated_to_the_collapse(tmp_path):
    """A public run: a constant reward since step 11 is what an earlier collapse leads to."""
    settled = ramp(-2.1, -1.0, 8)
    diagnosis = diagnosed(
        tmp_path / "run",
        {
            "entropy/mean": ramp(0.5, 0.04, 6),
            "length/mean": ramp(477, 120, 8),
            REWARD: settled,
            "reward/max": lambda step: -0.5 if step < 11 else settled(step),
            "reward/min": lambda step: -19.0 if step < 6 else settled(step),
        },
        count=46,
    )
    assert diagnosis.verdict.code == "ENT001"
    assert diagnosis.verdict.since <= 6
    assert {"GRP004", "LEN005"} <= heads(diagnosis)["ENT001"]
    assert "return to a checkpoint from before step" in diagnosis.verdict.sentence
