"""The manual pages for agents: the JSON of `grpodoctor rule`, `remedy` and `recipe`."""

from __future__ import annotations

from typing import Any


def rule_page(code: str) -> dict[str, Any]:
    """The page of a rule or preflight check; the list of all if `code` is empty."""
    from grpodoctor.cli.commands.rule import detail, entry
    from grpodoctor.preflight.catalogue import all_checks
    from grpodoctor.rules.catalogue import all_rules, find

    listed = (*all_rules(), *all_checks())
    return detail(find(listed, code)) if code else {"rules": [entry(rule) for rule in listed]}


def remedy_page(remedy_id: str, framework: str) -> dict[str, Any]:
    """The page of a remedy; the list of all if `remedy_id` is empty."""
    from grpodoctor.cli.commands.remedy import detail, entry
    from grpodoctor.remedies.catalogue import all_remedies, remedy_of

    if not remedy_id:
        return {"remedies": [entry(remedy) for remedy in all_remedies()]}
    return detail(remedy_of(remedy_id), framework)


def recipe_page(name: str) -> dict[str, Any]:
    """The page of a variant or preset; the list of all if `name` is empty."""
    from grpodoctor.cli.commands.recipe import detail
    from grpodoctor.trainer.recipes import families, page_of

    if name:
        return detail(page_of(name))
    return {
        "recipes": [
            {"name": page.full_name, "summary": page.headline}
            for pages in families().values()
            for page in pages
        ]
    }
