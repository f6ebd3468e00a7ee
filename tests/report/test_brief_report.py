"""The report that `check` prints by default: one screen, with a step to type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpodoctor.monitor.advice import advice_for, usable, with_alternatives
from grpodoctor.monitor.diagnosis.costs import Cost
from grpodoctor.monitor.diagnosis.coverage import Coverage, EnablingSetting
from grpodoctor.monitor.diagnosis.diagnose import Diagnosis
from grpodoctor.monitor.diagnosis.problems import Problem, Symptom
from grpodoctor.monitor.diagnosis.verdict import Verdict
from grpodoctor.monitor.level_change import USUAL_BASIS, LevelChange
from grpodoctor.monitor.report import Report, RunFacts
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.monitor.vitals import Vital
from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.report import html, markdown, text
from grpodoctor.report.run.finding_view import BREVITIES, first_steps
from grpodoctor.report.run.phrases import last_seen
from grpodoctor.report.run.view import view_of
from grpodoctor.report.run.vitals_view import brief_vitals, full_vitals
from grpodoctor.report.view import Column, Inline, Table, code, spans
from grpodoctor.rules.base import Evidence, Finding, Severity
from grpodoctor.rules.catalogue import all_rules, rule_of
from grpodoctor.vocabulary.knobs import Setting
from tests.samples import sampled

SCREEN = 40
RULES = [rule for rule in all_rules() if rule.remedies]
SUMMARY = (
    "One sentence of at most twenty words with its number, 42 %, in the middle, as rules write."
)
SETTINGS = tuple(
    EnablingSetting(
        f"set actor_rollout_ref.rollout.a_rather_long_setting_{n}=True", ("ENT001",) * 9
    )
    for n in range(9)
)


def finding(code: str, onset: int = 40) -> Finding:
    rule = rule_of(code)
    evidence = tuple(Evidence(f"mismatch/prob_diff_mean/{n}", 90, 0.5, 0.1) for n in range(6))
    return Finding(
        code, rule.name, "critical", onset, 90, True, SUMMARY, evidence, rule.remedies, ()
    )


def problem(code: str, symptoms: int) -> Problem:
    explained = [Symptom(finding(rule.code), ("truncation", "zero-gradient")) for rule in RULES]
    return Problem(
        finding(code), "truncation", Cost(50), tuple(explained[:symptoms]), f"{SUMMARY} {SUMMARY}"
    )


def report_of(codes: list[str], symptoms: int = 5, framework: str = "trl") -> Report:
    problems = tuple(problem(code, symptoms) for code in codes)
    remedies = {each for one in problems for f in one.findings for each in f.remedies}
    advice = {
        each: advice_for(each, {}, framework, {}, "Qwen/Qwen3-4B")
        for each in with_alternatives(remedies)
    }
    verdict = Verdict("sick", " ".join([SUMMARY] * 3), since=40, code=codes[0], readings=50)
    coverage = Coverage(ran=30, rules=90, settings=SETTINGS)
    diagnosis = Diagnosis(verdict, problems, coverage)
    return Report(RunFacts("runs/one", framework, 0, 90, 91), diagnosis, advice)


def data_of(report: Report) -> ReportData:
    moved = LevelChange(0.25, 0.5, USUAL_BASIS)
    vital = Vital("held-out reward", "reward/heldout", (0.5,), 0.5, 0.25, "up", level_change=moved)
    vitals = (vital,) * 8
    return ReportData(report, vitals)


MANY = [rule.code for rule in RULES if not rule.reads_config][:12]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("first", sampled([rule.code for rule in RULES], 30))
def test_a_report_of_many_findings_fits_on_one_screen(first: str, width: int) -> None:
    codes = [first, *(code for code in MANY if code != first)]
    rendered = text.render(view_of(data_of(report_of(codes))), width=width)
    assert rendered.count("\n") <= SCREEN
    assert rendered.startswith("SICK  since step 40: ")
    assert "Coverage: 60 rules could not run; 3 changes enable" in rendered
    assert f"CRITICAL  {first} {rule_of(first).name}" in rendered
    assert f"critical  {codes[1]} " in rendered.replace("CRITICAL", "critical")
    assert "(--verbose explains them)" in rendered


@pytest.mark.parametrize("second", sampled([rule.code for rule in RULES], 4))
def test_two_findings_have_a_card_each_on_one_screen(second: str) -> None:
    first = "LEN002" if second != "LEN002" else "ENT001"
    rendered = text.render(view_of(data_of(report_of([first, second], symptoms=1))), width=80)
    assert rendered.count("\n") <= SCREEN
    assert f"CRITICAL  {first} " in rendered
    assert f"CRITICAL  {second} " in rendered or f"critical  {second} " in rendered


@pytest.mark.parametrize("framework", ["trl", "verl", "slime"])
@pytest.mark.parametrize("code", ["LEN002", "MIS001", "GRP004"])
def test_no_width_costs_a_setting_of_the_first_remedy(code: str, framework: str) -> None:
    """The width changes where lines are wrapped; explanations and later remedies give way."""
    data = data_of(report_of([code, "ENT001"], framework=framework))
    (remedy, *_) = usable(data.report.diagnosis.problems[0].cause.remedies, data.report.advice)
    how = remedy_of(remedy.id).how
    lines = (*remedy.spelling, *remedy.if_not_set)
    settings = [line.line for line in lines if line.line != how]
    for width in (60, 80, 100, 120, 200):
        rendered = text.render(view_of(data), width=width)
        card = " ".join(rendered.split(f"CRITICAL  {code} ")[1].split())
        shown = " ".join(rendered.split())
        assert all(" ".join(setting.split()) in shown for setting in settings)
        if any(line.key for line in remedy.if_not_set):
            assert "If not set already:" in card
        assert rendered.count("\n") <= SCREEN or width < 80


@pytest.mark.parametrize("level", [0, len(BREVITIES) - 1])
@pytest.mark.parametrize(
    ("code", "line", "pointer"),
    [
        ("MIS001", "vllm_importance_sampling_correction=True", "the settings at the top"),
        ("LEN002", "max_completion_length=", "the setting at the top"),
        ("GRP004", "grpodoctor preflight", "the command at the top"),
    ],
)
def test_a_card_points_to_the_first_settings_at_the_top(
    level: int, code: str, line: str, pointer: str
) -> None:
    rendered = text.render(view_of(data_of(report_of([code, *MANY])), level=level))
    above, card = rendered.split(f"CRITICAL  {code} ")
    assert line in above
    assert line not in card.split("CRITICAL")[0]
    assert pointer in card


@pytest.mark.parametrize("width", [72, 80, 90])
def test_a_table_keeps_its_headings_and_numbers(width: int) -> None:
    report = report_of(["LEN002"], symptoms=0)
    long = "reward/component/equation_reward_func_with_a_rather_long_name/mean"
    evidence = (Evidence(long, 90, 0.1234, 1234.5, median=98765),)
    (only,) = report.diagnosis.problems
    changed = replace(only, cause=replace(only.cause, evidence=evidence))
    report = replace(report, diagnosis=replace(report.diagnosis, problems=(changed,)))
    rendered = text.render(view_of(data_of(report)), width=width)
    (heading,) = (line for line in rendered.splitlines() if "evidence at step" in line)
    assert " ".join(heading.split()) == "evidence at step 90 reading recent median baseline"
    (row,) = (line.split() for line in rendered.splitlines() if "98765" in line)
    assert row[1:] == ["0.1234", "98765", "1234"]
    assert row[0].startswith("reward/component/")
    assert "…" in row[0]
    assert row[0].endswith("name/mean")


def test_a_table_says_when_its_readings_are_older_than_the_run() -> None:
    def heading(last: int, *at: int) -> str:
        report = report_of(["LEN002"], symptoms=0)
        (only,) = report.diagnosis.problems
        evidence = tuple(Evidence("length/mean", step, 0.5) for step in at)
        changed = replace(only, cause=replace(only.cause, evidence=evidence))
        diagnosis = replace(report.diagnosis, problems=(changed,))
        facts = replace(report.run, last_step=last)
        rendered = text.render(view_of(data_of(replace(report, run=facts, diagnosis=diagnosis))))
        return next(line for line in rendered.splitlines() if "  reading  " in line)

    assert "evidence at step 90  " in heading(90, 90)
    assert "evidence at step 90 of 120  " in heading(120, 90)
    assert heading(120, 90, 80).split()[:2] == ["evidence", "step"]


def test_symptoms_with_one_reason_share_a_line() -> None:
    report = report_of(["LEN002"], symptoms=0)
    (only,) = report.diagnosis.problems
    symptoms = [
        Symptom(finding(code), ("truncation", condition))
        for code, condition in (
            ("OPT001", "zero-gradient"),
            ("GRP004", "equal-rewards"),
            ("REW004", "equal-rewards"),
        )
    ]
    reason = symptoms[1].because
    assert reason
    diagnosis = replace(report.diagnosis, problems=(replace(only, symptoms=tuple(symptoms)),))
    rendered = text.render(view_of(data_of(replace(report, diagnosis=diagnosis))), width=120)
    lines = [each.strip() for each in rendered.splitlines() if "explains:" in each]
    assert f"explains: GRP004 zero-reward-std, REW004 constant-reward: {reason}" in lines


def test_a_symptom_that_questions_the_reward_is_named() -> None:
    """Truncated responses may earn equal rewards because the reward is constant."""
    report = report_of(["LEN002"], symptoms=0)
    (only,) = report.diagnosis.problems

    def card(code: str, severity: Severity, cause: str = "LEN002") -> str:
        symptom = Symptom(
            replace(finding(code), severity=severity), ("truncation", "equal-rewards")
        )
        changed = replace(only, cause=finding(cause), symptoms=(symptom,))
        remedies = {*changed.cause.remedies, *symptom.finding.remedies}
        advice = {each: advice_for(each, {}, "trl") for each in with_alternatives(remedies)}
        diagnosis = replace(report.diagnosis, problems=(changed,))
        return text.render(view_of(data_of(replace(report, advice=advice, diagnosis=diagnosis))))

    assert "check: GRP004 questions the reward as well: one sentence" in card("GRP004", "warning")
    assert "questions the reward" not in card("GRP004", "info")
    assert "questions the reward" not in card("LEN004", "warning")
    assert "questions the reward" not in card("GRP004", "warning", cause="REW004")


def test_a_remedy_that_was_shown_refers_to_its_finding() -> None:
    rendered = text.render(view_of(data_of(report_of(["GRP004", "REW004"], symptoms=0))), width=120)
    assert "remedy: recheck-reward, as for GRP004" in rendered


def test_vitals_name_what_their_numbers_are() -> None:
    def shown(*movements: LevelChange | None) -> str:
        signs = [
            Vital(f"v{place}", "reward/mean", (0.5,), 0.5, None, "unknown", level_change=each)
            for place, each in enumerate(movements)
        ]
        (paragraph,) = brief_vitals(signs, 6)
        return " ".join(span.text for span in spans(paragraph.text))  # type: ignore[union-attr]

    usual = LevelChange(0.25, 0.75, USUAL_BASIS)
    assert shown(usual) == f"Vitals ({USUAL_BASIS}): v0 0.25 → 0.75"
    ends = LevelChange(0.1, 0.2, "first → latest reading")
    means = LevelChange(0.1, 0.2, USUAL_BASIS.replace("medians", "means"))
    three = LevelChange(0.1, 0.2, "medians of first 3 → latest 10 readings")
    text = shown(usual, usual, ends, means, three, None)
    assert "v2 0.1 → 0.2 (first → latest reading); v3 0.1 → 0.2 (means)" in text
    assert "v4 0.1 → 0.2 (first 3 → latest 10); v5 0.5 (only reading)" in text
    assert shown(None) == "Vitals (only reading): v0 0.5"


def test_the_table_of_vitals_names_only_what_differs_from_its_title() -> None:
    def vital(name: str, basis: str) -> Vital:
        metric = "groups/zero_variance_rate"
        return Vital(
            name, metric, (0.5,), 0.5, None, "steady", level_change=LevelChange(0.25, 0.5, basis)
        )

    signs = [vital("a", USUAL_BASIS), vital("b", USUAL_BASIS)]
    section = full_vitals(signs)
    assert section.title == f"Vitals ({USUAL_BASIS})"
    (table,) = section.blocks
    assert USUAL_BASIS not in str(table)
    assert len(section.blocks[0].columns) == 5  # type: ignore[union-attr]
    (table,) = full_vitals([*signs, vital("c", USUAL_BASIS.replace("medians", "means"))]).blocks
    assert [spans(row[-1])[0].text for row in table.rows] == ["", "", "means"]  # type: ignore[union-attr]


def test_a_name_that_is_wider_than_its_column_breaks_after_a_slash() -> None:
    names = (code("clip/low_rate"), code("optimizer/environment_token_rate"))
    row: tuple[Inline, ...] = ("CFG001 " * 12, names, "record which tokens are in the loss " * 3)
    view = replace(
        view_of(data_of(report_of(["LEN004"], symptoms=0))),
        blocks=(Table((Column("rules"), Column("need"), Column("how")), (row,)),),
    )
    words = text.render(view, width=80).split()
    assert "environment_token_rate" in words
    assert {"optimizer/", "clip/low_rate"} < set(words)


def test_a_short_report_is_not_shortened() -> None:
    view = view_of(data_of(report_of(["LEN004"], symptoms=0)))
    whole = text.render(replace(view, shorter=lambda: None), width=120)
    assert whole.count("\n") <= SCREEN
    assert text.render(view, width=120) == whole


def test_everything_is_shown_if_asked_for() -> None:
    rendered = text.render(view_of(data_of(report_of(MANY)), verbose=True), width=80)
    assert rendered.count("\n") > 200
    assert all(f"{code} {rule_of(code).name}" in rendered for code in MANY)
    assert rendered.count("SICK  since step 40") == 2, "the verdict is repeated at the end"


@pytest.mark.parametrize("framework", ["trl", "verl", "prime-rl", "tinker-cookbook", "acme"])
@pytest.mark.parametrize("code", sampled([rule.code for rule in RULES], 9))
def test_a_sick_run_always_has_something_to_type(code: str, framework: str) -> None:
    steps = first_steps(report_of([code], framework=framework))
    assert steps
    assert all(step.text.strip() for step in steps)
    assert "the onset of the finding" not in steps[0].text


def test_the_first_remedy_without_settings_leaves_its_command() -> None:
    (command,) = first_steps(report_of(["GRP002"]))
    assert command.copyable
    assert command.text == "grpodoctor preflight --prompts FILE --reward FILE.py:FUNCTION"
    (probe,) = first_steps(report_of(["KLD003"]))
    assert probe.text.startswith("grpodoctor probe --sampler transformers:Qwen/Qwen3-4B ")


def test_a_note_that_the_verdict_states_is_not_stated_twice() -> None:
    report = report_of(["LEN003", "REW004"], symptoms=0)
    first, second = (
        replace(one, cause=replace(one.cause, severity="info", summary=f"{SUMMARY} {number}."))
        for number, one in enumerate(report.diagnosis.problems)
    )
    verdict = Verdict("healthy", f"no fault, but note LEN003: {SUMMARY} 0.", readings=50)
    diagnosis = replace(report.diagnosis, verdict=verdict, problems=(first, second))
    rendered = text.render(view_of(data_of(replace(report, diagnosis=diagnosis))), width=400)
    assert rendered.count(f"{SUMMARY} 0") == 1
    assert "LEN003 length-near-limit, since step 40: see the verdict." in rendered
    assert f"REW004 constant-reward, since step 40: {SUMMARY} 1." in rendered


@pytest.mark.parametrize(("code", "tests_it"), [("REW006", True), ("GRP001", False)])
def test_a_solved_run_has_a_command_only_if_its_reward_is_in_doubt(
    code: str, tests_it: bool
) -> None:
    report = report_of([code])
    (one,) = report.diagnosis.problems
    doubted = ("recheck-reward",) if tests_it else ("refilter-prompts",)
    cause = replace(one.cause, remedies=doubted)
    verdict = replace(report.diagnosis.verdict, kind="solved")
    diagnosis = replace(report.diagnosis, verdict=verdict, problems=(replace(one, cause=cause),))
    advice = {each: advice_for(each, {}, "trl", {}) for each in doubted}
    steps = first_steps(replace(report, diagnosis=diagnosis, advice=advice))
    assert [step.text.split()[:2] for step in steps] == [["grpodoctor", "preflight"]] * tests_it


def test_a_first_remedy_for_a_person_is_followed_by_the_settings_of_the_next() -> None:
    report = report_of(["OPT003"])
    assert [step.text for step in first_steps(report)] == [
        "Stop the run, and resume from the last checkpoint before step 40."
    ]
    codes = ("stop-training", "lower-learning-rate")
    cause = replace(report.diagnosis.problems[0].cause, remedies=codes)
    problems = (replace(report.diagnosis.problems[0], cause=cause),)
    logged = {"optimizer/learning_rate": 3e-6}
    advice = {each: advice_for(each, {}, "verl", logged) for each in codes}
    report = replace(report, diagnosis=replace(report.diagnosis, problems=problems), advice=advice)
    assert [step.text for step in first_steps(report)] == [
        "Then lower-learning-rate: Divide the learning rate by three.",
        "actor_rollout_ref.actor.optim.lr=1e-06",
    ]


@pytest.mark.parametrize(
    ("knobs", "has_config", "sentence"),
    [
        ({}, False, "The run's config was not found. If not set already:"),
        ({}, True, "The run's config does not contain this setting. If not set already:"),
        ({"temperature": 2.0}, True, "Already set:"),
    ],
)
def test_already_set_and_unknown_are_different_sentences(
    knobs: dict[str, Setting], has_config: bool, sentence: str
) -> None:
    report = report_of(["CFG022"])
    resolved = advice_for("raise-temperature", knobs, "trl", has_config=has_config)
    view = view_of(data_of(replace(report, advice={"raise-temperature": resolved})), verbose=True)
    rendered = text.render(view)
    assert sentence in rendered
    others = ("was not found", "does not contain", "Already set")
    assert sum(other in rendered for other in others) == 1


@pytest.mark.parametrize("render", [text.render, markdown.render, html.render])
def test_every_format_states_the_condition_of_a_remedy(render) -> None:
    def rendered(readings: dict[str, float]) -> str:
        report = report_of(["ENT001"])
        advice = {each: advice_for(each, {}, "trl", readings) for each in report.advice}
        page = render(view_of(data_of(replace(report, advice=advice))))
        return " ".join(page.split("<script>")[0].replace("\\", "").split())

    assert "to 0.28 if tokens are clipped at the upper bound (not logged)" in rendered({})
    assert "to 0.28 (the share clipped high is 1.2%)" in rendered({"clip/high_rate": 0.012})
    assert "clip-higher" not in rendered({"clip/high_rate": 0.0})


def test_a_resolved_problem_is_a_line_while_another_is_active() -> None:
    report = report_of(["LEN002", "REW002"], symptoms=0)
    first, second = report.diagnosis.problems
    over = replace(second, cause=second.cause.resolved())
    diagnosis = replace(report.diagnosis, problems=(first, over))
    rendered = text.render(view_of(data_of(replace(report, diagnosis=diagnosis))), width=120)
    assert "CRITICAL  LEN002 " in rendered
    assert "CRITICAL  REW002 " not in rendered
    assert "critical  REW002 reward-collapse, steps 40 to 90, resolved" in rendered
    alone = replace(report.diagnosis, problems=(over,))
    rendered = text.render(view_of(data_of(replace(report, diagnosis=alone))), width=120)
    assert "CRITICAL  REW002 " in rendered


def test_a_resolved_problem_has_no_remedy_to_apply() -> None:
    report = report_of(["LEN002"], symptoms=0)
    over = replace(report.diagnosis.problems[0], cause=finding("LEN002").resolved())
    diagnosis = replace(report.diagnosis, problems=(over,))
    data = data_of(replace(report, diagnosis=diagnosis))
    assert "CRITICAL  LEN002 " in text.render(view_of(data))
    assert "remed" not in text.render(view_of(data))
    assert "remedy: longer-limit" in text.render(view_of(data, verbose=True))


def test_the_page_to_read_is_that_of_a_finding_that_is_shown() -> None:
    report = report_of(["LEN002"], symptoms=0)
    note = replace(finding("LEN002").resolved(), severity="info")
    over = replace(report.diagnosis.problems[0], cause=note)
    diagnosis = replace(report.diagnosis, problems=(over,))
    assert "LEN002" not in text.render(view_of(data_of(replace(report, diagnosis=diagnosis))))


def test_a_remedy_that_is_in_force_is_listed_as_such() -> None:
    knobs: dict[str, Setting] = {"clip_high": 0.28, "updates_per_batch": 1, "temperature": 1.0}
    report = report_of(["ENT001"])
    advice = {each: advice_for(each, knobs, "trl", has_config=True) for each in report.advice}
    report = replace(report, advice=advice)
    brief, full = (text.render(view_of(data_of(report), verbose=each)) for each in (False, True))
    line = "already set: clip-higher (epsilon_high=0.28), fewer-updates (num_iterations=1)"
    for page in (brief, full):
        assert line in " ".join(page.split())
    assert "temperature=1.2" in brief


def test_a_limit_is_a_first_try_where_most_responses_are_truncated() -> None:
    def note(truncated: float) -> str:
        readings = {"length/truncated_rate": truncated}
        (line,) = advice_for("longer-limit", {"max_length": 512}, "trl", readings).settings
        return line.note

    assert note(1.0) == "now 512; 1024 is a first try"
    assert note(0.2) == "now 512"


def test_a_remark_above_a_setting_is_a_comment_on_each_line() -> None:
    advice = advice_for("longer-limit", {"max_length": 512}, "trl", {"length/truncated_rate": 1.0})
    (line,) = advice.settings
    long = replace(line, note="now 512; a remark that is longer than a line of this terminal")
    report = report_of(["LEN002"], 0)
    long_advice = replace(advice, spelling=(long,))
    shown = replace(report, advice={**report.advice, "longer-limit": long_advice})
    for width in (40, 60):
        printed = text.render(view_of(data_of(shown)), width=width).splitlines()
        place = next(at for at, each in enumerate(printed) if "max_completion_length=1024" in each)
        above = [each.lstrip() for each in printed[place - 2 : place]]
        assert all(each.startswith("# ") for each in above), above
        assert above[-1].endswith("terminal")


def test_an_old_note_says_when_it_was_seen_last() -> None:
    cause = replace(finding("LEN003", onset=10), last_step=30)
    run = RunFacts("run", "trl", first_step=1, last_step=100, steps=100)
    assert last_seen(cause, run) == ", last seen at step 30"
    assert last_seen(replace(cause, last_step=95), run) == ""
    assert last_seen(replace(cause, active=False), run) == "", "its steps are named already"
    assert last_seen(cause, replace(run, steps=5)) == "", "the log has few rows"
    assert last_seen(replace(cause, code="CFG013"), run) == "", "a setting is examined once"


def test_a_fall_is_visible_behind_the_name_of_the_rule() -> None:
    report = report_of(["LEN003"], 0)
    note = replace(finding("REW020"), summary="Reward fell: 0.2 → 0.05, beyond its noise of 0.09.")
    (head,) = report.diagnosis.problems
    head = replace(head, symptoms=(Symptom(note, ("truncation", "plateau")),))
    shown = replace(report, diagnosis=replace(report.diagnosis, problems=(head,)))
    assert "REW020 no-rise (reward fell)" in text.render(view_of(data_of(shown)), width=100)
