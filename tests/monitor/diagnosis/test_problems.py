from dataclasses import replace

import pytest

from grpodoctor.monitor.diagnosis.costs import Cost
from grpodoctor.monitor.diagnosis.problems import RunContext, problems_of
from grpodoctor.rules.base import Evidence, Finding
from grpodoctor.rules.catalogue import all_rules, rule_of

RULES = {rule.code: rule for rule in all_rules()}


def finding(code, severity="warning", onset=10, last=100, *, active=True):
    return Finding(
        code=code,
        name=rule_of(code).name,
        severity=severity,
        onset_step=onset,
        last_step=last,
        active=active,
        summary=f"{code} at .5.",
        evidence=(),
        remedies=(),
        references=(),
    )


def causes(*findings, **context):
    problems = problems_of(findings, RunContext(rules=RULES, **context))
    return {
        problem.cause.code: [symptom.finding.code for symptom in problem.symptoms]
        for problem in problems
    }


def test_symptoms_are_folded_under_the_cause_at_the_start_of_the_chain():
    found = causes(
        finding("GRP004", "critical"), finding("OPT001", "info"), finding("LEN002", "critical")
    )
    assert found == {"LEN002": ["GRP004", "OPT001"]}


def test_a_symptom_says_why_it_follows_from_what_is_before_it():
    findings = [finding("LEN002", "critical"), finding("OPT001"), finding("GRP004")]
    (problem,) = problems_of(findings, RunContext(rules=RULES))
    because = {symptom.finding.code: symptom.because for symptom in problem.symptoms}
    assert because == {
        "GRP004": "truncated responses earn the same reward",
        "OPT001": "equal rewards leave no advantage",
    }
    assert "sound to the end" in problem.confirm


def test_a_component_that_is_never_earned_does_not_flatten_the_total():
    def constant(metric):
        cause = replace(finding("REW004", "info"), evidence=(Evidence(metric, 90, 0.0),))
        return causes(cause, finding("OPT001", "info"))

    assert constant("reward/mean") == {"REW004": ["OPT001"]}
    found = constant("reward/component/format/mean")
    assert found == {"REW004": [], "OPT001": []}


def test_a_fall_that_is_raised_again_is_explained_from_its_beginning():
    """Its severity changed at step 60, 19 steps after the aborted rollouts began."""
    share = Evidence("rollouts/aborted_rate", 100, 0.6, baseline=0.0, median=0.6)
    aborted = replace(finding("DAT003", "critical", onset=41), evidence=(share,))
    first = finding("REW002", "critical", onset=41, last=59, active=False)
    again = finding("REW002", onset=60)

    def level_before(_metric, step):
        return 0.6 if step > 41 else 0.0

    assert causes(aborted, first, again, level_before=level_before)["DAT003"] == ["REW002"] * 2
    assert "REW002" in causes(aborted, again, level_before=level_before)  # it may be another fall
    ended = replace(first, last_step=50)
    assert "REW002" in causes(aborted, ended, again, level_before=level_before)


def test_a_cause_that_eased_is_dated_from_its_severe_beginning():
    """Fewer responses are truncated once the policy writes shorter ones."""
    severe = finding("LEN002", "critical", onset=41, last=59, active=False)
    milder, fall = finding("LEN002", onset=60), finding("REW002", "critical", onset=41)
    problem = problems_of((fall, severe, milder), RunContext(rules=RULES))[0]
    assert (problem.cause.code, problem.since) == ("LEN002", 41)
    assert [symptom.finding.code for symptom in problem.symptoms] == ["REW002", "LEN002"]
    returned = problems_of((fall, severe, replace(milder, onset_step=75)), RunContext(rules=RULES))
    assert "REW002" in {problem.cause.code for problem in returned}


def constant_reward(onset, *, lowest):
    """Equal rewards in a batch whose rewards ranged from `lowest` to 0 at the start."""
    readings = [("reward/max", 0.0), ("reward/min", lowest)]
    evidence = tuple(
        Evidence(name, 100, -1.0, baseline=start, median=-1.0) for name, start in readings
    )
    return replace(finding("GRP004", "critical", onset=onset), evidence=evidence)


@pytest.mark.parametrize(
    ("lowest", "onset", "is_explained"),
    [(-10.0, 25, True), (0.0, 25, False), (-10.0, 15, False)],
    ids=["varied before", "never varied", "constant first"],
)
def test_a_collapse_explains_one_reward_for_all_that_came_later(lowest, onset, is_explained):
    """A public run: the entropy fell within six steps, and every reward was -1 from 11 on."""
    collapse = finding("ENT001", onset=20)
    (first, *others) = problems_of(
        (collapse, constant_reward(onset, lowest=lowest)), RunContext(rules=RULES)
    )
    assert (first.cause.code, first.since) == (
        ("ENT001", 20) if is_explained else ("GRP004", onset)
    )
    assert bool(others) is not is_explained


def test_a_collapse_shortens_responses_only_if_it_comes_first():
    shorter = finding("LEN005", onset=30)
    assert causes(finding("ENT001", onset=32), shorter) == {"ENT001": ["LEN005"]}
    assert len(causes(finding("ENT001", onset=35), shorter)) == 2
    by_clip = causes(finding("CLP001", onset=33), finding("ENT001", onset=35), shorter)
    assert by_clip == {"CLP001": ["ENT001"], "LEN005": []}


def test_a_problem_begins_with_the_first_of_the_alarms_that_fill_its_pauses():
    """A public run: the loss jumped at 41, 78 and 138, and the KL stayed at random text."""
    first = finding("OPT004", "critical", onset=41, last=45, active=False)
    drift = finding("KLD002", "critical", onset=46, last=250)
    again = finding("OPT004", "critical", onset=138, last=250)
    (problem,) = problems_of((first, drift, again), RunContext(rules=RULES))
    assert (problem.cause.code, problem.cause.onset_step, problem.since) == ("OPT004", 138, 41)
    short = replace(drift, onset_step=120)
    assert problems_of((first, short, again), RunContext(rules=RULES))[0].since == 138


def test_what_is_expected_needs_no_test():
    note = finding("OPT001", "info")
    (expected,) = problems_of([note], RunContext(rules=RULES))
    (doubtful,) = problems_of(
        [replace(note, remedies=("recheck-reward",))], RunContext(rules=RULES)
    )
    assert (expected.confirm, bool(doubtful.confirm)) == ("", True)


def test_a_cause_begins_before_its_effect():
    late, early = finding("LEN002", "critical", onset=80), finding("GRP002", onset=10)
    assert causes(early, late) == {"LEN002": [], "GRP002": []}
    assert causes(early, finding("LEN002", "critical", onset=19)) == {"LEN002": ["GRP002"]}
    assert causes(early, late, stride=10) == {"LEN002": ["GRP002"]}


def test_a_cause_that_ended_long_before_explains_nothing():
    ended = finding("MIS001", "critical", onset=1, last=20, active=False)
    assert causes(ended, finding("REW002", "critical", onset=90)) == {"REW002": [], "MIS001": []}
    assert causes(ended, finding("REW002", "critical", onset=25)) == {"MIS001": ["REW002"]}


def test_a_note_does_not_explain_an_alarm():
    assert causes(finding("LEN002", "info"), finding("GRP002", "critical")) == {
        "GRP002": [],
        "LEN002": [],
    }
    assert causes(finding("LEN002", "info"), finding("OPT001", "info")) == {"LEN002": ["OPT001"]}


def test_what_changed_just_before_is_suspected_before_what_was_always_there():
    found = causes(
        finding("MIS001", onset=1),
        finding("KLD001", onset=80),
        finding("CLP001", "critical", onset=85),
    )
    # The mismatch may explain both, but the KL is one link away from the clip.
    assert found == {"MIS001": ["CLP001", "KLD001"]}
    unrelated = causes(
        finding("LEN002", onset=1), finding("KLD001", onset=80), finding("REW002", onset=85)
    )
    assert unrelated == {"KLD001": ["REW002"], "LEN002": []}


def test_a_condition_that_was_looked_for_and_not_found_breaks_the_chain():
    findings = finding("LEN002", "critical"), finding("OPT001")
    assert causes(*findings) == {"LEN002": ["OPT001"]}
    assert causes(*findings, quiet={"GRP004"}) == {"LEN002": ["OPT001"]}
    assert causes(*findings, quiet={"GRP004", "GRP002"}) == {"LEN002": [], "OPT001": []}


def test_success_explains_what_follows_from_it_but_not_a_collapse():
    findings = [
        finding("REW006", "info", onset=50),
        finding("ENT001", "warning", onset=30),
        finding("MIS001", "warning", onset=30),
    ]
    assert causes(*findings, solved=True) == {"REW006": ["ENT001"], "MIS001": []}


def test_some_solved_prompts_are_no_success():
    findings = finding("GRP001", "warning", onset=5), finding("ENT001", "warning", onset=5)
    assert causes(*findings) == {"ENT001": ["GRP001"]}


def test_a_resolved_measure_of_the_batch_does_not_explain_another_that_lasts():
    ended = finding("MIS001", onset=1, last=89, active=False)
    assert causes(ended, finding("MIS003", onset=5)) == {"MIS003": [], "MIS001": []}
    assert causes(ended, finding("ENT001", onset=5)) == {"MIS001": ["ENT001"]}


def test_a_problem_describes_the_run_now():
    ended = finding("CLP001", onset=3, last=21, active=False)
    lost, noisy = finding("REW002", onset=25), finding("GRP002", "info", onset=20)
    costs = {"cost_of": lambda each: Cost(each.last_step - each.onset_step)}
    (problem,) = problems_of([ended, noisy, lost], RunContext(rules=RULES, **costs))
    assert (problem.cause, problem.present) == (ended, lost)
    assert problem.cost.steps == 75
    (problem,) = problems_of([replace(ended, active=True), lost], RunContext(rules=RULES))
    assert problem.present is problem.cause
    over = replace(lost, active=False)
    (problem,) = problems_of([ended, over], RunContext(rules=RULES))
    assert problem.present is problem.cause


def test_an_alarm_that_outlasts_a_treated_cause_heads_a_problem():
    ended = finding("CLP001", onset=3, last=21, active=False)
    lost, starved = finding("REW002", onset=25), finding("OPT001", onset=60)
    findings = [ended, lost, starved]
    treated = RunContext(rules=RULES, is_treated=lambda each: each is ended)
    now, past = problems_of(findings, treated)
    assert (now.cause, now.origin.finding, now.is_treated) == (lost, ended, False)
    assert now.origin.because == "updates outside the trust region ruin the policy"
    assert [each.finding for each in now.symptoms] == [starved]
    assert (past.cause, past.symptoms, past.is_treated) == (ended, (), True)
    assert now.to_json()["origin"]["code"] == "CLP001"
    (untreated,) = problems_of(findings, RunContext(rules=RULES))
    assert (untreated.cause, untreated.origin) == (ended, None)


def test_two_findings_of_one_condition_are_one_problem():
    assert causes(finding("MIS004", onset=5), finding("MIS001", "critical", onset=20)) == {
        "MIS001": ["MIS004"]
    }


@pytest.mark.parametrize("reverse", [False, True])
def test_active_problems_come_before_resolved_ones_and_severe_before_mild(reverse):
    findings = [
        finding("LEN002", "critical", active=False),
        finding("KLD002", "info"),
        finding("MIS001", "warning"),
    ]
    found = causes(*(reversed(findings) if reverse else findings))
    assert list(found) == ["MIS001", "KLD002", "LEN002"]


def test_a_resolved_truncation_explains_no_alarm_that_lasts():
    ended = finding("LEN002", onset=22, last=46, active=False)
    lasting = finding("REW002", "critical", onset=29)
    assert causes(ended, lasting) == {"REW002": [], "LEN002": []}
    over = finding("REW002", "critical", onset=29, last=50, active=False)
    assert causes(ended, over) == {"LEN002": ["REW002"]}


def test_a_cause_that_ended_comes_after_an_earlier_one_that_lasts():
    """One whose symptoms are still active: too large steps that widened an engine mismatch."""
    ended = [
        finding("OPT006", onset=10, last=20, active=False),
        finding("CLP001", onset=8),
        finding("KLD001", onset=9),
    ]
    lasting = finding("MIS001", onset=1)
    quiet = {"quiet": ["MIS003"]}
    assert list(causes(*ended, lasting, **quiet)) == ["MIS001", "OPT006"]
    later = finding("MIS001", onset=90)
    assert list(causes(*ended, later, **quiet)) == ["OPT006", "MIS001"]
    severe = [*ended, finding("REW002", "critical", onset=12)]
    assert list(causes(*severe, lasting, **quiet)) == ["OPT006", "MIS001"]


def test_an_alarm_that_lasts_comes_before_one_of_which_a_note_is_left():
    ended = finding("GRP004", onset=1, last=60, active=False)
    lasting = finding("REW005", onset=90)
    assert list(causes(ended, finding("REW020", "info", onset=20), lasting)) == ["REW005", "GRP004"]


def test_a_penalty_toward_another_model_explains_what_the_policy_loses():
    found = causes(
        finding("KLD003", onset=1), finding("ENT002", "critical", onset=18), finding("REW002")
    )
    assert found == {"KLD003": ["ENT002", "REW002"]}
    mild = causes(finding("KLD003", "info", onset=1), finding("ENT002", onset=18))
    assert mild == {"KLD003": [], "ENT002": []}


def test_a_fault_that_the_run_shows_comes_before_a_setting_that_explains_nothing():
    setting, note = finding("CFG021", onset=1), finding("CFG023", "info", onset=1)
    shown = finding("LEN002", onset=1)
    assert list(causes(setting, note, shown)) == ["LEN002", "CFG021"]
    assert list(causes(setting, note, shown, finding("MIS001", onset=5))) == ["CFG021", "LEN002"]
    assert list(causes(finding("CFG021", "critical", onset=1), shown)) == ["CFG021", "LEN002"]


def test_a_setting_explains_only_by_links_that_findings_show():
    """A public run: top-p .9 introduced the diagnosis, as the alleged cause of a KL of 1.5."""
    setting, drift = finding("CFG021", onset=1), finding("KLD002", onset=50)
    assert causes(setting, drift) == {"KLD002": [], "CFG021": []}
    steps = finding("KLD001", onset=40)
    assert causes(setting, steps, drift) == {"CFG021": ["KLD001", "KLD002"]}


def test_a_short_rise_of_entropy_is_no_cause_of_what_came_before_and_stays():
    """A public run: all responses ran to the limit from step 75 on; entropy rose for 35 steps."""
    length, entropy = finding("LEN006", onset=75, last=200), finding("ENT002", onset=85, last=120)
    assert causes(length, entropy) == {"LEN006": [], "ENT002": []}
    for shown in (replace(entropy, last_step=195), replace(entropy, onset_step=70)):
        assert causes(length, shown) == {"ENT002": ["LEN006"]}


def fallen(code, metric, onset, best, now):
    shown = Evidence(metric, 100, now, baseline=best, median=now)
    return replace(finding(code, onset=onset), evidence=(shown,))


@pytest.mark.parametrize(("then", "is_one"), [(0.8, True), (0.5, False)])
def test_a_lost_reward_and_a_lost_held_out_score_are_one_fall(then, is_one):
    """Evaluations fall from step 40 on. A reward that is optimized instead would rise after it."""
    reward = fallen("REW002", "reward/mean", 75, 0.82, 0.4)
    heldout = fallen("REW003", "accuracy/heldout", 40, 0.8, 0.4)
    found = causes(reward, heldout, level_before=lambda *_: then)
    assert found == ({"REW002": ["REW003"]} if is_one else {"REW002": [], "REW003": []})


@pytest.mark.parametrize(
    ("cut", "explains"), [(0.6, True), (0.2, False)], ids=["as far as it fell", "less"]
)
def test_truncation_explains_no_fall_that_is_larger_than_its_share(cut, explains):
    share = Evidence("length/truncated_rate", 100, cut, baseline=0.0, median=cut)
    truncated = replace(finding("LEN002"), evidence=(share,))
    fall = fallen("REW002", "accuracy/train", 12, 0.86, 0.2)

    def level_before(metric, step):
        return (cut if step > 50 else 0.0) if metric == "length/truncated_rate" else None

    found = causes(truncated, fall, level_before=level_before)
    assert found["LEN002"] == (["REW002"] if explains else [])
    # A reward on another scale falls by any amount.
    other = fallen("REW002", "reward/mean", 12, 8.6, 2.0)
    assert causes(truncated, other, level_before=level_before)["LEN002"] == ["REW002"]


def test_wrong_old_logprobs_look_like_a_high_learning_rate():
    assert causes(finding("MIS002"), finding("OPT006")) == {"MIS002": ["OPT006"]}
    over = finding("MIS002", onset=1, last=60, active=False)
    assert "OPT006" in causes(over, finding("OPT006", onset=9))


def test_truncation_takes_no_held_out_score_over_a_reward_that_is_not_lost():
    past = finding("REW002", onset=10, last=30, active=False)
    found = causes(finding("LEN002"), finding("REW003", "critical", onset=20), past)
    assert "REW003" in found
