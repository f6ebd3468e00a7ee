from grpodoctor.monitor.advice import advice_for

CONFIG = {"overlong": "none", "dynamic_sampling": False, "advantage": "group"}


def test_a_known_config_gives_the_change():
    advice = advice_for("dynamic-sampling", CONFIG, "verl")
    assert advice.change == {"dynamic_sampling": True}
    assert advice.spelling[0].line == "algorithm.filter_groups.enable=True"
    assert (advice.config_missing, advice.if_not_set) == (False, ())


def test_without_a_config_the_usual_setting_is_given_on_condition():
    advice = advice_for("dynamic-sampling", {}, "verl")
    assert (advice.change, advice.spelling, advice.config_missing) == ({}, (), True)
    assert advice.if_not_set[0].line == "algorithm.filter_groups.enable=True"
    assert advice.to_json()["spelling"] == [], "the JSON holds only what is known"


def test_a_change_that_depends_on_unknown_settings_is_not_guessed():
    advice = advice_for("lower-learning-rate", {}, "verl")
    assert (advice.config_missing, advice.if_not_set) == (True, ())


def test_a_setting_in_place_is_not_advised_again():
    advice = advice_for("dynamic-sampling", {**CONFIG, "dynamic_sampling": True}, "verl")
    assert (advice.change, advice.config_missing, advice.if_not_set) == ({}, False, ())
