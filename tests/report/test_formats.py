"""Every format tells the same findings, and none of them lets hostile text act."""

import json
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.report_data import ComparisonRun
from grpodoctor.monitor.sample_responses import RecordedResponses, sample_responses
from grpodoctor.report import html, markdown, text
from grpodoctor.report.run.phrases import summary_lines
from grpodoctor.report.run.view import view_of
from grpodoctor.runs.records import EVENTS, STEPS, Event
from grpodoctor.support.safe_text import json_bytes, plain
from tests.report.packed import packed_charts, unpacked
from tests.report.simulated import HOSTILE, record_run

ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

HOSTILE_EVENTS = [
    Event(
        "treatment-applied",
        40,
        {
            "remedy": "tis",
            "before": {"correction": HOSTILE},
            "after": {"correction": "tis_token"},
            "reason": HOSTILE,
        },
    ),
    Event(f"treatment-{HOSTILE}", 41, {"remedy": HOSTILE}),
]


@pytest.fixture(scope="module")
def sick(tmp_path_factory):
    return record_run(tmp_path_factory.mktemp("runs") / "sick", 80, sick_from=30)


@pytest.fixture(scope="module")
def well(tmp_path_factory):
    return record_run(tmp_path_factory.mktemp("runs") / "well", 40)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A run with hostile texts and damaged files."""
    path = tmp_path_factory.mktemp("runs") / "hostile"
    record_run(path, 60, sick_from=20, text=HOSTILE, model=HOSTILE, framework=HOSTILE)
    with (path / EVENTS).open("ab") as file:
        file.writelines(event.to_line() for event in HOSTILE_EVENTS)
    with (path / STEPS).open("ab") as file:
        unmapped = {"step": 60, "values": {HOSTILE: {"mean": [1, 1]}}, "time": 0}
        file.write(json.dumps(unmapped).encode() + b"\n\x1b[31m<script>not json\n")
    return path


class Page(HTMLParser):
    """What a browser would see: elements, attributes and text."""

    def __init__(self, source):
        super().__init__()
        self.elements, self.attributes, self.scripts, self.shown = [], [], [], []
        self._inside = ""
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += attrs
        self._inside = tag

    def handle_endtag(self, tag):  # noqa: ARG002 - the base class's signature
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts.append(data)
        elif self._inside != "style":
            self.shown.append(data)


REPORT_KEYS = [
    "schema_version",
    "verdict",
    "causes",
    "coverage",
    "run",
    "findings",
    "skipped",
    "not_applicable",
    "defects",
    "quiet",
    "unmapped",
    "notes",
    "damage",
    "treatments",
    "earlier_runs",
    "crash",
]
FINDING_KEYS = [
    "code",
    "name",
    "severity",
    "onset_step",
    "last_step",
    "active",
    "summary",
    "evidence",
    "remedies",
    "references",
]
REMEDY_KEYS = [
    "id",
    "applicability",
    "change",
    "spelling",
    "if_not_set",
    "already_set",
    "obstacle",
    "condition",
    "condition_met",
    "command",
    "alternatives",
]


def test_the_json_has_exactly_the_promised_shape(hostile):
    data = json.loads(json_bytes(replay(hostile).report.to_json()))
    assert list(data) == REPORT_KEYS
    assert list(data["run"]) == ["path", "framework", "first_step", "last_step", "steps"]
    assert data["run"]["path"] == str(hostile)
    assert (data["run"]["first_step"], data["run"]["last_step"]) == (0, 60)
    assert data["run"]["steps"] == 61
    assert data["findings"]
    for finding in data["findings"]:
        assert list(finding) == FINDING_KEYS
        assert finding["evidence"]
        for evidence in finding["evidence"]:
            assert set(evidence) - {"where"} == {
                "metric", "step", "value", "baseline", "median",
            }  # fmt: skip
        for remedy in finding["remedies"]:
            assert list(remedy) == REMEDY_KEYS
            for lines in ("spelling", "if_not_set", "already_set"):
                assert all(set(line) == {"key", "value", "note"} for line in remedy[lines])
    assert all(set(each) == {"code", "missing", "how"} for each in data["skipped"])
    assert all(set(each) == {"code", "why"} for each in data["not_applicable"])
    assert data["unmapped"] == [HOSTILE]
    assert data["damage"]["total"] == 1
    assert data["damage"]["lines"][0]["file"] == STEPS
    # Texts of the journal, which anyone may have written, are printable and bounded.
    assert [each["remedy"] for each in data["treatments"]] == ["tis", plain(HOSTILE)]


def test_every_rule_is_accounted_for_once(sick):
    from grpodoctor.rules.catalogue import all_rules

    data = replay(sick).report.to_json()
    told = [each["code"] for key in ("findings", "skipped", "not_applicable") for each in data[key]]
    accounted = set(told) | set(data["quiet"])
    by_metrics = {rule.code for rule in all_rules() if not rule.reads_config}
    assert accounted >= by_metrics
    assert accounted - by_metrics <= {rule.code for rule in all_rules() if rule.reads_config}
    assert not set(told) & set(data["quiet"])


def test_remedies_are_spelled_for_the_framework_asked_for(sick):
    ours, theirs = (replay(sick, framework=name).report for name in (None, "verl"))
    assert [each.code for each in ours.findings] == [each.code for each in theirs.findings]
    spelled = {
        line.key
        for finding in theirs.findings
        for remedy in finding.remedies
        for line in theirs.advice[remedy].spelling
    }
    assert any("actor" in key for key in spelled)
    assert spelled != {
        line.key
        for finding in ours.findings
        for remedy in finding.remedies
        for line in ours.advice[remedy].spelling
    }


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("mismatch/prob_diff_mean", "mismatch/<wbr>prob_<wbr>diff_<wbr>mean"),
        ("a.rollout.n=8 # <b> & 0.25", "a.<wbr>rollout.<wbr>n=8 # &lt;b&gt; &amp; 0.25"),
        ("Fell from .5 to 1/4.\x1b[31m", "Fell from .5 to 1/4."),
    ],
)
def test_long_names_may_break_between_their_words(name, shown):
    assert html.breakable(name) == shown


@pytest.mark.parametrize("render", [text.render, markdown.render, html.render])
def test_every_format_shows_every_finding_with_its_remedies(render, sick):
    data = replay(sick)
    rendered = render(view_of(data, verbose=True)).replace("<wbr>", "")
    assert len(data.report.findings) >= 3
    for finding in data.report.findings:
        assert finding.code in rendered
        assert finding.name in rendered
        assert str(finding.onset_step) in rendered
        assert all(remedy in rendered for remedy in finding.remedies)
        assert all(each.metric in rendered for each in finding.evidence)
    for skipped in data.report.skipped:
        assert skipped.code in rendered
    brief = render(view_of(data))
    assert data.report.findings[0].code in brief
    assert len(brief) < len(rendered) or render is html.render


@pytest.mark.parametrize("render", [text.render, markdown.render, html.render])
def test_a_healthy_run_has_a_short_report(render, well):
    rendered = render(view_of(replay(well)))
    assert re.search(r"healthy", rendered.split("<main>")[-1], re.IGNORECASE)
    assert "found no fault" in " ".join(rendered.split())
    assert "remedy" not in rendered.split("<script>")[0].lower()


@pytest.mark.parametrize("render", [text.render, markdown.render, html.render])
def test_hostile_text_reaches_no_terminal(render, hostile):
    # plotly.js itself may hold any character; what we write stands before it.
    rendered = render(view_of(replay(hostile))).split("<script>")[0]
    assert "loud" in rendered
    assert not ACTIVE.search(rendered)


def test_text_for_a_pipe_has_no_color_and_fits(hostile):
    rendered = text.render(view_of(replay(hostile)), width=80)
    assert "\x1b" not in rendered
    assert "[bold red]loud[/bold red]" in rendered
    copied = re.compile(r"^ {4}\S+[= ]")
    prose = [line for line in rendered.splitlines() if not copied.match(line)]
    assert max(map(len, prose[1:])) <= 80


def test_text_for_a_terminal_is_the_same_in_color(hostile):
    data = replay(hostile)
    colored = text.render(view_of(data), width=80, color=True)
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored).split() == text.render(view_of(data)).split()


def test_markdown_tables_keep_their_columns(hostile):
    lines = markdown.render(view_of(replay(hostile))).splitlines()
    for head, rule in pairwise(lines):
        if rule.startswith("|---"):
            assert len(re.findall(r"(?<!\\)\|", head)) == rule.count("|")
    rows = [line for line in lines if line.startswith("| 4")]
    assert rows
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 5 for row in rows)
    # Inside a code span a tag is text; outside there is none.
    assert "<script" not in re.sub(r"(`+) ?.*?(?<!`)\1(?!`)", "", "\n".join(lines))


def test_html_loads_nothing_and_runs_only_its_own_scripts(hostile):
    text = html.render(view_of(replay(hostile)))
    assert ">sequence<" in text
    assert "<code></code>" not in text  # evidence without a sequence leaves the cell empty
    page = Page(text)
    assert len(page.scripts) == page.elements.count("script") == 3
    assert "plotly.js" in unpacked(text, "packed-library")[:2000]
    assert not {"link", "iframe", "object", "embed", "base", "form"} & set(page.elements)
    # The hostile <img> is text; a browser sees no image but what plotly draws.
    assert "img" not in page.elements
    names = {name for name, _ in page.attributes}
    assert "src" not in names
    assert not any(name.startswith("on") for name in names)
    targets = [value for name, value in page.attributes if name == "href"]
    assert targets
    outside = {value for value in targets if not value.startswith("#")}
    assert outside
    assert all(
        value.startswith(("https://arxiv.org/abs/", "https://github.com/")) for value in outside
    )  # only the references of the rules
    assert any("<script>alert(1)</script>" in shown for shown in page.shown)


def test_html_allows_its_own_scripts_by_their_digest_and_no_other(hostile):
    import base64
    import hashlib

    text = html.render(view_of(replay(hostile)))
    page = Page(text)
    policy = next(value for name, value in page.attributes if "default-src" in (value or ""))
    *_, drawing = page.scripts
    for script in (unpacked(text, "packed-library"), drawing):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1]
    assert "http" not in policy


def test_charts_are_drawn_for_logged_metrics(sick):
    source = html.render(view_of(replay(sick)))
    captions = re.findall(r"<figcaption.*?>(.*?)</figcaption>", source)
    assert "Entropy" in captions
    assert "Groups without gradient" in captions
    assert "Sampler-learner mismatch" in captions
    charts = json.loads(packed_charts(source))
    assert len(charts) == len(captions) == source.count("<summary>In words</summary>")
    assert [chart["id"] for chart in charts] == re.findall(r'class="chart" id="(.*?)"', source)
    assert "held-out" in {trace["name"] for trace in charts[1]["data"]}


def test_the_reward_chart_stands_directly_below_the_verdict(sick):
    source = html.render(view_of(replay(sick)))
    first, second = (match.start() for match in list(re.finditer("<figure ", source))[:2])
    assert "Reward</figcaption>" in source[first:second].split("<div")[0]
    assert source.index("</header>") < first < source.index('class="overview"')
    assert source.rindex('<article class="finding') < second


def test_no_empty_chart_for_metrics_that_were_not_logged(tmp_path, sick):
    shutil.copytree(sick, tmp_path / "run")
    steps = tmp_path / "run" / STEPS
    lines = [json.loads(line) for line in steps.read_bytes().splitlines()]
    for line in lines:
        line["values"] = {"entropy/mean": line["values"]["entropy/mean"]}
    steps.write_text("".join(json.dumps(line) + "\n" for line in lines))
    captions = re.findall(
        r"<figcaption.*?>(.*?)</figcaption>", html.render(view_of(replay(tmp_path / "run")))
    )
    assert captions == ["Entropy"]


def test_the_html_shows_responses(sick):
    shown = "".join(Page(html.render(view_of(replay(sick)))).shown)
    assert "7*3=21 #1$" in shown
    assert "largest log-probability gap between sampler and learner" in shown


def test_a_broken_rollouts_file_costs_the_responses_only(tmp_path, sick):
    shutil.copytree(sick, tmp_path / "run")
    for file in (tmp_path / "run" / "rollouts").iterdir():
        file.write_bytes(b"PAR1 not really")
    data = replay(tmp_path / "run")
    assert data.report.findings
    assert sample_responses(data.report, RecordedResponses(tmp_path / "run")) == ()
    assert "Responses" not in Page(html.render(view_of(data))).shown


def test_values_that_are_not_finite_are_null_in_json(tmp_path, well):
    from grpodoctor.monitor.report import evidence_to_json
    from grpodoctor.rules.base import Evidence

    data = evidence_to_json(Evidence("ratio/max", 3, float("inf"), float("nan"), "seq-1"))
    assert data == {
        "metric": "ratio/max",
        "step": 3,
        "value": None,
        "baseline": None,
        "median": None,
        "where": "seq-1",
    }


def test_a_second_run_is_drawn_for_comparison(sick, well):
    twin = replay(well)
    comparison = ComparisonRun("left <b>alone", twin.series, "The treated one is better off. <b>")
    source = html.render(view_of(replay(sick).with_comparison(comparison)))
    shown = "".join(Page(source).shown)
    assert "The treated one is better off. <b>" in shown
    script = packed_charts(source)
    assert "held-out, left" in script
    assert "<b>" not in script
    assert "all correct, left" not in script


def test_the_summary_names_findings_and_treatments(hostile):
    report = replay(hostile).report
    lines = summary_lines(report)
    assert lines[0] == plain(report.diagnosis.verdict.line)
    assert lines[0].startswith("Sick since step ")
    assert any("REW002 reward-collapse" in line for line in lines)
    assert any(line.startswith("step 40: tis applied; correction") for line in lines)
    assert not ACTIVE.search("".join(lines))
    assert all("\n" not in line for line in lines)
