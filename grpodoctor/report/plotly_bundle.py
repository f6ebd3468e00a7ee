"""The part of plotly.js that a page needs: the core and the kinds of charts on the page.

The Python package of plotly contains one bundle with all kinds of charts, among them maps and 3D
charts that make up three quarters of it. The bundle is a list of modules that esbuild has wrapped
into functions, `var NAME=WRAP((exports,module)=>{…});`, and each loads others by their names. This
module keeps those that the wanted kinds lead to. A bundle of another version is kept whole: whether
a reduced one draws can only be seen in a browser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

TESTED = frozenset({"3.7.0"})
"""Versions of plotly.js whose reduced bundles were drawn in a browser, by `tests/report`."""
_CORE_TYPES = {"scatter"}
"""Kinds of charts that the core registers itself."""
_VERSION = re.compile(r"plotly\.js v([\d.]+)")
_WRAPPER = re.compile(
    r"var ([\w$]+)=\((\w),(\w)\)=>\(\)=>[{(].{0,12}?\3\|\|\2\(\(\3=\{exports:\{\}\}\)"
)
"""The function that wraps a module and runs it when it is loaded first."""
_LAZY_PART = re.compile(r"var ([\w$]+)=\((\w),(\w)(?:,\w)?\)=>\(\)=>.{0,60}?\3=\2\(\2=0\)")
"""The function that wraps the parts of an ES module, whose functions all other modules can see."""
_NAME = re.compile(r"(?<![\w$.])[A-Za-z_$][\w$]*")
_REGISTERED = re.compile(r"\.register\(\[((?:[\w$]+\(\),?)+)\]\)")
_TRACE_TYPE = re.compile(r'moduleType:"trace",name:"(\w+)"')
_MOST_ALIASES = 4
"""A registered module leads to the one that describes its kind of charts over a few others."""


@cache
def bundle_for(library: str, trace_types: frozenset[str]) -> str:
    """A bundle of plotly.js that draws these kinds of charts.

    Args:
        library: the whole bundle.
        trace_types: `type` of each trace on the page.

    Returns:
        The bundle without the modules that are not needed, or `library` if its version was not
        tested.
    """
    version = _VERSION.search(library, 0, 200)
    if version is None or version[1] not in TESTED:
        return library
    bundle = _Bundle.read(library)
    return library if bundle is None else bundle.reduced(trace_types - _CORE_TYPES) or library


class _Bundle:
    """A bundle in parts: what precedes the modules, and the text of each module."""

    def __init__(self, head: str, modules: dict[str, str], lazy_part: str) -> None:
        self._head = head
        self._modules = modules
        # Text without a wrapper follows the module before it; it is kept with that module.
        self._always = {name for name, text in modules.items() if f"={lazy_part}(()=>" in text}

    @staticmethod
    def read(library: str) -> _Bundle | None:
        """The parts of a bundle; None if it has another form."""
        wrapper, lazy_part = _WRAPPER.search(library), _LAZY_PART.search(library)
        if wrapper is None or lazy_part is None:
            return None
        start = re.compile(rf"(?<=[;}}])var ([\w$]+)={re.escape(wrapper[1])}\(")
        found = list(start.finditer(library))
        ends = [match.start() for match in found[1:]] + [len(library)]
        modules = {
            match[1]: library[match.start() : end] for match, end in zip(found, ends, strict=True)
        }
        head = library[: found[0].start()] if found else library
        return _Bundle(head, modules, lazy_part[1])

    def reduced(self, trace_types: Iterable[str]) -> str | None:
        """The bundle with these kinds of charts; None if it does not register them all."""
        *_, root = self._modules or [""]
        text = self._modules.get(root, "")
        registered = _REGISTERED.search(text)
        if registered is None:
            return None
        names = [name.removesuffix("()") for name in registered[1].split(",") if name]
        by_type = {self._trace_type(name): name for name in names}
        if not by_type.keys() >= set(trace_types):
            return None
        calls = ",".join(f"{by_type[kind]}()" for kind in sorted(trace_types))
        self._modules[root] = text[: registered.start(1)] + calls + text[registered.end(1) :]
        kept = self._reachable({root, *self._always, *self._loaded(self._head)})
        return self._head + "".join(text for name, text in self._modules.items() if name in kept)

    def _trace_type(self, name: str) -> str:
        """The kind of charts that a registered module draws; empty if it draws none."""
        for _ in range(_MOST_ALIASES):
            text = self._modules[name]
            described = _TRACE_TYPE.search(text)
            if described is not None:
                return described[1]
            name = next((other for other in self._loaded(text) if other != name), name)
        return ""

    def _loaded(self, text: str) -> Iterator[str]:
        """The modules that a text names, in its order; a local name may be taken for a module."""
        return (name for name in _NAME.findall(text) if name in self._modules)

    def _reachable(self, names: Iterable[str]) -> set[str]:
        """These modules and the modules that they import, directly or not."""
        reached: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += self._loaded(self._modules[name])
        return reached
