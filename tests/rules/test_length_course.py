"""LEN004 to LEN008: growth, shrinkage, explosion, missing ends and repetition."""

from __future__ import annotations

import pytest

from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, every, healthy, noisy, ramp, steps

LENGTH, LONGEST, CUT = "length/mean", "length/max", "length/truncated_rate"
REWARD, ACCURACY = "reward/mean", "accuracy/train"
LOOPS, NGRAMS, PACKED = (
    "text/repetition_rate",
    "text/unique_ngram_rate",
    "text/compression_ratio",
)


def run(curves: dict[str, Curve], count: int = 100) -> Patient:
    return Patient(steps(count, curves))


def flat(level: float = 0.4, seed: int = 9) -> Curve:
    return noisy(level, 0.05, seed)


def growing(reward: Curve) -> dict[str, Curve]:
    return {LENGTH: noisy(ramp(300, 1100, 60, begin=20), 20, 1), REWARD: reward}


def test_length_that_pays_nothing_is_a_warning() -> None:
    finding = run(growing(flat())).finding("LEN004")
    assert finding.severity == "warning"
    assert 30 <= finding.onset_step <= 60
    assert finding.remedies[0] == "token-level-loss"
    assert "tokens" in finding.summary


@pytest.mark.parametrize(("last", "severity"), [(650, "info"), (900, "warning")])
def test_length_that_has_fallen_by_half_of_its_growth_is_a_note(last: float, severity: str) -> None:
    """A public run that searched with long responses before its reward rose."""
    grown = ramp(300, 1100, 30, begin=20)
    length = noisy(lambda step: grown(step) if step < 70 else last, 20, 1)
    findings = run({LENGTH: length, REWARD: flat()}).findings("LEN004")
    (finding,) = (each for each in findings if each.active)
    assert finding.severity == severity
    assert ("and fell to 6" in finding.summary) == (severity == "info")


@pytest.mark.parametrize("seed", range(5))
def test_length_that_pays_is_a_success(seed: int) -> None:
    assert run(growing(noisy(ramp(0.3, 0.6, 60, begin=20), 0.06, seed))).findings("LEN004") == []


def test_length_that_pays_on_held_out_prompts_alone_is_no_warning() -> None:
    heldout = {"accuracy/heldout": lambda step: 0.4 + step / 300 if step % 5 == 0 else None}
    assert run({**growing(flat()), **heldout}).findings("LEN004") == []


def test_length_of_a_constant_prompt_mix_is_quiet() -> None:
    assert run({LENGTH: noisy(600, 60, 1), REWARD: flat()}).findings("LEN004") == []


def shrinking(reward: Curve, last: float = 20) -> dict[str, Curve]:
    return {LENGTH: noisy(ramp(300, last, 40, begin=20), 5, 1), REWARD: reward}


def test_shrinkage_is_graded_by_the_outcome() -> None:
    assert run(shrinking(flat())).finding("LEN005").severity == "warning"
    falling = noisy(ramp(0.6, 0.02, 40, begin=20), 0.03, 2)
    assert run(shrinking(falling)).finding("LEN005").severity == "critical"
    rising = noisy(ramp(0.3, 0.8, 40, begin=20), 0.03, 3)
    assert run(shrinking(rising)).finding("LEN005").severity == "info"
    assert run(shrinking(rising, last=60)).findings("LEN005") == []


def test_a_format_that_is_learned_shortens_without_a_finding() -> None:
    """A public run: 543 to 340 tokens while the reward triples."""
    assert run(shrinking(flat(), last=150)).findings("LEN005") == []


def test_a_start_of_prompts_with_long_answers_is_no_shrinkage() -> None:
    """A public run: 147, 338 and 353 tokens first, then 70 to 310 by prompt throughout."""
    usual = (110, 95, 230, 105, 300, 90, 100, 215, 85, 108, 112)

    def by_prompt(step: int) -> float:
        return (150, 338, 353)[step] if step < 3 else usual[step % 11]

    assert run({LENGTH: by_prompt, REWARD: flat()}).findings("LEN005") == []

    def collapsed(step: int) -> float:
        return (150, 338, 353)[step] if step < 3 else usual[step % 2]

    assert run({LENGTH: collapsed, REWARD: flat()}).finding("LEN005").severity == "warning"


def test_a_shrinkage_within_the_first_ten_steps_has_no_healthy_baseline() -> None:
    """A public run: 477 to 110 tokens, reward -2.1 to a constant -1."""
    curves: dict[str, Curve] = {
        LENGTH: noisy(ramp(480, 110, 9), 5, 1),
        REWARD: lambda step: max(-1.0, -2.0 - step) if step < 5 else -1.0,
    }
    assert run(curves, 40).finding("LEN005").severity == "warning"


def test_sums_are_too_short_to_shrink() -> None:
    assert run({LENGTH: noisy(ramp(12, 3, 40), 0.2, 1), REWARD: flat()}).findings("LEN005") == []


def test_an_explosion_needs_a_lost_reward() -> None:
    """A public run: 60 to 363 tokens while the score falls from .93 to -.19."""
    length: Curve = noisy(ramp(62, 363, 8, begin=60), 4, 1)
    lost = noisy(ramp(0.9, 0.02, 8, begin=60), 0.03, 2)
    finding = run({LENGTH: length, REWARD: lost}).finding("LEN006")
    assert finding.severity == "warning"
    assert 58 <= finding.onset_step <= 70
    assert run({LENGTH: length, REWARD: flat(0.9)}).findings("LEN006") == []


def test_correct_responses_that_never_end_lack_the_end_token() -> None:
    """Answers fit into the limit, so a longer one does not help."""
    curves: dict[str, Curve] = {LENGTH: 128.0, LONGEST: 128.0, ACCURACY: noisy(0.3, 0.03, 1)}
    finding = run({**curves, CUT: 1.0}, 20).finding("LEN007")
    assert (finding.severity, finding.onset_step) == ("critical", 0)
    assert finding.remedies[0] == "check-end-token"
    assert run(curves, 20).finding("LEN007").severity == "critical"
    loops: dict[str, Curve] = {**curves, ACCURACY: 0.0, LOOPS: 0.8}
    assert run(loops, 20).finding("LEN007").severity == "critical"


@pytest.mark.parametrize("outcome", [{}, {REWARD: 0.88}, {"accuracy/train": 0.0}])
def test_a_limit_that_may_be_too_low_comes_before_the_end_token(outcome: dict[str, Curve]) -> None:
    """A public run: 96 of 96 tokens, and the same reward of .88 for every response."""
    patient = run({LENGTH: 96.0, LONGEST: 96.0, CUT: 1.0, **outcome}, 20)
    finding = patient.finding("LEN007")
    assert (finding.severity, finding.remedies[0]) == ("info", "longer-limit")
    assert patient.finding("LEN002").severity == "critical"


def test_a_grader_that_finds_the_answer_in_a_cut_response() -> None:
    """A public run: every response at the limit of 512 tokens, reward .11 to .95."""
    learning = noisy(ramp(0.1, 0.95, 15), 0.02, 1)
    patient = run({LENGTH: 512.0, LONGEST: 512.0, CUT: 1.0, REWARD: learning}, 40)
    assert patient.finding("LEN007").severity == "info"


def test_responses_that_stop_ending_have_an_end_token() -> None:
    """A public run: all responses at the limit of 512 tokens from the middle on."""
    curves: dict[str, Curve] = {
        LENGTH: lambda step: 240.0 + step % 7 if step < 40 else 512.0,
        LONGEST: lambda step: 400.0 + step % 5 if step < 40 else 512.0,
        CUT: lambda step: 0.02 if step < 40 else 1.0,
    }
    finding = run(curves, 60).finding("LEN007")
    assert (finding.severity, finding.onset_step) == ("info", 40)
    assert run(curves, 60).finding("LEN002").severity == "critical"


def test_batches_without_any_end_token() -> None:
    """A public run of TRL's PPO: 64 tokens each, no end token, the same score throughout."""
    ends, scores = "length/end_tokens", noisy(-0.1, 0.002, 1)
    patient = run({ends: 0.0, REWARD: scores}, 40)
    finding = patient.finding("LEN007")
    assert (finding.severity, finding.onset_step) == ("critical", 0)
    assert finding.remedies[0] == "longer-limit"
    learning = noisy(ramp(0.1, 0.9, 15), 0.02, 1)
    assert run({ends: 0.0, REWARD: learning}, 40).finding("LEN007").severity == "info"
    assert run({ends: 0.0, REWARD: scores}, 15).findings("LEN007") == []
    one_ends: Curve = lambda step: float(step == 11)  # noqa: E731
    assert run({ends: one_ends, REWARD: scores}, 40).findings("LEN007") == []


def test_an_end_token_that_is_not_recognized() -> None:
    """A trainer that knows one of several end tokens counts .97 and more as truncated."""
    curves: dict[str, Curve] = {LENGTH: noisy(400, 20, 1), LONGEST: noisy(900, 40, 2), CUT: 1.0}
    finding = run(curves, 20).finding("LEN007")
    assert finding.severity == "warning"
    assert "100 %" in finding.summary


def test_ordinary_truncation_is_left_to_its_rule() -> None:
    curves: dict[str, Curve] = {LENGTH: noisy(450, 9, 1), LONGEST: 512.0, CUT: noisy(0.6, 0.05, 2)}
    assert run(curves).findings("LEN007") == []
    assert run({LENGTH: 8.0, LONGEST: 8.0}).findings("LEN007") == []


def test_loops_are_graded_by_their_share() -> None:
    assert run({LOOPS: noisy(0.12, 0.02, 1)}).finding("LEN008").severity == "info"
    assert run({LOOPS: noisy(0.3, 0.03, 1)}).finding("LEN008").severity == "warning"
    grown = noisy(ramp(0.01, 0.7, 30, begin=30), 0.03, 1)
    finding = run({LOOPS: grown}).finding("LEN008")
    assert finding.severity == "critical"
    assert finding.remedies[0] == "repetition-penalty"


def test_loops_that_a_base_model_unlearns_are_info() -> None:
    patient = run({LOOPS: noisy(ramp(0.5, 0.0, 60), 0.02, 1)})
    assert not [each for each in patient.findings("LEN008") if each.active]
    assert all(each.severity != "critical" for each in patient.findings("LEN008"))


def test_repeated_phrases_show_in_ngrams_and_in_compression() -> None:
    fewer = run({NGRAMS: noisy(ramp(0.9, 0.2, 30, begin=30), 0.01, 1), REWARD: flat()})
    assert fewer.finding("LEN008").severity == "warning"
    packed = run({PACKED: noisy(ramp(2.4, 12.0, 30, begin=30), 0.1, 1), REWARD: flat()})
    assert packed.finding("LEN008").severity == "warning"
    rising = noisy(ramp(0.2, 0.8, 60), 0.03, 2)
    code = run({PACKED: noisy(ramp(2.4, 7.0, 30, begin=30), 0.1, 1), REWARD: rising})
    assert code.finding("LEN008").severity == "info"
    assert run({NGRAMS: noisy(0.9, 0.02, 1), PACKED: noisy(2.4, 0.2, 2)}).findings("LEN008") == []


def test_responses_that_shrink_for_a_constant_penalty_are_a_warning() -> None:
    """A public run: 444 to 117 tokens while the reward settled at -1, give or take .002."""
    curves: dict[str, Curve] = {
        LENGTH: noisy(ramp(450, 120, 15), 4, 1),
        REWARD: lambda step: -2 + min(step, 10) / 10 - 0.002 * (step % 7 == 0),
    }
    assert run(curves, 45).finding("LEN005").severity == "warning"


CODES = ("LEN004", "LEN005", "LEN006", "LEN007", "LEN008")


@pytest.mark.parametrize("seed", range(4))
def test_healthy_runs_are_quiet(seed: int) -> None:
    patient = Patient(steps(150, healthy(seed)))
    assert [each for code in CODES for each in patient.findings(code)] == []


def test_skipped_without_inputs_and_not_applicable() -> None:
    skipped = {each.code for each in run({"clip/low_rate": 0.0}).engine.diagnosis().skipped}
    assert set(CODES) <= skipped
    patient = run({LENGTH: NotApplicable("fixed"), LONGEST: 5.0, LOOPS: NotApplicable("no text")})
    assert patient.why_not("LEN005") == "fixed"
    assert patient.why_not("LEN008") == "no text"


@pytest.mark.parametrize(
    ("before", "after", "first"),
    [
        (0.01, 0.97, "check-end-token"),
        (0.01, 0.6, "lower-learning-rate"),
        (0.8, 0.97, "lower-learning-rate"),
    ],
)
def test_a_run_in_which_nothing_ends_any_more_has_to_check_its_end_token(
    before: float, after: float, first: str
) -> None:
    curves: dict[str, Curve] = {
        LENGTH: noisy(ramp(400, 1000, 15, begin=50), 4, 1),
        "length/truncated_rate": noisy(ramp(before, after, 15, begin=50), 0.005, 3),
        REWARD: noisy(ramp(0.5, 0.04, 15, begin=50), 0.02, 2),
    }
    finding = run(curves).finding("LEN006")
    assert finding.remedies[0] == first
    assert ("truncated" in finding.summary) == (first == "check-end-token")
    assert len(finding.summary.split()) <= 20


def test_longer_responses_to_harder_prompts_are_no_explosion() -> None:
    """Held-out prompts are solved as before, so the policy can still end its responses."""
    curves: dict[str, Curve] = {
        LENGTH: noisy(ramp(400, 1000, 15, begin=50), 4, 1),
        REWARD: noisy(ramp(0.5, 0.04, 15, begin=50), 0.02, 2),
    }
    kept = every(5, noisy(0.7, 0.01, 8))
    assert run(curves).finding("LEN006").active
    found = run({**curves, "accuracy/heldout": kept}).findings("LEN006")
    assert not any(each.active for each in found)  # until two evaluations after the fall
