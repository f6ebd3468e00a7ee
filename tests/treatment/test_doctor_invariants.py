"""Whatever the findings, and whatever the remedies do, some things hold."""

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpodoctor.remedies.catalogue import all_remedies, remedy_of
from grpodoctor.runs.records import Event
from grpodoctor.treatment.doctor_settings import DoctorSettings
from grpodoctor.treatment.treatments import ACTIVE
from grpodoctor.vocabulary.knobs import Setting
from tests.treatment.conftest import KNOBS

METRICS = sorted({w.metric for r in all_remedies() for w in (*r.targets, *r.guards)})
REMEDIES = st.lists(st.sampled_from([each.id for each in all_remedies()]), max_size=4)
FINDINGS = st.lists(
    st.tuples(
        st.sampled_from("ABC"),
        REMEDIES,
        st.sampled_from(["info", "warning", "critical"]),
        st.integers(0, 30),
        st.booleans(),
    ),
    max_size=3,
)
HAPPENINGS = st.sampled_from(
    ["train", "train", "train", "deaf", "hears", "resumed", "new watch", "by hand"]
)


def reacting(effects: Mapping[str, float]) -> Callable[..., Mapping[str, float]]:
    """Metrics that depend on how many knobs were turned, each in its own way."""

    def levels(knobs: Mapping[str, Setting], _: int) -> Mapping[str, float]:
        turned = sum(1 for name in knobs if knobs[name] != START.get(name))
        return {name: 0.5 + effects.get(name, 0.0) * turned for name in METRICS}

    return levels


START: Mapping[str, Setting] = {
    **KNOBS,
    "overlong": "none",
    "kl_coefficient": 0.0,
    "sampler_sync_every": 4,
}


def in_force(run: Any) -> set[str]:
    """Remedies that were kept and still hold, and the one at work."""
    kept = {
        each.remedy
        for each in run.doctor.history
        if each.state == "kept"
        and all(run.chart.knobs.get(name) == new for name, new in each.changes.items())
    }
    current = run.doctor.current
    return kept | {current.remedy} if current is not None else kept


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    acts=st.lists(st.tuples(HAPPENINGS, st.integers(1, 14), FINDINGS), min_size=3, max_size=14),
    effects=st.dictionaries(st.sampled_from(METRICS), st.sampled_from([-0.3, 0.3]), max_size=12),
)
def test_one_at_a_time_never_stacked_always_brought_to_an_end(
    patient: Callable[..., Any], finding: Callable[..., Any], acts: Any, effects: dict[str, float]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = patient(
            reacting(effects),
            run_dir=Path(folder),
            knobs=dict(START),
            apply="unsafe",
            settings=DoctorSettings(block_steps=1, answer_steps=4, cool_down_steps=3),
        )
        for happening, steps, findings in acts:
            seen = [
                finding(code, tuple(remedies), severity, onset, active=active)
                for code, remedies, severity, onset, active in findings
            ]
            run.findings = lambda _, seen=seen: seen
            happen(run, happening)
            for _ in range(steps):
                run.train()
                check_now(run)
        run.deaf = False
        run.findings = lambda _: []
        run.train(80)
        check_end(run)


def happen(run: Any, happening: str) -> None:
    if happening in {"deaf", "hears"}:
        run.deaf = happening == "deaf"
    elif happening == "resumed":
        run.step = max(0, run.step - 5)
        run.journal.append(Event("resumed", run.step))
    elif happening == "new watch":
        run.new_doctor()
    elif happening == "by hand":
        run.knobs["clip_high"] = 0.2
        run.chart.knobs["clip_high"] = 0.2


def check_now(run: Any) -> None:
    assert all(each.state not in ACTIVE for each in run.doctor.history)
    assert run.doctor.current is None or run.doctor.current.state in ACTIVE
    occupied = Counter(slot for remedy in in_force(run) for slot in remedy_of(remedy).slots)
    assert all(count == 1 for count in occupied.values()), occupied
    applied = [each for each in run.sent if each.kind != "note"]
    assert all(remedy_of(each.remedy).applicability != "suggest" for each in applied)


def check_end(run: Any) -> None:
    assert run.doctor.current is None
    applied = {
        event.body["treatment_id"]
        for event in run.journal
        if event.kind == "treatment-applied" and event.body["request"] == "apply"
    }
    ended = {
        event.body["treatment_id"]
        for event in run.journal
        if event.kind in {"treatment-kept", "treatment-undone", "treatment-forgotten"}
    }
    assert applied <= ended
    ids = [each.id for each in run.doctor.history]
    assert len(ids) == len(set(ids))
    for each in run.doctor.history:
        assert each.state != "kept" or last_word(run, each.id) == "apply"
        assert each.state != "undone" or last_word(run, each.id) == "undo"


def last_word(run: Any, treatment_id: str) -> str:
    """What the run itself did last about a treatment."""
    answers = [
        str(event.body["request"])
        for event in run.journal
        if event.kind == "treatment-applied" and event.body["treatment_id"] == treatment_id
    ]
    return answers[-1]
