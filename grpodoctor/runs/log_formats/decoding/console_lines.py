"""Parsers for lines of console text: pairs of keys and numbers, matched by patterns.

Each parser first searches for a required substring. Nearly all lines of a log match no parser, and
trying the patterns on all of them would cost more than parsing the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from grpodoctor.runs.log_formats.base import PART_OF_STEP
from grpodoctor.runs.log_formats.decoding.printed_numbers import (
    NUMBER,
    ParsedLine,
    parse_wrapped,
    to_number,
)
from grpodoctor.runs.log_formats.decoding.reward_lists import group_numbers
from grpodoctor.support.json_text import loads
from grpodoctor.support.numbers import parse_number

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_RAY = re.compile(r"^\s*\([\w.:/\- ]{1,80} pid=\d+(?:, ip=[\d.a-fA-F:]+)?\)\s?")
_JOB = re.compile(
    r"^\s*\((?P<name>[\w./-]{1,120}), (?P<rank>rank=\d+, )?pid=\d+(?:, ip=[\d.a-fA-F:]+)?\)\s?"
)
"""SkyPilot's prefix: the job, and the rank in a job on several nodes."""
_WHEN = r"\[?\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?"
_LOGGER = r"[A-Za-z_][\w.]{0,100}(?::[\w.<>]{1,60}){0,2}"
_BETWEEN = r"(?:\s{0,3}[-|]\s{1,3}|\s{0,3}(?=\[)|\s{1,3})"
_LOGGING = re.compile(
    rf"^\s{{0,3}}(?:{_WHEN}{_BETWEEN}(?:\[?{_LOGGER}\]?{_BETWEEN})?\[?(?:INFO|DEBUG|WARNING)\]?"
    rf"(?:\s{{0,9}}[-|]\s{{1,3}}|\s{{1,9}}|(?=\[))(?:\[{_LOGGER}\]\s?|{_LOGGER}\s(?:-|\|)\s)?"
    rf"|(?:INFO|DEBUG|WARNING):{_LOGGER}:)"
)
"""The prefix of Python's `logging` or of loguru: time, level and logger, in their usual orders."""
_LEVELS = ("INFO", "DEBUG", "WARNING")
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")

_DASHED_START = re.compile(r"(?<![\w/])step:\s{0,4}(\d{1,12})\s+-\s")
_BAR = re.compile(
    r"(?:(?P<title>[^|\s][^|]{0,60}):)?\s{0,9}\d{1,3}%(?:\|[^|]{0,400}\||\s)\s*"
    r"(\d{1,12})/(\d{1,12})\s*\["
)
"""A notebook service prints the bar's text alone: ` 33% 100/300 [05:00<10:00, 3.00s/it]`."""
_HELD_OUT_BAR = re.compile(
    r"\W{0,9}(?:val|valid(?:ation)?|eval(?:uation|uating)?|test(?:ing)?)\b[^|%]{0,40}\d{1,3}%\|",
    re.IGNORECASE,
)
"""`val: 100%|███| 64/64 [01:35<00:00, reward=0.4]`: a progress bar over held-out prompts."""
_STEPS = re.compile(r"\b(?:train(?:ing)?|steps?|iterations?|episodes?)\b", re.IGNORECASE)
_DATA = re.compile(
    r"\b(?:split|examples?|dataset|shards?|files?|map|filter\w*|tokeniz\w*|loading|download\w*)\b",
    re.IGNORECASE,
)
"""Titles of progress bars over data, such as `Generating train split`."""
_PIPED = re.compile(
    r"\bStep\s+(\d{1,12})\s+\|\s+(?:Time:\s+)?(?:\d[\d.]{0,12}(?:ms|s|m|h|d)\s{1,8}){1,3}\|\s+(.*)$"
)
"""prime-rl states the time of the step first. Other scripts print `Step 8 | Loss: 0.8`."""
_PIPED_PAIR = re.compile(rf"^\s*([A-Z][\w .()/-]{{0,60}}?):?\s+({NUMBER})\s*(%|[A-Za-z/]+)?\s*$")
_BULLET = re.compile(rf"^\s*[•*]\s+([A-Z][\w .()/-]{{2,80}}?):\s+({NUMBER})\s*(%|[A-Za-z/]+)?\s*$")
_RESULTS = re.compile(r"\W{0,9}(Training|Validation) Results:\s*")
_CELL = re.compile(r"[A-Za-z_][\w./@() -]{0,160}")
_BOXED_PAIR = re.compile(rf"([A-Za-z_][\w./@-]{{0,160}})(?::\s+|\s{{2,}})({NUMBER})")
"""`│ entropy: 0.4 │`, or `│ entropy    0.4 │` in a panel of two columns."""
_PANEL_ROW = re.compile(r"│\s{1,4}([a-z]\w{0,40})\s{2,}([A-Za-z_][\w./@-]{0,160}: .*?)\s*│\s*")
"""`│  policy  clipfrac_avg: 0.01 | entropy_avg: 0.43 │`, a family of keys of open-instruct."""
_PANEL_MORE = re.compile(r"│\s{6,}(\S.*?)\s*│\s*")
_ROUNDED_AWAY = re.compile(r"-?0\.0+")
_LINE = re.compile(r"[│┃|]")
_PLAIN_NUMBER = re.compile(NUMBER)
_FEWEST_STATISTICS = 3
"""Numbers behind a name; two may be the value of a batch and its mean."""
_PARTS = re.compile(r",\s+|\s*[|;]\s*|\s+-\s+")
_LABELED = re.compile(
    rf"([A-Za-z][\w ./-]{{0,40}}?)\s*[:=]\s*({NUMBER})"
    r"(?:/(?P<total>\d{1,12})|\s{0,3}(?P<unit>%|[A-Za-z/]{1,10}))?\s*$"
)
"""`Reward: 0.5`, `KL: 3 %`, `Correct: 3/4`."""
_COUNTER = re.compile(
    r"(?:step|iter|iteration|update|batch|microbatch|rollout|episode|round|epoch|it)s?$",
    re.IGNORECASE,
)
_IN_PARENTHESES = re.compile(rf"(: |=)\(({NUMBER})\)")
"""`mean_reward: (-0.28)`, a number in parentheses."""
_REWARD_LIST = re.compile(r"\brewards?\s?[:=]\s{0,4}\[([^\]\[]{1,2000})\]", re.IGNORECASE)
"""`rewards=['0.80', '0.01']`: the rewards of one group."""
_MEAN_REWARD = re.compile(r"line/(?:(?:avg|average|mean)_reward|reward_(?:avg|average|mean))")
_ASSIGNED = re.compile(
    rf"(?<![\w/.])([A-Za-z][\w/.]{{0,40}})=({NUMBER})(?![\w.])(?:/(\d{{1,12}})(?![\w.]))?"
)
_DOTTED = re.compile(r"""(?<![\w/.])[A-Za-z_]\w{0,60}(?:\.\w{1,60}){1,8}=([^\s,'"\]]{0,40})""")
_MIN_SETTINGS = 3
_TRAINING_WORDS = ("reward", "loss")
"""A line of labels without one of these words is not about a training step."""
_FEWEST_LABELS = 3
_LONGEST_LABELED = 2000
_FRAMEWORK_KEYS = 3
"""Labels with a slash in one line, from which all are keys of a framework."""
_IN_EPOCH = re.compile(r"[Ee]poch\W{0,3}(\d{1,6})/\d{1,6}\W{1,4}(\d{1,9})/(\d{1,9})")
_IN_ROLLOUT = re.compile(r"\bRollout\s(\d{1,12})\s(?:Step|Update)\s\d{1,12}:", re.IGNORECASE)
_LINE_STEP = re.compile(
    r"(?<!\bin )(?<!\bper )\b(?:global_)?(?:step|iter|iteration|update|batch)\b[\s:=#\[(]{0,4}"
    r"(\d{1,12})(?!\d|/1\b|\.\d{0,40}[1-9])"
    r"|[\[(](\d{1,12})/\d{1,12}[\])]",
    re.IGNORECASE,
)
"""A counter up to one, as in `Iter: 1/1, Step: 7/200`, is that of a loop around the steps.
The number behind `sum of rewards in batch:` is a value, and so is a fraction."""
_STEP_OF_TOTAL = re.compile(
    r"(?<![\w./])(?<!poch )(?<!poch: )(\d{1,12})/\d{1,12}(?: {1,4}\||,| -)", re.IGNORECASE
)
"""`12/100 | loss=…`: the unit is not printed, but it is not an epoch."""

_HEADING = re.compile(
    r"\bStep\s{1,3}(\d{1,12})\b(?!\s(?:and|or|that|than|which|of)\s)"
    r"(?:[^\n]{0,80}?\b(?:train step|global(?:[ _]step)?:?)\s{1,3}(\d{1,12}))?",
    re.IGNORECASE,
)
"""`Step 3/50 Train step 53/250`: the first number begins again in each epoch. In a sentence that
goes on behind the number, such as `cache @ step 0 and module 12`, the step is not a heading."""

_ROLLOUT_HEADING = re.compile(r"\bRollout\s(\d{1,12}):\s")
"""`Rollout 3: avg entropy: 0.7`, above the dicts of a rollout."""

_BATCH_HEADING = re.compile(
    r"\b(?:rollout|train(?:ing)?)\s(?:batch|iteration|round)\s[#:]?\s?(\d{1,12})\b", re.IGNORECASE
)
"""`rollout batch 3 generated`, above the row of that batch."""

_LIST_HEADING = re.compile(
    r"\W{0,20}(?:global |train(?:ing)? |rl |grpo )?(?:step|iteration|iter|update|round)\W{1,3}"
    r"(\d{1,12})(?:\s{0,2}/\s{0,2}\d{1,12})?"
    r"(?:\W{1,3}(?:train(?:ing)? |data )?"
    r"(?:metrics|statistics|stats|summary|results|report|completed?|done|finished))?\W{0,80}",
    re.IGNORECASE,
)
"""`=== Step 12/100 ===` or `Iteration 12 metrics:`. A sentence of a response goes on otherwise."""
_LIST_HEADING_BEHIND_TIME = re.compile(
    r"(?:^|[\]\s])(?:rollout|iteration|step)\s(\d{1,12})\s[a-z][a-z ]{2,60}:\s{0,20}$",
    re.IGNORECASE,
)
_ROLLOUT_STATISTICS = re.compile(
    r"rollout (\d{1,12}) [a-z ]{0,30}statistics:\s{0,20}", re.IGNORECASE
)
"""`Rollout 3 data statistics:`, as XTuner prints it."""
_LIST_ENTRY = re.compile(
    rf"\s{{0,12}}(?:-\s)?([A-Za-z][\w ./@()-]{{1,60}}?)\s{{0,20}}[:=]\s{{0,20}}({NUMBER})"
    r"\s{0,3}(%|[A-Za-z/]{1,10})?"
    rf"(?:\s{{0,3}}(?:±|\+/-|\(±|\(std\s?[:=]?)\s?{NUMBER}\)?)?\s{{0,20}}"
)
"""An entry may state its spread: `Mean reward: 0.5 (std: 0.2)`."""

_MAX_LINE = 200_000
"""Characters of a line that are parsed."""


def visible_segments(line: str) -> list[str]:
    """Split a line at carriage returns into the texts that a terminal shows one after another.

    Colors, the prefixes of Ray, SkyPilot and loggers, and parentheses around a number alone are
    removed.
    """
    text = line[:_MAX_LINE]
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if ": (" in text or "=(" in text:
        text = _IN_PARENTHESES.sub(r"\1\2", text)
    segments = text.split("\r") if "\r" in text else [text]
    if "pid=" in text:
        segments = [_RAY.sub("", _JOB.sub("", segment)) for segment in segments]
    if any(level in text for level in _LEVELS):
        segments = [_LOGGING.sub("", segment, count=1) for segment in segments]
    if "[repeated " in text:
        segments = [_REPEATED.sub("", segment) for segment in segments]
    return [segment for segment in segments if segment and not segment.isspace()]


def job_of(line: str) -> str:
    """The job that printed a line of a launcher's log; empty if the line has no such prefix."""
    if ", pid=" not in line:
        return ""
    match = _JOB.match(_ANSI.sub("", line[:400]) if "\x1b" in line else line[:400])
    return match["name"] if match and not match["rank"] else ""


def starts_verl_row(text: str) -> bool:
    """Whether a row of verl starts in this line; a narrow terminal may have wrapped it."""
    return "step:" in text and _DASHED_START.search(text) is not None


def parse_verl_row(text: str) -> ParsedLine | None:
    """Parse `step:12 - actor/entropy:0.31 - actor/pg_loss:-0.002`, as verl prints it."""
    match = _DASHED_START.search(text) if "step:" in text else None
    if match is None:
        return None
    pairs: dict[str, float] = {}
    for part in text[match.end() :].split(" - "):
        key, _, value = part.rpartition(":")
        if not key or " " in key:
            key = key.strip()
            if not key or " " in key:
                continue
        try:
            pairs[key] = float(value)  # the common case; a function call would double its cost
        except ValueError:
            reading = parse_wrapped(value)
            if reading is not None:
                pairs[key] = reading
    return ParsedLine(pairs, int(match[1])) if pairs else None


class ProgressBar(NamedTuple):
    """A progress bar that counts steps."""

    done: int
    total: int


def parse_progress_bar(text: str) -> ProgressBar | None:
    """Parse the last progress bar of the training; the titles of other bars exclude them."""
    if "%|" not in text and "% " not in text:
        return None
    bars = [each for each in _BAR.finditer(text) if not each[1] or _counts_steps(each[1])]
    return ProgressBar(int(bars[-1][2]), int(bars[-1][3])) if bars else None


def _counts_steps(title: str) -> bool:
    return _STEPS.search(title) is not None and _DATA.search(title) is None


def parse_prime_rl_row(text: str) -> ParsedLine | None:
    """Parse `Step 1 | 12.3s | Loss 0.01`, as prime-rl prints it; keys get the prefix `console/`."""
    match = _PIPED.search(text) if "|" in text and "Step" in text else None
    if match is None:
        return None
    matches = (_PIPED_PAIR.match(part) for part in match[2].split("|"))
    pairs = {f"console/{match[1]}": _scaled(match[2], match[3]) for match in matches if match}
    return ParsedLine(pairs, int(match[1])) if pairs else None


def parse_bullet(text: str, title: str = "") -> ParsedLine | None:
    """Parse `• Generation KL Error: 0.01` of NeMo RL; keys get the prefix `console/`.

    Args:
        text: the line.
        title: what `results_title` found above it; it becomes a part of the key.
    """
    match = _BULLET.match(text) if "•" in text or "*" in text else None
    if match is None:
        return None
    prefix = "console/Validation " if title == "Validation" else "console/"
    return ParsedLine({f"{prefix}{match[1]}": _scaled(match[2], match[3])})


def results_title(text: str) -> str | None:
    """`Validation` of the line `📊 Validation Results:` of NeMo RL; None for other lines."""
    match = _RESULTS.fullmatch(text) if "Results:" in text else None
    return match[1] if match else None


def parse_table_cells(text: str) -> ParsedLine | None:
    """Parse `│ env/all/reward/total │ 0.4 │`, a line of a printed table or panel."""
    if "│" not in text and "┃" not in text and "|" not in text:
        return None
    family = _PANEL_ROW.fullmatch(text) if text.startswith("│") else None
    if family is not None:
        return _parse_family(family[1], family[2])
    parts = [part.strip() for part in _LINE.split(text)]
    if _are_statistics([part for part in parts if part]):
        return None
    pairs = {
        key: to_number(value)
        for key, value in pairwise(parts)
        if _CELL.fullmatch(key) and _PLAIN_NUMBER.fullmatch(value)
    }
    pairs |= {
        match[1]: to_number(match[2]) for part in parts if (match := _BOXED_PAIR.fullmatch(part))
    }
    return ParsedLine(pairs) if pairs else None


def _are_statistics(cells: Sequence[str]) -> bool:
    """Whether a row is a name with several numbers: first, last, mean and so on of a metric."""
    numbers = [_PLAIN_NUMBER.fullmatch(cell) for cell in cells[1:]]
    return len(numbers) >= _FEWEST_STATISTICS and all(numbers)


def starts_panel_row(text: str) -> bool:
    """Whether a line begins a family of keys in a panel."""
    return text.startswith("│") and _PANEL_ROW.fullmatch(text) is not None


def with_wrapped(row: str, text: str) -> str | None:
    """A panel's row with its next line, if that continues it: a narrow terminal wraps rows."""
    more = _PANEL_MORE.fullmatch(text) if text.startswith("│") else None
    return f"{row.rstrip()[:-1].rstrip()} {more[1]} │" if more is not None else None


def _parse_family(family: str, content: str) -> ParsedLine:
    """The keys of a family. `0.00` is a number too small for two decimals: a zero has an exponent.

    Keys without a family are printed under `other`.
    """
    prefix = "" if family == "other" else f"{family}/"
    pairs = {}
    for part in content.split("|"):
        match = _BOXED_PAIR.fullmatch(part.strip())
        if match is not None and not _ROUNDED_AWAY.fullmatch(match[2]):
            pairs[prefix + match[1]] = to_number(match[2])
    return ParsedLine(pairs)


def parse_labeled_line(text: str) -> ParsedLine | None:
    """Parse `Epoch:[1/2](22/975), Reward: 0.5, Actor Loss: 0.01`, as users' scripts print it.

    Labels become keys with the prefix `line/`: such lines also appear in the logs of frameworks,
    but are not written by the framework. A callback may print the framework's own keys, such as
    `completions/clipped_ratio=0.5`; they stay as they are.
    """
    if not _may_have_labels(text) or _echoes_settings(text):
        return None
    pairs, has_mean = _labeled_or_assigned(text)
    step = _step_of_line(text)
    if step is not None:
        pairs |= {f"line/{key}": value for key, value in _listed_rewards(text).items()}
    has_word = [any(word in key for key in pairs) for word in _TRAINING_WORDS]
    is_enough = (all(has_word) or has_mean) and step is not None
    if not any(has_word) or (len(pairs) < _FEWEST_LABELS and not is_enough):
        return None
    if sum("/" in key.removeprefix("line/") for key in pairs) >= _FRAMEWORK_KEYS:
        pairs = {key.removeprefix("line/"): value for key, value in pairs.items()}
    elif _HELD_OUT_BAR.match(text):
        pairs = {f"line/eval_{key.removeprefix('line/')}": pairs[key] for key in pairs}
    return ParsedLine(pairs, step, PART_OF_STEP if _IN_ROLLOUT.search(text) else "")


def _may_have_labels(text: str) -> bool:
    """Whether a line may have labels with numbers; spares most lines the regular expressions."""
    if len(text) > _LONGEST_LABELED or "│" in text or "┃" in text:
        return False
    lowered = text.lower()
    return (":" in text or "=" in text) and any(word in lowered for word in _TRAINING_WORDS)


def _labeled_or_assigned(text: str) -> tuple[dict[str, float], bool]:
    """The numbers of `Label: 0.5` or else of `key=0.5`, and whether a label is the mean reward."""
    labeled = _labeled_pairs(_LABELED.search(part) for part in _PARTS.split(text))
    assigned = {
        _key_of(key): to_number(value) if _counts(key) else _share(value, total)
        for key, value, total in _ASSIGNED.findall(text)
    }
    has_mean = any(map(_MEAN_REWARD.fullmatch, labeled))
    if len(labeled) < _FEWEST_LABELS and not has_mean:
        return assigned or labeled, has_mean
    if not any(word in key for key in labeled for word in _TRAINING_WORDS):
        return labeled | assigned, has_mean
    return labeled, has_mean


def _echoes_settings(text: str) -> bool:
    """Whether a line repeats the settings of a command line, such as `trainer.name=a data.size=4`.

    Some of them are words, unlike the metrics of a step under dotted names.
    """
    values = _DOTTED.findall(text) if "=" in text else []
    return len(values) >= _MIN_SETTINGS and any(parse_number(value) is None for value in values)


def _listed_rewards(text: str) -> dict[str, float]:
    """What the rewards of a group say about it; empty if the line does not list them."""
    match = _REWARD_LIST.search(text) if "[" in text else None
    if match is None:
        return {}
    rewards = [parse_number(item.strip(" '\"")) for item in match[1].split(",")]
    return group_numbers({"rewards": [rewards]})


def _key_of(label: str) -> str:
    return "line/" + "_".join(label.lower().replace("-", "_").split())


def _step_of_line(text: str) -> int | None:
    """The step of a line; steps within an epoch continue the count of the previous epochs.

    Updates within a rollout begin again with each rollout, so the rollout is the step.
    """
    of_rollout = _IN_ROLLOUT.search(text)
    if of_rollout:
        return int(of_rollout[1])
    of_epoch = _IN_EPOCH.search(text)
    if of_epoch:
        epoch, step, total = (int(number) for number in of_epoch.groups())
        return (max(epoch, 1) - 1) * total + step
    match = _LINE_STEP.search(text)
    if match is None:
        of_total = _STEP_OF_TOTAL.search(text)
        return int(of_total[1]) if of_total else None
    return int(match[1] or match[2])


def parse_json_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a line ends with, behind a time and a level; None if there is none."""
    start = text.find('{"')
    if start < 0 or not text.rstrip().endswith("}"):
        return None
    try:
        data = loads(text[start:].strip().encode())
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def parse_list_heading(text: str) -> int | None:
    """Parse `Iteration 12`, a separate line above a list of `Mean reward: 0.5`."""
    if len(text) < 80:
        match = _LIST_HEADING.fullmatch(text) or _ROLLOUT_STATISTICS.fullmatch(text)
    elif len(text) < 300 and text.rstrip().endswith(":"):
        match = _LIST_HEADING_BEHIND_TIME.search(text)
    else:
        return None
    return int(match[1]) if match else None


def parse_list_entry(text: str) -> ParsedLine | None:
    """Parse `  Mean reward: 0.5`, a line below a heading; keys get the prefix `line/`."""
    match = _LIST_ENTRY.fullmatch(text) if len(text) < 200 else None
    return ParsedLine({_key_of(match[1]): _scaled(match[2], match[3])}) if match else None


def parse_heading(text: str) -> int | None:
    """Parse the step in a heading, which applies to the lines below it."""
    if len(text) > 300 or "|" in text:
        return None
    if "Rollout " in text:
        rollout = _ROLLOUT_HEADING.search(text)
        return int(rollout[1]) if rollout else None
    match = _HEADING.search(text) if "tep " in text else None
    return int(match[2] or match[1]) if match else None


def parse_batch_heading(text: str) -> int | None:
    """Parse the number of `rollout batch 3 generated`; another counter may number the steps."""
    match = _BATCH_HEADING.search(text) if len(text) <= 300 and "|" not in text else None
    return int(match[1]) if match else None


def labels_before_dict(text: str) -> ParsedLine | None:
    """Parse the labels before a dict in a line, such as `loss: 0.1, entropy: 0.4, rewards: {…}`.

    Keys get the prefix `line/`. None if the line has fewer than two of them.
    """
    before = text[: text.find("{")] if len(text) <= _LONGEST_LABELED else ""
    parts = _PARTS.split(before) if ":" in before or "=" in before else []
    pairs = _labeled_pairs(_LABELED.search(part) for part in parts)
    return ParsedLine(pairs) if len(pairs) > 1 else None


def parse_values_of_rollout(text: str) -> dict[str, float]:
    """Parse `Rollout 3: avg entropy: 0.73`, a heading with values; keys get the prefix `line/`."""
    heading = _ROLLOUT_HEADING.search(text) if "Rollout " in text else None
    if heading is None:
        return {}
    parts = _PARTS.split(text[heading.end() :].strip())
    return _labeled_pairs(_LABELED.fullmatch(part) for part in parts)


def _labeled_pairs(matches: Iterable[re.Match[str] | None]) -> dict[str, float]:
    """The pairs of labels and numbers of a line, without its counters: `Batch: 3/10`."""
    return {
        _key_of(match[1]): _share(match[2], match["total"])
        if match["total"]
        else _scaled(match[2], match["unit"])
        for match in matches
        if match and not (match["total"] and _counts(match[1]))
    }


def _counts(label: str) -> bool:
    """Whether a label counts steps, as in `epoch=1/2`: the number behind it is no share."""
    return _COUNTER.search(label) is not None


def _share(text: str, total: str) -> float:
    """The number of `correct=3/4`: the share, or the number itself if it exceeds the total."""
    value = to_number(text)
    return value / int(total) if total and 0 <= value <= int(total) > 0 else value


def _scaled(text: str, unit: str) -> float:
    return to_number(text) / 100 if unit == "%" else to_number(text)
