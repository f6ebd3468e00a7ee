"""Every trial can be configured, and its arms differ."""

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.trials import faults
from grpodoctor.trials.registry import all_trials, trial_of
from grpodoctor.trials.running import fault_of, spec_of
from grpodoctor.trials.trial import CONTROL, DISEASE


@pytest.mark.parametrize("name", sorted(all_trials()))
def test_a_trial_changes_something(name):
    trial = trial_of(name)
    marks = {arm: spec_of(trial, arm, 1).fingerprint for arm in trial.arms}
    assert marks[CONTROL] != marks[DISEASE]
    assert all(mark != marks[DISEASE] for arm, mark in marks.items() if arm != DISEASE)
    treated = [mark for arm, mark in marks.items() if arm not in (CONTROL, DISEASE)]
    assert len(set(treated)) == len(treated)
    assert marks[DISEASE] != spec_of(trial, DISEASE, 2).fingerprint
    assert marks[DISEASE] != spec_of(trial, DISEASE, 1, trial.steps + 1).fingerprint
    known = {rule.code for rule in all_rules()}
    assert set(trial.rules) <= known
    for each in trial.remedies:
        remedy_of(each.remedy)
    for arm in trial.arms:
        fault = fault_of(trial, arm)
        assert fault is None or callable(getattr(faults, fault))


def test_an_unknown_trial_is_one_line():
    with pytest.raises(ConfigError, match=r"unknown trial 'truncated'; did you mean truncation\?"):
        trial_of("truncated")
