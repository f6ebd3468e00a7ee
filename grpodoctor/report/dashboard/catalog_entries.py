"""The searchable catalog: rules, remedies, recipes and metrics, with each framework's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from grpodoctor.frameworks.registry import all_frameworks, configurable_frameworks
from grpodoctor.frameworks.relative_settings import with_values
from grpodoctor.frameworks.settings import framework_settings
from grpodoctor.monitor.advice import called_for_by, overlapping
from grpodoctor.remedies.base import Remedy
from grpodoctor.remedies.catalogue import all_remedies
from grpodoctor.remedies.plain_grpo import PLAIN_GRPO
from grpodoctor.report.manual_page import manual_markdown
from grpodoctor.report.trial_table import remedy_trials, rule_trials
from grpodoctor.rules.base import Rule
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.rules.lead_times import lead_time_of
from grpodoctor.support.field_docs import field_docs
from grpodoctor.trainer.config.preset_translation import translate
from grpodoctor.trainer.config.presets import preset_names, preset_of
from grpodoctor.trainer.recipes import Page, families, page_markdown
from grpodoctor.vocabulary.metric import Metric
from grpodoctor.vocabulary.metrics import METRICS

Kind = Literal["rule", "remedy", "recipe", "metric"]

_HEADING = "#####"
_PRESETS = "presets"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One line of the catalog."""

    kind: Kind
    id: str
    name: str
    summary: str
    also: tuple[str, ...] = ()
    """Other names under which a reader may search for it: settings and log keys of frameworks."""

    @property
    def text(self) -> str:
        """Everything that a search looks at."""
        return " ".join((self.id, self.name, self.summary, *self.also)).lower()


@dataclass(frozen=True, slots=True)
class FrameworkNames:
    """What a framework calls an entry."""

    framework: str
    names: tuple[str, ...]


@lru_cache(maxsize=1)
def catalog() -> tuple[CatalogEntry, ...]:
    """All entries: the rules by code, then remedies, recipes and metrics."""
    return (
        *map(_rule_entry, all_rules()),
        *map(_remedy_entry, all_remedies()),
        *(_recipe_entry(page) for pages in families().values() for page in pages),
        *map(_metric_entry, METRICS),
    )


def search(entries: Iterable[CatalogEntry], text: str, kind: Kind) -> list[CatalogEntry]:
    """The entries of a kind that contain every word of a text."""
    words = text.lower().split()
    return [
        entry
        for entry in entries
        if entry.kind == kind and all(word in entry.text for word in words)
    ]


def _rule_entry(rule: Rule) -> CatalogEntry:
    needs = (name for need in rule.inputs for name in ((need,) if isinstance(need, str) else need))
    return CatalogEntry(
        "rule", rule.code, rule.name, rule.summary, (*rule.former_names, *needs, *rule.remedies)
    )


def _remedy_entry(remedy: Remedy) -> CatalogEntry:
    settings = tuple(line for each in remedy_names(remedy) for line in each.names)
    return CatalogEntry(
        "remedy", remedy.id, remedy.applicability, remedy.title, (*remedy.former_ids, *settings)
    )


def _recipe_entry(page: Page) -> CatalogEntry:
    return CatalogEntry("recipe", page.full_name, page.family or "other", page.headline)


def _metric_entry(metric: Metric) -> CatalogEntry:
    keys = tuple(key for each in metric_names(metric.name) for key in each.names)
    return CatalogEntry("metric", metric.name, metric.unit, metric.summary, keys)


@lru_cache(maxsize=256)
def _remedy_names(remedy_id: str) -> tuple[FrameworkNames, ...]:
    remedy = next(each for each in all_remedies() if each.id == remedy_id)
    change = remedy.change(PLAIN_GRPO)
    named = []
    for framework in configurable_frameworks():
        lines = [
            *framework_settings(change, framework.name, PLAIN_GRPO),
            *framework_settings(remedy.restart_with, framework.name),
        ]
        written = with_values([line for line in lines if line.key], {})
        settings = tuple(dict.fromkeys(line.commented_line for line in written))
        named.append(FrameworkNames(framework.name, settings))
    return tuple(each for each in named if each.names)


def remedy_names(remedy: Remedy) -> tuple[FrameworkNames, ...]:
    """The settings of a remedy in each framework, for an example run."""
    return _remedy_names(remedy.id)


@lru_cache(maxsize=512)
def metric_names(metric: str) -> tuple[FrameworkNames, ...]:
    """The log keys of each framework that hold a metric."""
    named = []
    for framework in all_frameworks():
        meanings = (each for each in framework.meanings if each.metric == metric)
        keys = tuple(dict.fromkeys(key for meaning in meanings for key in meaning.keys))
        named.append(FrameworkNames(framework.name, keys))
    return tuple(each for each in named if each.names)


def recipe_names(full_name: str) -> tuple[FrameworkNames, ...]:
    """A preset's settings in each framework; empty for a variant, which has no translation."""
    name = full_name.removeprefix(f"{_PRESETS}/")
    if not full_name.startswith(f"{_PRESETS}/") or name not in preset_names():
        return ()
    preset = preset_of(name)
    return tuple(
        FrameworkNames(framework.name, tuple(line.commented_line for line in translated.settings))
        for framework in configurable_frameworks()
        for translated in (translate(preset, framework),)
        if translated.settings
    )


def names_of(entry: CatalogEntry) -> tuple[FrameworkNames, ...]:
    """What each framework calls an entry; empty for a rule."""
    if entry.kind == "remedy":
        return _remedy_names(entry.id)
    if entry.kind == "metric":
        return metric_names(entry.id)
    return recipe_names(entry.id) if entry.kind == "recipe" else ()


def entry_markdown(entry: CatalogEntry) -> str:
    """The page of an entry; our own text."""
    if entry.kind == "rule":
        return rule_markdown(next(rule for rule in all_rules() if rule.code == entry.id))
    if entry.kind == "remedy":
        return _remedy_markdown(next(each for each in all_remedies() if each.id == entry.id))
    if entry.kind == "recipe":
        pages = [page for group in families().values() for page in group]
        page = next(each for each in pages if each.full_name == entry.id)
        return page_markdown(page, _HEADING)
    return _metric_markdown(next(metric for metric in METRICS if metric.name == entry.id))


def rule_markdown(rule: Rule) -> str:
    """The page of a rule: manual, thresholds, lead time, trials."""
    parts = [manual_markdown(rule.manual(), _HEADING)]
    if rule.thresholds():
        parts += [f"{_HEADING} Thresholds", "\n".join(_thresholds(rule))]
    measured = lead_time_of(rule.code)
    sentence = measured.sentence if measured else "Not measured: no recorded sick run raised it."
    parts += [f"{_HEADING} Lead time", sentence]
    return "\n\n".join([*parts, *_trial_parts(rule_trials(rule.code))])


def _trial_parts(sentences: Sequence[str]) -> list[str]:
    """A heading and what published trials show; nothing without a trial."""
    listed = "\n".join(f"- {each}" for each in sentences)
    return [f"{_HEADING} Trials", listed] if sentences else []


def _thresholds(rule: Rule) -> Iterator[str]:
    docs = field_docs(type(rule))
    for name, value in rule.thresholds().items():
        yield f"- `{name} = {value}`" + (f": {docs[name]}" if name in docs else "")


def _remedy_markdown(remedy: Remedy) -> str:
    parts = [manual_markdown(remedy.manual(), _HEADING)]
    related: Sequence[tuple[str, Sequence[str]]] = (
        ("Called for by", called_for_by(remedy.id)),
        ("Alternatives", remedy.alternatives),
        ("Never combine with", overlapping(remedy.id)),
    )
    lines = [f"- {title}: {', '.join(map(_code, ids))}" for title, ids in related if ids]
    live = "a live run can apply it" if remedy.in_flight else "it needs a restart or a person"
    parts.append("\n".join([f"- `{remedy.applicability}`; {live}", *lines]))
    return "\n\n".join([*parts, *_trial_parts(remedy_trials(remedy.id))])


def _code(text: str) -> str:
    return f"`{text}`"


def _metric_markdown(metric: Metric) -> str:
    facts = [
        ("Unit", metric.unit),
        ("Averages over", metric.over),
        ("Policies", metric.policies),
    ]
    lines = [f"- {title}: {value}" for title, value in facts if value]
    return "\n\n".join([metric.summary, "\n".join(lines)])
