from grpodoctor.frameworks.logging_advice import setting_that_logs
from grpodoctor.frameworks.registry import logging_frameworks
from grpodoctor.monitor.diagnosis.coverage import coverage_of
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.rules.engine import Engine
from grpodoctor.runs.records import Manifest
from tests.rules.scenario import noisy, steps

TRL = {
    "reward/mean": noisy(0.5, 0.05, 1),
    "length/mean": noisy(300, 20, 2),
    "optimizer/grad_norm": noisy(0.4, 0.05, 3),
}


def coverage(curves=TRL, **facts):
    engine = Engine(all_rules(), Manifest(framework="trl", **facts))
    for record in steps(30, curves):
        engine.observe(record)
    results = engine.diagnosis()
    return coverage_of(engine.chart, all_rules(), results.skipped, results.not_applicable)


def test_settings_are_listed_by_the_number_of_rules_that_they_enable():
    settings = {each.setting: each.codes for each in coverage().settings}
    counts = [len(codes) for codes in settings.values()]
    assert counts == sorted(counts, reverse=True)
    assert {"ENT001", "ENT002"} <= set(
        settings[
            "set use_liger_kernel=False if you set it to True (needs TRL GRPOTrainer 0.20 or later)"
        ]
    )
    assert "GRP004" in settings["set log_completions=True"]


def test_every_blocked_rule_is_enabled_by_a_setting_or_unavailable():
    found = coverage()
    enabled = [code for setting in found.settings for code in setting.codes]
    assert sorted([*enabled, *found.unavailable]) == sorted(rule.code for rule in found.blocked)
    assert found.ran + len(found.blocked) == found.rules


def test_rules_about_experts_are_omitted_for_a_dense_model_only():
    def omitted(**facts):
        return {rule.code for rule in coverage(**facts).omitted}

    assert {"MOE001", "MOE002"} <= omitted(model="Qwen/Qwen2.5-7B")
    assert not {"MOE001", "MOE002"} & omitted(model="Qwen/Qwen3-30B-A3B")
    experts = {**TRL, "experts/router_entropy": noisy(0.8, 0.01, 4)}
    assert "MOE001" not in {rule.code for rule in coverage(experts).omitted}


def test_an_old_version_is_asked_to_upgrade():
    assert any("upgrade TRL" in each.setting for each in coverage().settings)


def test_what_enables_a_rule_is_always_an_instruction():
    advice = {
        row.how_to_log
        for framework in logging_frameworks()
        for row in framework.meanings
        if row.how_to_log
    }
    assert len(advice) > 10
    assert {text.split()[0] for text in advice} == {"set", "give"}


def test_a_key_that_only_a_fork_logs_enables_no_rule():
    assert setting_that_logs("verl", ("environment/invalid_action_rate",)) is None
