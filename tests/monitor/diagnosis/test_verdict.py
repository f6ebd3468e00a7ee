from dataclasses import replace

import pytest

from grpodoctor.monitor.diagnosis.costs import Cost
from grpodoctor.monitor.diagnosis.coverage import Coverage
from grpodoctor.monitor.diagnosis.diagnose import constant_outcome, other_training
from grpodoctor.monitor.diagnosis.missing_reward import missing_reward
from grpodoctor.monitor.diagnosis.problems import Problem, Symptom, TreatedCause
from grpodoctor.monitor.diagnosis.verdict import RunEvidence, verdict_of
from tests.monitor.diagnosis.test_problems import finding
from tests.rules.scenario import Patient, steps

EVIDENCE = RunEvidence(
    steps=100, readings=100, coverage=Coverage(ran=20, rules=30), progress="reward 0.1 → 0.6"
)


def problem(code, condition="truncation", cost=None, **facts):
    return Problem(finding(code, **facts), condition, cost or Cost(91))


def test_a_healthy_run_states_its_progress_and_its_coverage():
    spike = problem("OPT002", "gradient-spike", severity="info")
    verdict = verdict_of([spike], EVIDENCE, "")
    assert verdict.line == (
        "Healthy: reward 0.1 → 0.6 over 100 steps; 20 of 30 rules ran and found no fault."
    )


@pytest.mark.parametrize("rose", [True, False])
def test_a_note_that_questions_the_reward_is_part_of_the_verdict(rose):
    note = problem("REW013", "wrong-reward", severity="info")
    verdict = verdict_of([note], replace(EVIDENCE, rose=rose), "")
    assert verdict.line.endswith(f"and found no fault, but note REW013: {note.cause.summary}")
    over = replace(note, cause=note.cause.resolved())
    assert "but note" not in verdict_of([over], EVIDENCE, "").line


def test_a_note_that_outlasts_the_alarm_before_it_is_part_of_the_verdict():
    longer = problem("LEN006", "length-growth", last=30, active=False)
    note = finding("REW002", severity="info")
    symptom = Symptom(note, ("length-growth", "truncation", "reward-loss"))
    verdict = verdict_of([replace(longer, symptoms=(symptom,))], EVIDENCE, "")
    assert f"but note REW002: {note.summary}" in verdict.line
    over = replace(symptom, finding=note.resolved())
    assert "but note" not in verdict_of([replace(longer, symptoms=(over,))], EVIDENCE, "").line


@pytest.mark.parametrize("condition", ["wrong-advantages", "engine-mismatch", "length-growth"])
def test_a_note_on_what_success_does_not_cause_is_part_of_the_verdict(condition):
    note = problem("GRP005", condition, severity="info")
    assert "but note GRP005" in verdict_of([note], EVIDENCE, "").line
    low_entropy = problem("ENT001", "entropy-loss", severity="info")
    assert "but note" not in verdict_of([low_entropy], EVIDENCE, "").line


def test_the_first_action_of_a_flat_run_comes_before_a_note_that_it_does_not_concern():
    note = problem("KLD003", "wrong-reference", severity="info")
    flat = replace(EVIDENCE, rose=False)
    line = verdict_of([note], replace(flat, no_rise_action="Restart with a larger batch"), "").line
    summary = note.cause.summary.rstrip(".")
    assert line.endswith(
        f"found no fault; first, restart with a larger batch. Note KLD003: {summary}."
    )
    assert f"found no fault, but note KLD003: {summary}" in verdict_of([note], flat, "").line


def test_solved_prompts_do_not_hide_a_note():
    solved = problem("GRP001", "solved", severity="info")
    note = problem("KLD003", "wrong-reference", severity="info")
    verdict = verdict_of([solved, note], EVIDENCE, "")
    assert verdict.kind == "solved"
    assert f", but note KLD003: {note.cause.summary.rstrip('.')}; stop" in verdict.line


def test_a_solved_run_names_a_collapse_that_is_over_and_its_cause():
    solved = problem("GRP001", "solved", severity="info")
    fall = finding("REW002", onset=60, last=72, active=False)
    replaced = problem("SYN009", "other", onset=60, last=70, active=False)
    past = replace(replaced, symptoms=(Symptom(fall, ("other", "reward-loss")),))
    line = verdict_of([solved, past], EVIDENCE, "").line
    assert "Resolved: REW002 reward-collapse at steps 60 to 72, caused by SYN009" in line
    truncated = problem("LEN002", last=60, active=False)
    assert "Resolved" not in verdict_of([solved, truncated], EVIDENCE, "").line


@pytest.mark.parametrize("rose", [True, False])
def test_prompts_that_are_never_solved_are_noted_where_the_reward_rises(rose):
    note = problem("GRP002", "zero-rewards", severity="info")
    verdict = verdict_of([note], replace(EVIDENCE, rose=rose), "")
    assert ("but note GRP002" in verdict.line) == rose


def test_a_group_of_one_is_noted_although_the_reward_rises():
    """Other findings with its condition are about choices that a rise excuses."""
    note = problem("CFG006", "wrong-advantages", severity="info")
    verdict = verdict_of([note], EVIDENCE, "")
    assert verdict.line.endswith(f"and found no fault, but note CFG006: {note.cause.summary}")
    other = problem("CFG020", "wrong-advantages", severity="info")
    assert "but note" not in verdict_of([other], EVIDENCE, "").line


@pytest.mark.parametrize("severity", ["warning", "critical"])
def test_a_resolved_fault_states_what_was_found_if_it_was_critical(severity):
    over = problem("OPT004", severity=severity)
    cause = replace(over.cause.resolved(), summary="The loss is 6e+11: no bound.")
    over = replace(over, cause=cause)
    line = verdict_of([over], replace(EVIDENCE, rose=False), "").line
    assert ("(the loss is 6e+11: no bound)" in line) is (severity == "critical")


@pytest.mark.parametrize(
    ("code", "facts", "is_named"),
    [
        ("KLD002", {"onset": 50}, True),
        ("KLD002", {"onset": 85}, False),
        ("KLD002", {"onset": 50, "severity": "info"}, False),
        ("KLD002", {"onset": 50, "active": False}, False),
        ("GRP002", {"onset": 1}, False),
        ("CFG050", {"onset": 50}, False),
    ],
    ids=["before", "at the onset", "a note", "over", "from the start", "a setting"],
)
def test_an_event_before_the_fault_is_named_after_it(code, facts, is_named):
    fall = problem("REW002", "reward-loss", severity="critical", onset=92)
    earlier = problem(code, "reference-drift", **facts)
    evidence = replace(EVIDENCE, opening=11.0, slack=10.0)
    line = verdict_of([fall, earlier], evidence, "").line
    assert line.endswith(f" Earlier: {code} {earlier.cause.name}, since step 50.") is is_named
    assert ("Earlier" in line) is is_named


def test_a_fault_that_was_there_before_says_when():
    noise = finding("ENT002", "critical", onset=114)
    before = finding("ENT002", "critical", onset=10, last=61, active=False)
    symptoms = (Symptom(before, ("entropy-rise",)),)
    again = Problem(noise, "entropy-rise", Cost(3), symptoms)
    line = verdict_of([again], replace(EVIDENCE, opening=11.0, slack=10.0), "").line
    assert line.startswith("Sick since step 114")
    assert line.endswith(" Earlier: the same at steps 10 to 61.")


def test_progress_is_over_the_steps_of_the_run_also_if_every_tenth_is_logged():
    assert "0.6 over 991 steps;" in verdict_of([], replace(EVIDENCE, span=991), "").line


def test_a_run_without_a_rise_is_not_called_healthy():
    verdict = verdict_of([], replace(EVIDENCE, progress="reward 0.2 → 0", rose=False), "")
    assert verdict.kind == "flat"
    assert verdict.line.startswith("Flat: reward 0.2 → 0 over 100 steps, no lasting rise; 20")
    noisy = verdict_of([], replace(EVIDENCE, noise=0.0949, rose=False), "")
    assert "no rise beyond its noise of 0.095; 20 of" in noisy.line
    fallen = verdict_of(
        [], replace(EVIDENCE, noise=0.0949, fall="reward fell from 1 to 0.5", rose=False), ""
    )
    assert "a fall beyond its noise of 0.095; 20 of" in fallen.line


def test_the_first_sentence_of_a_sick_run_says_what_and_what_first():
    """The other faults are listed right below it."""
    cost = Cost(91, rollouts_without_gradient=0.8, hours=3.0)
    faults = [problem(code, cost=cost) for code in ("LEN002", "MIS001", "REW009", "ENT001")]
    first, _, further = verdict_of(faults, EVIDENCE, "Raise the limit").line.partition(". ")
    assert first.split("; ")[1:] == ["first, raise the limit."]
    assert further == ""


def test_a_sick_run_states_what_since_when_the_cost_and_what_to_do():
    cost = Cost(91, rollouts_without_gradient=0.8, hours=3.0, gpus=8)
    verdict = verdict_of([problem("LEN002", cost=cost)], EVIDENCE, "Raise the limit")
    assert verdict.line == (
        "Sick since step 10 (91 steps, 24 GPU-hours): LEN002 at .5, with 80% of rollouts in "
        "zero-variance groups; first, raise the limit."
    )
    equal = problem("GRP004", cost=cost)
    equal = replace(equal, cause=replace(equal.cause, summary="80% of groups have equal rewards."))
    line = verdict_of([equal], EVIDENCE, "").line
    assert line == "Sick since step 10 (91 steps, 24 GPU-hours): 80% of groups have equal rewards."


def test_what_is_not_logged_is_said_once():
    untruncated = problem("LEN003")
    cause = replace(untruncated.cause, summary="Mean length is 90%; truncation is not logged.")
    action = "Raise the limit if responses are truncated (not logged)"
    verdict = verdict_of([replace(untruncated, cause=cause)], EVIDENCE, action)
    assert verdict.line.endswith("first, raise the limit if responses are truncated.")
    other = verdict_of([untruncated], EVIDENCE, action)
    assert other.line.endswith("if responses are truncated (not logged).")


@pytest.mark.parametrize(("hours", "shown"), [(1 / 60, "1 minute"), (0.2, "12 minutes")])
def test_a_short_time_is_in_minutes(hours, shown):
    verdict = verdict_of([problem("LEN002", cost=Cost(91, hours=hours))], EVIDENCE, "")
    assert f"since step 10 (91 steps, {shown}): " in verdict.line


def test_a_run_whose_problems_are_resolved_is_healthy():
    resolved = problem("LEN002", last=60, active=False)
    verdict = verdict_of([resolved], EVIDENCE, "Raise the limit")
    assert verdict.line == (
        "Healthy: reward 0.1 → 0.6 over 100 steps; 20 of 30 rules ran and found no active fault; "
        "resolved: LEN002 truncated-responses at steps 10 to 60."
    )
    note = Symptom(finding("REW001", "info"), ("truncation",))
    assert verdict_of([replace(resolved, symptoms=(note,))], EVIDENCE, "").kind == "healthy"
    active = problem("REW002", "reward-loss")
    assert verdict_of([active, resolved], EVIDENCE, "").line.startswith(
        "Sick since step 10 (91 steps): REW002"
    )
    assert "LEN002" not in verdict_of([active, resolved], EVIDENCE, "").line


def test_a_cause_that_is_over_is_named_as_past():
    lost = Symptom(finding("REW002", onset=49), ("clipped-tokens", "reward-loss"))
    over = problem("CLP001", "clipped-tokens", last=21, active=False, onset=3, cost=Cost(52))
    verdict = verdict_of([replace(over, symptoms=(lost,))], EVIDENCE, "Make fewer updates")
    assert verdict.line == (
        "Sick since step 49 (52 steps): REW002 at .5; first, make fewer updates. Caused by CLP001 "
        "high-clip-fraction at steps 3 to 21."
    )
    assert (verdict.since, verdict.code) == (49, "CLP001")


def test_the_fall_of_the_reward_that_a_fault_explains_is_in_the_sentence():
    """It is what the user has noticed; the cause alone reads like another problem."""
    lost = Symptom(finding("REW002", onset=13), ("gradient-spike", "reward-loss"))
    spikes = replace(problem("OPT002", "gradient-spike"), symptoms=(lost,))
    line = verdict_of([spikes], EVIDENCE, "Divide the rate").line
    assert line == (
        "Sick since step 10 (91 steps): OPT002 at .5, and REW002 at .5; first, divide the rate."
    )
    over = Symptom(finding("REW002", last=60, active=False), ("gradient-spike", "reward-loss"))
    assert "REW002" not in verdict_of([replace(spikes, symptoms=(over,))], EVIDENCE, "").line


def test_a_treated_fault_is_named_as_resolved():
    """It does not introduce the run, although it was more severe."""
    over = problem("MIS002", "wrong-old-logprobs", severity="critical", last=36, active=False)
    treated = replace(over, is_treated=True)
    active = problem("MIS003", "off-policy")
    assert verdict_of([active, treated], EVIDENCE, "Correct it").line == (
        "Sick since step 10 (91 steps): MIS003 at .5; first, correct it. Resolved: MIS002 "
        "importance-ratio-not-one at steps 10 to 36."
    )
    assert "MIS002" not in verdict_of([active, over], EVIDENCE, "Correct it").line
    from_it = replace(active, origin=TreatedCause(over.cause))
    line = verdict_of([from_it, treated], EVIDENCE, "Correct it").line
    assert "It followed MIS002 importance-ratio-not-one at steps 10 to 36" in line
    assert line.count("MIS002") == 1
    assert verdict_of([treated], EVIDENCE, "").kind == "healthy"


def test_a_solved_run_is_told_to_stop_and_not_to_go_back():
    solved = problem("REW006", "solved", severity="info")
    verdict = verdict_of([solved], EVIDENCE, "Stop training")
    assert verdict.kind == "solved"
    assert verdict.line.endswith("stop and keep this checkpoint.")
    mild = problem("MIS001", "engine-mismatch")
    assert verdict_of([mild, solved], EVIDENCE, "x").kind == "solved"
    assert "Also MIS001 engine-mismatch." in verdict_of([mild, solved], EVIDENCE, "x").line


def test_a_full_reward_from_the_first_reading_is_not_to_be_kept():
    solved = problem("REW006", "solved", severity="info")
    given = replace(solved, cause=replace(solved.cause, remedies=("recheck-reward",)))
    assert verdict_of([given], EVIDENCE, "").line.endswith("check that wrong responses earn less.")


def test_a_high_reward_is_no_success_if_it_is_hacked_or_the_run_breaks():
    solved = problem("REW006", "solved", severity="info")
    for code, condition, severity in (
        ("REW005", "reward-hacking", "warning"),
        ("REW003", "held-out-loss", "warning"),
        ("OPT003", "non-finite", "critical"),
    ):
        broken = problem(code, condition, severity=severity)
        assert verdict_of([broken, solved], EVIDENCE, "").kind == "sick"


def test_solved_training_prompts_are_no_success_if_held_out_ones_are_not():
    warned = problem("GRP001", "solved", severity="warning")
    verdict = verdict_of([warned], EVIDENCE, "Train on harder prompts")
    assert verdict.kind == "sick"
    assert "first, train on harder prompts" in verdict.line


def test_a_short_run_is_not_called_healthy():
    verdict = verdict_of([], replace(EVIDENCE, readings=7), "")
    assert verdict.kind == "too short"
    assert verdict.line.startswith("Too short: 7 of the 20 reward readings")
    assert verdict_of([problem("LEN002")], replace(EVIDENCE, readings=7), "").kind == "sick"


def test_a_run_without_a_reward_is_not_examined():
    nothing = replace(EVIDENCE, readings=0)
    verdict = verdict_of([problem("OPT002", severity="info")], nothing, "")
    assert verdict.kind == "not examined"
    assert "no reward was found in 100 steps; name its key with --map" in verdict.line
    assert verdict_of([], replace(EVIDENCE, coverage=Coverage(0, 5)), "").kind == "not examined"


LOSSES = ["optimizer/loss", "optimizer/grad_norm", "optimizer/learning_rate", "time/step"]


@pytest.mark.parametrize(
    ("metrics", "unmapped", "components", "said"),
    [
        (LOSSES, ["epoch", "train_runtime"], [], "as in supervised training"),
        (LOSSES, ["epoch", "my_score"], [], "name its key"),
        ([*LOSSES, "entropy/mean"], ["epoch"], [], "name its key"),
        (LOSSES[1:], [], [], "name its key"),
        (LOSSES[:1], [], [], "name its key"),  # the table of a notebook
        (LOSSES, [], ["rewards/format/mean", "rewards/b/mean"], "--map rewards/b/mean=reward/mean"),
        (LOSSES, [], ["rewards/format/mean"], "--map rewards/format/mean=reward/mean"),
    ],
)
def test_a_log_without_a_reward_says_what_it_has(metrics, unmapped, components, said):
    hint = missing_reward(metrics, unmapped, components)
    assert said in hint
    assert "--map" in hint
    verdict = verdict_of([], replace(EVIDENCE, readings=0, missing_reward=hint), "")
    assert verdict.line == f"Not examined: no reward was found in 100 steps; {hint}."


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"train/logps/chosen", "train/logps/rejected"}, "preference optimization"),
        ({"min_reward", "mean_reward", "max_reward", "margin"}, "reward modeling"),
        ({"mean_token_accuracy", "num_tokens"}, "supervised fine-tuning"),
        ({"num_tokens", "epoch"}, ""),
    ],
)
def test_a_log_of_another_kind_of_training_is_not_judged(keys, kind):
    why = other_training(keys)
    assert (kind in why) if kind else why == ""
    judged = replace(EVIDENCE, readings=0, why_not_judged=why)
    verdict = verdict_of([problem("ENT001", "entropy-loss")], judged, "")
    assert verdict.kind == ("not examined" if kind else "sick")


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        ("Entropy is 2 times its start, and reward fell from 0.9 to 0.1.", "Entropy is 2 times its "
         "start, and reward fell from 0.96 (step 50) to 0"),
        ("Mean length rose to 512 tokens while reward fell from 0.9 to 0.", "Mean length rose to "
         "512 tokens, and reward fell from 0.96 (step 50) to 0"),
        ("Reward fell from 0.9 to 0 while length rose.", "Reward fell from 0.9 to 0 while length "
         "rose"),
        ("Entropy is 2, and accuracy fell from 0.9 to 0.1.", "Entropy is 2, and accuracy fell from "
         "0.9 to 0.1, and reward fell from 0.96 (step 50) to 0"),
    ],
)  # fmt: skip
def test_a_fall_of_the_reward_is_stated_once(fault, shown):
    loss = replace(finding("REW002"), summary="Reward fell from 0.96 (step 50) to 0.")
    cause = replace(finding("ENT002"), summary=fault)
    symptoms = (Symptom(loss, ("entropy-rise", "reward-loss")),)
    sick = Problem(cause, "entropy-rise", Cost(91), symptoms)
    assert verdict_of([sick], EVIDENCE, "").sentence == f"{shown}."


def test_a_worse_fault_that_came_back_is_named_as_resolved():
    once = problem("LEN002", severity="critical", last=40, active=False)
    again = finding("LEN002", onset=50, last=70, active=False)
    twice = replace(once, symptoms=(Symptom(again, ("truncation",)),))
    setting = problem("CFG021", "off-policy", onset=1)
    assert "LEN002" not in verdict_of([setting, once], EVIDENCE, "").line
    line = verdict_of([setting, twice], EVIDENCE, "").line
    assert line.endswith("Resolved: LEN002 truncated-responses at steps 10 to 70.")
    critical = replace(setting, cause=replace(setting.cause, severity="critical"))
    assert "LEN002" not in verdict_of([critical, twice], EVIDENCE, "").line


def test_a_failed_rule_is_counted_in_the_first_line():
    coverage = Coverage(ran=19, rules=30, failed=1)
    assert (
        "19 of 30 rules ran (1 failed) and"
        in verdict_of([], replace(EVIDENCE, coverage=coverage), "").line
    )


def test_a_second_critical_fault_that_began_at_the_same_time_is_named():
    evidence = replace(EVIDENCE, slack=10.0)
    first = problem("ENT002", "entropy-rise", severity="critical", onset=40)
    line = verdict_of([first, problem("MIS001", "engine-mismatch", severity="critical", onset=45)],
                      evidence, "").line  # fmt: skip
    assert line.endswith(" Also: MIS001 engine-mismatch, since step 45.")
    for facts in ({"severity": "warning", "onset": 45}, {"severity": "critical", "onset": 70}):
        other = problem("MIS001", "engine-mismatch", **facts)
        assert "Also" not in verdict_of([first, other], evidence, "").line


def test_a_fall_that_a_fault_explains_is_part_of_the_verdict():
    """The name of REW020, no-rise, hides that the reward fell."""
    fall = "reward fell from 0.2 to 0.05"
    cause = problem("LEN003", "truncation")
    symptom = Symptom(finding("REW020", "info"), ("truncation", "plateau"))
    explained = replace(cause, symptoms=(symptom,))
    assert f", and {fall}" in verdict_of([explained], replace(EVIDENCE, fall=fall), "").line
    assert fall not in verdict_of([cause], replace(EVIDENCE, fall=fall), "").line
    assert "fell" not in verdict_of([explained], EVIDENCE, "").line
    stated = replace(cause.cause, summary="Reward fell from 0.3 (best, around step 9) to 0.05.")
    twice = replace(explained, cause=stated)
    assert fall not in verdict_of([twice], replace(EVIDENCE, fall=fall), "").line


CONSTANT = replace(
    EVIDENCE, steps=10, readings=10, rose=False, constant="the reward is 0 in all of them"
)


def test_a_short_run_states_a_reward_without_variation_and_its_explanation():
    note = problem("OPT001", "zero-gradient", severity="info")
    line = verdict_of([note], CONSTANT, "").line
    assert line == (
        "Too short: 10 of the 20 reward readings that a verdict needs; the reward is 0 in all of "
        "them; 20 of 30 rules ran and found no fault so far, but note OPT001: "
        f"{note.cause.summary}"
    )
    over = replace(note, cause=note.cause.resolved())
    assert "but note" not in verdict_of([over], CONSTANT, "").line
    other = problem("LEN006", "length-growth", severity="info")
    assert "but note" not in verdict_of([other], CONSTANT, "").line
    varied = verdict_of([note], replace(CONSTANT, constant=""), "").line
    assert varied.endswith("rules ran and found no fault so far.")


def test_a_log_without_steps_names_the_error_with_which_it_ends():
    empty = replace(EVIDENCE, steps=0, readings=0, crash="the log ends with an error: KeyError: 1")
    assert verdict_of([], empty, "").line == (
        "Not examined: no step was read; the log ends with an error: KeyError: 1."
    )


@pytest.mark.parametrize(
    ("values", "stated"),
    [
        ((0.0, 0.0, 0.0), "the reward is 0 in all of them"),
        ((0.5,) * 19, "the reward is 0.5 in all of them"),
        ((0.0, 0.0), ""),
        ((0.0, 0.0, 0.1), ""),
        ((0.5,) * 20, ""),
    ],
)
def test_a_constant_reward_is_stated_from_three_readings_on(values, stated):
    curves = {"reward/mean": list(values)}
    chart = Patient(steps(len(values), curves)).engine.chart
    assert constant_outcome(chart) == stated
