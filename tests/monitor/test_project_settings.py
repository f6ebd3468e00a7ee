import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.monitor.project_settings import ProjectSettings, find_settings, load_settings
from grpodoctor.monitor.threshold_ranges import range_of
from grpodoctor.rules.catalogue import all_rules
from tests.rules.scenario import Patient, healthy, steps

FULL = """
select = ["LEN", "GRP001"]
ignore = ["length-near-limit"]
framework = "verl"
extend-safe-fixes = ["overlong-mask"]

[map]
"my/entropy" = "entropy/mean"

[severities]
LEN002 = "info"

[thresholds.truncated-responses]
warning_share = 0.7
min_readings = 3
"""


def written(folder, text, name="grpodoctor.toml"):
    path = folder / name
    path.write_text(text)
    return path


def test_every_setting_is_read(tmp_path):
    settings = load_settings(written(tmp_path, FULL))
    assert settings.framework == "verl"
    assert settings.mapping == {"my/entropy": "entropy/mean"}
    assert settings.extend_safe_fixes == ("overlong-mask",)
    rules = {rule.code: rule for rule in settings.rules()}
    assert "LEN002" in rules
    assert "GRP001" in rules
    assert not {"LEN003", "ENT001"} & rules.keys()
    assert rules["LEN002"].warning_share == 0.7
    assert rules["LEN002"].min_readings == 3


def test_a_pyproject_has_the_same_settings(tmp_path):
    text = '[tool.grpodoctor]\nselect = ["ENT"]\n[tool.grpodoctor.severities]\nENT001 = "info"\n'
    settings = load_settings(written(tmp_path, text, "pyproject.toml"))
    assert settings.select == ("ENT",)
    assert settings.severities == {"ENT001": "info"}


def test_a_severity_applies_to_all_findings_of_a_rule(tmp_path):
    settings = load_settings(written(tmp_path, '[severities]\nLEN002 = "info"\n'))
    curves = {**healthy(1), "length/truncated_rate": 0.99}
    severities = {
        each.severity
        for rules in (ProjectSettings().rules(["LEN002"]), settings.rules(["LEN002"]))
        for each in Patient(steps(40, curves), rules=rules).engine.diagnosis().findings
    }
    assert severities == {"critical", "info"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('selct = ["ENT"]', ("selct", "did you mean select?")),
        ('select = ["ENTT001"]', ("ENTT001", "ENT001")),
        ('select = "ENT"', ("select", "list of strings")),
        ('framework = "trll"', ("trll", "trl")),
        ("[map]\nkey = 'entropy/meann'", ("entropy/meann", "entropy/mean")),
        ("[severities]\nLEN002 = 'warnin'", ("warnin", "warning")),
        ("[severities]\nLEN02 = 'info'", ("LEN02", "LEN002")),
        ("[thresholds.LEN002]\nwarning_shar = 1", ("warning_shar", "warning_share")),
        ("[thresholds.LEN002]\nwarning_share = 'x'", ("warning_share", "number")),
        ("[thresholds.LEN002]\nmin_readings = 2.5", ("min_readings", "value like")),
        ("[thresholds.LEN002]\nwarning_share = -3", ("warning_share", "from 0 to 1", "-3")),
        ("[thresholds.LEN002]\nwarning_share = 1.5", ("warning_share", "from 0 to 1")),
        ("[thresholds.LEN002]\nwarning_share = nan", ("warning_share", "from 0 to 1")),
        ("[thresholds.LEN002]\nmin_readings = -1", ("min_readings", "at least 0")),
        ("[thresholds.DAT002]\nmax_correlation = -2", ("max_correlation", "from -1 to 1")),
        (
            "[thresholds.LEN002]\nwarning_share = 1\n"
            "[thresholds.truncated-responses]\nwarning_share = 2",
            ("LEN002 and truncated-responses are the same rule", "keep one"),
        ),
        (
            "[severities]\ntruncated-responses = 'info'\nLEN002 = 'info'",
            ("truncated-responses and LEN002 are the same rule", "LEN002"),
        ),
        ("extend-safe-fixes = ['overlong-msk']", ("overlong-msk", "overlong-mask")),
        ("extend-safe-fixes = ['longer-limit']", ("longer-limit", "live run")),
        ("select = [", ("invalid TOML",)),
    ],
)
def test_a_wrong_setting_is_refused_with_the_nearest_name(text, words, tmp_path):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_settings(path)
    message = str(raised.value)
    assert str(path) in message
    assert "\n" not in message
    for word in words:
        assert word in message


def test_the_nearest_file_counts_and_the_search_ends_at_the_repository(tmp_path):
    outer = written(tmp_path, "ignore = []")
    project = tmp_path / "project"
    inner = project / "src" / "deep"
    inner.mkdir(parents=True)
    assert find_settings(inner) == outer
    written(project, "[tool.ruff]\n", "pyproject.toml")
    assert find_settings(inner) == outer
    (project / ".git").mkdir()
    assert find_settings(inner) is None
    own = written(project, "[tool.grpodoctor]\n", "pyproject.toml")
    assert find_settings(inner) == own
    assert find_settings(project / "src") == own


def test_options_override_the_file(tmp_path):
    settings = load_settings(written(tmp_path, 'select = ["ENT"]\nignore = ["ENT002"]'))
    assert {rule.code[:3] for rule in settings.rules(["LEN"])} == {"LEN"}
    assert "ENT002" not in {rule.code for rule in settings.rules()}
    assert not settings.rules(ignore=["ENT"])


def test_every_default_is_within_its_range():
    for rule in all_rules():
        for name, value in rule.thresholds().items():
            if isinstance(value, int | float):
                assert not range_of(name, value).excludes(value), (rule.code, name)
