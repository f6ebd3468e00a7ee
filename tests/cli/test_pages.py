import json
import re

import pytest

from grpodoctor.frameworks.registry import configurable_frameworks
from grpodoctor.preflight.catalogue import all_checks
from grpodoctor.remedies.catalogue import all_remedies
from grpodoctor.report.manual_page import manual_markdown
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.vocabulary.metrics import METRICS
from tests.cli.in_process import run


def test_the_list_of_rules():
    done = run("rule")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == len(all_rules()) + len(all_checks())
    listed = json.loads(run("rule", "--output-format", "json").stdout)
    assert [set(each) for each in listed] == [{"code", "name", "family", "summary"}] * len(listed)
    assert [each["code"] for each in listed] == [
        each.code for each in (*all_rules(), *all_checks())
    ]
    assert run("rule", "--output-format", "markdown").stdout.count("\n|") == len(listed) + 1


@pytest.mark.parametrize("asked", ["ENT001", "ent001", "entropy-collapse"])
def test_the_manual_page_of_a_rule(asked):
    done = run("rule", asked)
    assert done.stdout.startswith("ENT001 entropy-collapse\n")
    for heading in ("What it sees", "Why it matters", "Evidence it needs", "References"):
        assert heading in done.stdout
    data = json.loads(run("rule", asked, "--output-format", "json").stdout)
    assert data["inputs"] == [["entropy/mean", "entropy/sampled"]]
    assert data["manual"] in done.stdout
    assert data["threshold_docs"].keys() == data["thresholds"].keys()
    for name, value in data["thresholds"].items():
        assert f"    {name} = {value}\n        {data['threshold_docs'][name][:60]}" in done.stdout
    assert set(data["remedies"]) <= {remedy.id for remedy in all_remedies()}
    page = run("rule", asked, "--output-format", "markdown").stdout
    assert "\n## What it sees\n\nEntropy" in page


def test_a_wrapped_line_of_a_page_starts_no_list() -> None:
    for entry in (*all_rules(), *all_remedies()):
        page = manual_markdown(entry.manual())
        assert not re.search(r"^(\d+[.)]|[+*>]) ", page, re.MULTILINE), page
    page = manual_markdown("Head.\n\nSee:\n    one of\n    1. A dot.\n\n    - an item,\n    longer")
    assert page == "Head.\n\n## See\n\none of 1. A dot.\n\n- an item, longer"


@pytest.mark.parametrize("command", [("rule", "ENT999"), ("remedy", "clip-hihger")])
def test_an_unknown_name_is_one_line_and_exit_code_2(command):
    done = run(*command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_the_list_of_remedies():
    listed = json.loads(run("remedy", "--output-format", "json").stdout)
    assert [each["id"] for each in listed] == [remedy.id for remedy in all_remedies()]
    assert len(run("remedy").stdout.splitlines()) == len(listed)


def test_a_remedy_is_printed_for_the_named_framework():
    ours = run("remedy", "clip-higher").stdout
    assert "loss.clip_high=0.28" in ours
    theirs = json.loads(
        run("remedy", "clip-higher", "--framework", "verl", "--output-format", "json").stdout
    )
    assert theirs["change"] == {"clip_high": 0.28}
    assert theirs["before"] == {"clip_high": 0.2}
    assert theirs["spelling"][0]["key"] == "actor_rollout_ref.actor.clip_ratio_high"
    assert run("remedy", "clip-higher", "--framework", "nonesuch").returncode == 2


def test_manual_advice_comes_with_its_settings():
    from grpodoctor.cli.commands.catalogue import remedy as command
    from grpodoctor.cli.options import PageFormat
    from grpodoctor.monitor.advice import advice_for
    from grpodoctor.remedies.catalogue import remedy_of

    sampler = remedy_of("higher-precision-sampler")
    page = command._PAGES[PageFormat.text](command.detail(sampler, "verl"))
    assert "compressed-tensors checkpoints" in page
    assert "Settings in verl:\n" in page
    assert "    actor_rollout_ref.rollout.quantization=null" in page
    told = [each.line for each in advice_for(sampler.id, {}, "verl").spelling]
    assert told[0] == sampler.how
    assert "actor_rollout_ref.rollout.quantization=null" in told
    unknown = advice_for(sampler.id, {}, "acme").spelling
    assert [each.line for each in unknown] == [sampler.how]


@pytest.mark.parametrize("framework", [each.name for each in configurable_frameworks()])
def test_every_remedy_has_its_page_in_every_framework(framework):
    from grpodoctor.cli.commands.catalogue import remedy as command
    from grpodoctor.cli.options import PageFormat

    for remedy in all_remedies():
        page = command.detail(remedy, framework)
        assert page["change"] or page["how"], remedy.id
        text = command._PAGES[PageFormat.text](page)
        assert remedy.manual() in text
        assert framework in text or page["how"]
        assert "```" in command._PAGES[PageFormat.markdown](page)


def test_the_table_of_a_framework_fits_any_width():
    rows = json.loads(run("metrics", "--framework", "verl", "--output-format", "json").stdout)
    dual = [row for row in rows if row["key"] == "actor/pg_clipfrac_lower"]
    assert [row["metric"] for row in dual] == ["clip/dual_rate", "clip/low_rate", "none", "none"]
    assert "not the low side" in dual[0]["note"]
    assert dual[1]["when"].endswith("loss_mode=geo_mean or grpodoctor_geo_mean")
    lines = run("metrics", "--framework", "verl").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines.count("actor/pg_clipfrac_lower") == len(dual)
    assert sum(line.split() == ["metric", "clip/dual_rate"] for line in lines) == 1


def test_the_table_names_the_factor_of_a_logged_unit():
    rows = json.loads(run("metrics", "--framework", "nemo-rl", "--output-format", "json").stdout)
    shares = [row["key"] for row in rows if row["key"].startswith("train/baseline_reward/pct_1")]
    assert shares == ["train/baseline_reward/pct_1 (percent, times 0.01)"]


def test_similar_plain_names_share_a_row():
    listed = json.loads(run("metrics", "--framework", "generic", "--output-format", "json").stdout)
    markdown = run("metrics", "--framework", "generic", "--output-format", "markdown").stdout
    assert len(listed) > 1000
    rows = [line.split(" | ") for line in markdown.splitlines() if line.startswith("| ")][2:]
    meanings = [(row[0].startswith("| similar"), *row[1:]) for row in rows]
    assert len(set(meanings)) == len(meanings)
    assert "| entropy, mean_entropy" in markdown
    assert "similar names | entropy/mean" in markdown


def test_the_vocabulary_is_listed():
    listed = json.loads(run("metrics", "--output-format", "json").stdout)
    assert [each["metric"] for each in listed] == [metric.name for metric in METRICS]
    assert run("metrics", "--output-format", "markdown").stdout.count("\n| ") == len(listed) + 1
    done = run("metrics", "--framework", "vrl")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "(--framework); did you mean verl" in done.stderr


@pytest.mark.parametrize(
    "asked", ["DAT101", "template-not-prefix-preserving", "template-not-append-only"]
)
def test_the_page_of_a_preflight_check(asked):
    done = run("rule", asked)
    assert done.stdout.startswith("DAT101 template-not-prefix-preserving\n")
    for heading in ("What it sees", "Why it matters", "What to do", "When it is wrong"):
        assert heading in done.stdout
    data = json.loads(run("rule", "rew102", "--output-format", "json").stdout)
    thresholds = {
            "min_row_share": 0.05, "constant_share": 0.9, "max_reward_share": 0.5,
            "min_growth": 1.5, "min_rows": 4,
        }  # fmt: skip
    assert data["thresholds"] == thresholds
