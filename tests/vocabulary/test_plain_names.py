import pytest

from grpodoctor.remedies.catalogue import all_remedies
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.plain_names import PLAIN_NAMES, in_plain_words, plain_name


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        (
            "accuracy/heldout fell to 0.5, while reward/mean did not.",
            "Held-out accuracy fell to 0.5, while the mean reward did not.",
        ),
        (
            "accuracy/heldout/set/openai/gsm8k fell to 0.5, reward/heldout/set/a.b. Then.",
            "Held-out accuracy on openai/gsm8k fell to 0.5, the held-out reward on a.b. Then.",
        ),
        ("It rose while pass_at_k/8 fell.", "It rose while pass@8 fell."),
        ("Reward fell; clip/high_rate is 0.2.", "Reward fell; the share clipped high is 0.2."),
        ("Name its key with --map loss=reward/mean.", "Name its key with --map loss=reward/mean."),
        (
            "reward/mean/extra and my/reward/mean stay.",
            "reward/mean/extra and my/reward/mean stay.",
        ),
    ],
)
def test_names_become_words(sentence: str, words: str) -> None:
    assert in_plain_words(sentence) == words


def test_what_remedies_act_on_has_words() -> None:
    acted_on = [each.acts_on for each in all_remedies() if each.acts_on is not None]
    names = {name for requirement in acted_on for name in requirement.names}
    assert names
    assert not [name for name in names if plain_name(name) == name and ("/" in name or "_" in name)]


def test_every_name_is_a_metric() -> None:
    assert all(metric_of(name) for name in PLAIN_NAMES)
