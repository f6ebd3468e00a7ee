"""Sources of reward functions in every accepted form, for the tests of `train` and `preflight`.

Each gives a reward if the last and only box contains the answer.
"""

BOXED = r"""
import re
def read(text):
    boxes = re.findall(r"\\boxed\{([^{}]+)\}", text)
    return boxes[-1] if len(boxes) == 1 else None
"""

_TRL = """
def reward(completions, answer, **kwargs):
    return [float(read(text) == right) for text, right in zip(completions, answer)]
"""
_OWN = """
def reward(prompts, completions, answers):
    return [float(read(text) == right) for text, right in zip(completions, answers)]
"""

SOUND_REWARDS = {
    "trl": BOXED + _TRL,
    "trl, async": BOXED + _TRL.replace("def", "async def"),
    "trl, generator": BOXED
    + """
def reward(completions, answer, **kwargs):
    for text, right in zip(completions, answer):
        yield float(read(text) == right)
""",
    "trl, arrays": BOXED
    + """
import numpy as np
def reward(prompts, completions, answer, **kwargs):
    return np.array([read(text) == right for text, right in zip(completions, answer)])
""",
    "trl, dataclass in the module": "from __future__ import annotations\nimport dataclasses\n"
    "@dataclasses.dataclass\nclass Kept:\n    x: 'int'\n" + BOXED + _TRL,
    "trl, partial": BOXED
    + """
import functools
def graded(completions, answer, *, weight, **kwargs):
    return [weight * (read(text) == right) for text, right in zip(completions, answer)]
reward = functools.partial(graded, weight=2.0)
""",
    "trl, callable object": BOXED
    + """
class Scorer:
    def __call__(self, completions, answer, **kwargs):
        return [float(read(text) == right) for text, right in zip(completions, answer)]
reward = Scorer()
""",
    "verl": BOXED
    + """
def reward(data_source, solution_str, ground_truth, extra_info=None):
    return float(read(solution_str) == ground_truth)
""",
    "verl, dict": BOXED
    + """
def reward(data_source, solution_str, ground_truth, extra_info=None):
    right = read(solution_str) == ground_truth
    return {"score": float(right), "acc": right}
""",
    "verl, async": BOXED
    + """
async def reward(data_source, solution_str, ground_truth, extra_info=None):
    return float(read(solution_str) == ground_truth)
""",
    "verl batch": BOXED
    + """
def reward(data_sources, solution_strs, ground_truths, extra_infos):
    return [float(read(text) == right) for text, right in zip(solution_strs, ground_truths)]
""",
    "grpodoctor": BOXED + _OWN,
    "grpodoctor, keywords": BOXED + _OWN.replace("answers)", "answers, **kwargs)", 1),
    "grpodoctor, by name": BOXED
    + _OWN.replace("prompts, completions, answers", "answers, completions"),
    "grpodoctor, positional": BOXED + _OWN.replace("answers)", "answers, /)", 1),
    "grpodoctor, other names": BOXED
    + """
def reward(prompts, texts, keys):
    right = [read(text) == key for text, key in zip(texts, keys)]
    return {"task": [float(each) for each in right], "correct": right}
""",
    "grpodoctor, decorated": BOXED
    + """
import functools
def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper
@logged
"""
    + _OWN.lstrip(),
}
"""Source by form; the part of the name before a comma is `UserReward.form`."""

REFUSED_REWARDS = {
    "class": ("class reward:\n    pass\n", "is a class .*create an instance"),
    "async generator": (
        "async def reward(completions, **kwargs):\n    yield 1.0\n",
        "is an async generator",
    ),
    "unknown form": ("def reward(*args, **kwargs):\n    return [1.0]\n", r"\*args and \*\*kwargs"),
    "no function": ("reward = 3\n", "has no function 'reward'"),
    "nothing": ("", "has no function 'reward'"),
    "failing module": ("\n1 / 0\n", r"ZeroDivisionError: .*\(.*\.py, line 2\)"),
    "exiting module": ("raise SystemExit('at import')\n", "SystemExit: at import"),
    "syntax error": ("def reward(:\n", "SyntaxError"),
}
"""Source and error message of functions that cannot be called."""

FAILING_REWARDS = {
    "exception": (
        "raise ValueError('two\\nlines')",
        r"raised ValueError: two lines \(\S+\.py, line 2\) at completion 0",
    ),
    "library": ("return int(completions[0])", r"raised ValueError: .* line 2\)"),
    "exit": ("raise SystemExit(1)", "raised SystemExit: 1"),
    "crash": ("import os; os._exit(3)", "ended its process"),
    "text": ("return 'yes'", "returned str"),
    "nothing": ("return None", "returned NoneType"),
    "one number": ("return 1.0", "returned float"),
    "set": ("return {1.0, 2.0}", "returned set"),
    "too few": ("return [1.0]", "returned 1 rewards for 2 completions"),
    "endless generator": (
        "import itertools; return itertools.repeat(1.0)",
        "returned 3 rewards for 2 completions",
    ),
    "lazy exception": (
        "return (1 / (index - 1) for index, _ in enumerate(completions))",
        "raised ZeroDivisionError",
    ),
    "failing iteration": (
        "return type('Bad', (), {'__iter__': lambda self: 1 / 0})()",
        "raised ZeroDivisionError",
    ),
    "failing tolist": (
        "return type('Bad', (), {'tolist': lambda self: 1 / 0})()",
        "raised ZeroDivisionError",
    ),
    "failing text": (
        "return [type('Bad', (), {'__str__': lambda self: 1 / 0})()] * len(completions)",
        "raised ZeroDivisionError",
    ),
    "failing text of an exception": (
        "raise type('Bad', (Exception,), {'__str__': lambda self: 1 / 0})()",
        "raised Bad: its text cannot be read",
    ),
    "interrupt": ("raise KeyboardInterrupt", "raised KeyboardInterrupt"),
    "other base exception": ("raise type('Bad', (BaseException,), {})('x')", "raised Bad: x"),
    "nan": ("return [float('nan')] * len(completions)", "returned 'nan' for completion 0"),
    "none": ("return [None] * len(completions)", "returned 'None' for completion 0"),
    "dict without score": ("return [{'acc': 1}] * len(completions)", "without the key 'score'"),
    "nested": ("return [[1.0]] * len(completions)", "for completion 0"),
}
"""Body and error message of functions that fail when they are called."""
