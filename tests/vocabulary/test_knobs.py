import math

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.vocabulary.knobs import KNOBS, check_change


@pytest.mark.parametrize("knob", KNOBS.values(), ids=lambda knob: knob.name)
def test_every_knob_is_a_choice_a_switch_or_a_bounded_number(knob):
    assert knob.summary.endswith(".")
    if knob.choices:
        assert knob.low is knob.high is None
        assert all(knob.check(choice) == choice for choice in knob.choices)
    elif knob.low is None:
        assert knob.high is None
        assert knob.check(True) is True
    else:
        assert knob.low < knob.high
        assert knob.check(knob.low) == knob.low
        assert knob.check(knob.high) == knob.high


HOSTILE = [math.nan, math.inf, -math.inf, None, [], {}, "0.2; rm", "true", b"1", 10**400]


@pytest.mark.parametrize("knob", KNOBS.values(), ids=lambda knob: knob.name)
@pytest.mark.parametrize("setting", HOSTILE, ids=lambda setting: str(setting)[:8])
def test_a_knob_rejects_values_of_other_types(knob, setting):
    with pytest.raises(ConfigError, match=knob.name):
        knob.check(setting)


@pytest.mark.parametrize("knob", KNOBS.values(), ids=lambda knob: knob.name)
def test_a_number_just_outside_its_bounds_is_refused(knob):
    if knob.low is None or knob.high is None:
        return
    for setting in (math.nextafter(knob.low, -math.inf), knob.high * 1.001):
        with pytest.raises(ConfigError, match="from"):
            knob.check(setting)
    with pytest.raises(ConfigError):
        knob.check(True)


def test_settings_are_converted_to_the_knobs_type():
    assert type(KNOBS["updates_per_batch"].check(4.0)) is int
    assert type(KNOBS["temperature"].check(1)) is float
    with pytest.raises(ConfigError, match="whole number"):
        KNOBS["updates_per_batch"].check(2.5)


def test_a_live_run_accepts_only_live_knobs():
    assert check_change("clip_high", 0.28) == 0.28
    with pytest.raises(ConfigError, match="cannot change during training"):
        check_change("group_size", 8)
    with pytest.raises(ConfigError, match="unknown knob 'api_key'"):
        check_change("api_key", "x")


def test_an_error_is_one_line_for_any_input():
    with pytest.raises(ConfigError) as caught:
        check_change("loss", "a\nb" * 5000)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
