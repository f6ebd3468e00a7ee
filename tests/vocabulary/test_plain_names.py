import pytest

from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.plain_names import PLAIN_NAMES, in_plain_words


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        (
            "accuracy/heldout fell to 0.5, while reward/mean did not.",
            "Held-out accuracy fell to 0.5, while the mean reward did not.",
        ),
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


def test_every_name_is_a_metric() -> None:
    assert all(metric_of(name) for name in PLAIN_NAMES)
