"""What forbids tokens while an engine generates: XTC, DRY, n-grams, masks, words, truncations.

Written, with the names that count, before its first run, and after the seventh draw showed that a
mask was proven where XTC was planted. A mask counts as `structured-output` only where a grammar or
a list of words was planted; everything else that forbids likelier tokens has a name of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tests.probe.plants.draw import Names

ROW_PROCESSORS = ("xtc_random", "dry", "grammar", "words", "eta_cutoff", "likeliest_excluded")

_XTC = ("xtc", "excluded-tokens", "wrong-sampler")
_DRY = ("dry-penalty", "wrong-sampler")
_NGRAM = ("no-repeat-ngram", "ngram-ban")
_MASK = ("structured-output", "bad-words", "wrong-sampler")
_CUT = ("truncation",)
_TYPICAL = ("typical-p", "typical-sampling", "truncation")
_UNNAMED = ("structured-output", "excluded-tokens", "wrong-sampler", "generation-path")

PAIRS: tuple[tuple[str, str, Names], ...] = (
    ("qwen2", "xtc_random:0.15,0.5", _XTC),
    ("phi3", "xtc_random:0.08,0.3", _XTC),
    ("helium", "xtc_random:0.2,1", _XTC),
    ("cohere", "dry:0.8,1.75,2", _DRY),
    ("olmo3", "dry:1.3,2,1", _DRY),
    ("starcoder2", "ngram_ban:2", _NGRAM),
    ("glm4", "ngram_ban:3", _NGRAM),
    ("smollm3", "grammar:3", _MASK),
    ("granite", "words:5", _MASK),
    ("gemma2", "typical_p:0.5", _TYPICAL),
    ("stablelm", "eta_cutoff:0.05", _CUT),
    ("seed_oss", "likeliest_excluded:0.3", _UNNAMED),
)
"""Family, fault, and the names that count."""
HEALTHY: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("qwen2", {"dtype": "bfloat16"}, {}),
    ("phi3", {}, {"top_p": 0.8}),
    ("cohere", {}, {"min_p": 0.1}),
    ("glm4", {}, {"temperature": 0.6}),
)
"""Family, options of both engines, and requested sampling, which the learner applies, too."""


def changed_row(logits: Any, everything: Sequence[int], mine: Mapping[str, str]) -> Any:
    """The next token's logits after the processors of this set."""
    if "xtc_random" in mine:
        threshold, probability = map(float, mine["xtc_random"].split(","))
        if _chance(everything) < probability:
            logits = _without_top_choices(logits, threshold)
    if "likeliest_excluded" in mine and _chance(everything) < float(mine["likeliest_excluded"]):
        logits[logits.argmax()] = -torch.inf
    if "dry" in mine:
        multiplier, base, allowed = mine["dry"].split(",")
        for token, size in _repetitions(everything).items():
            if size >= int(allowed):
                logits[token] -= float(multiplier) * float(base) ** (size - int(allowed))
    if "grammar" in mine:  # what may follow depends on the last token
        parts = int(mine["grammar"])
        logits[everything[-1] % parts :: parts] = -torch.inf
    if "words" in mine:  # of two tokens: the second one is forbidden after the first one
        first = everything[-1]
        logits[(first + int(mine["words"])) % len(logits)] = -torch.inf
        logits[(2 * first) % len(logits)] = -torch.inf
    if "eta_cutoff" in mine:
        eta, probs = float(mine["eta_cutoff"]), logits.softmax(-1)
        entropy = -(probs * probs.clamp(min=1e-30).log()).sum()
        least = torch.minimum(torch.tensor(eta), eta**0.5 * torch.exp(-entropy))
        logits = logits.masked_fill((probs < least) & (logits < logits.max()), -torch.inf)
    return logits


def _chance(everything: Sequence[int]) -> float:
    """A number between 0 and 1 that the text determines."""
    return zlib.crc32(bytes(token % 256 for token in everything)) / 2**32


def _without_top_choices(logits: Any, threshold: float) -> Any:
    """Without the tokens of at least a probability, except the least likely of them."""
    order = logits.argsort(descending=True)
    count = int((logits.softmax(-1) >= threshold).sum())
    if count > 1:
        logits[order[: count - 1]] = -torch.inf
    return logits


def _repetitions(everything: Sequence[int]) -> dict[int, int]:
    """Tokens that followed the text's end before, and the longest repetition that each continues.

    Written for each size from the definition.
    """
    text, found = list(everything), {}
    for size in range(1, len(text)):
        places = [at for at in range(len(text) - size) if text[at : at + size] == text[-size:]]
        if not places:
            break
        found.update({text[at + size]: size for at in places})
    return found
