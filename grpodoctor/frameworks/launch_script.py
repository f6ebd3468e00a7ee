"""Reads the settings of a run from the shell script that starts it.

The script is read, never run. `NAME=value`, `${NAME:-default}`, `$((2 * N))` and arrays of
arguments are followed. What only a run of the script would decide, such as `$(nproc)`, stays in the
value as a text, so that no rule takes it for a setting and none assumes the framework's default.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from grpodoctor.frameworks.launch_command import Launch, launch_of
from grpodoctor.vocabulary.knobs import Setting

SCRIPT_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch")

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_VARIABLE = re.compile(r"\$\{(\w+)(?::?-([^${}]*))?\}|\$(\w+)")
_ALL_OF_ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}")
_SUM_OPENS, _SUM_CLOSES, _OPENS, _CLOSES = "\x01", "\x02", "\x03", "\x04"
"""Stand for the brackets of `$((…))` and for those within, which shlex would cut words at."""
_SUM = re.compile(f"{_SUM_OPENS}([^{_SUM_OPENS}{_SUM_CLOSES}]*){_SUM_CLOSES}")
_SEPARATOR = re.compile(r"[();|&]+")
_REDIRECTION = re.compile(r"\s\d?(?:&>|>>?&?|<)\s*[^\s<>;|&]+")
_DECLARATIONS = ("export", "local", "declare", "readonly", "typeset")
_OPENING = ("if", "for", "while", "until", "case", "select")
_CLOSING = ("fi", "done", "esac")
_BETWEEN = ("then", "else", "elif", "do", "{", "}", "!", "time")
_WHOLE = re.compile(r"[+-]?\d{1,18}")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_HERE = re.compile(r"<<-?\s*['\"]?(\w+)")
_TRUTH: dict[str, Setting] = {"true": True, "false": False}
_MOST_LINES = 10_000
_LONGEST_QUOTE = 500
"""Lines that a quoted text, with the command around it, may span."""
_DEEPEST = 16
"""Defaults that may contain each other."""
_MOST_WORDS = 10_000
_MOST_COMMANDS, _MOST_NAMED = 200, 100
"""Commands, and words of each, that may name the framework."""
_LONGEST = 4_000
"""Characters of a value."""
_UNKNOWN = "\x05"
"""Stands for the $ of a variable whose value is unknown, so that it is looked up only once."""

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}


def launch_of_script(text: str) -> Launch | None:
    """The framework and the method that a command of a script names; None if none does."""
    return launch_of(_read(text).commands)


def _read(text: str) -> _Script:
    script = _Script()
    for line in _logical_lines(text):
        script.read(line)
    return script


def settings_of_script(text: str) -> dict[str, Setting]:
    """The options and overrides of all commands in a script: `--key value` and `key=value`.

    Dashes of an option become underscores, as in the framework's own names. A key that gets several
    values, such as in two branches, has all of them as one text.
    """
    return {key: _value(values) for key, values in _read(text).found.items()}


@dataclass(slots=True)
class _Script:
    """What was read of a script so far."""

    variables: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    found: dict[str, list[str]] = field(default_factory=dict)
    """The values that commands gave each key, in their order."""
    commands: list[list[str]] = field(default_factory=list)
    """The words of the commands that start something."""
    depth: int = 0
    """Blocks around the current line that the script may not run, or run more than once."""
    filling: str = ""
    """The array whose words are being read; empty outside of one."""
    filled: list[str] = field(default_factory=list)
    """Its words so far."""

    def read(self, line: str) -> None:
        """Read one line, after its continuations were joined."""
        command: list[str] = []
        for word in _words(line):
            if self.filling:
                self._add_to_array(word)
            elif word == "(" and command and command[-1].endswith("="):
                self._open_array(command.pop())
            elif _SEPARATOR.fullmatch(word):
                self._end(command)
                command = []
            else:
                command.append(word)
        self._end(command)

    def _open_array(self, start: str) -> None:
        self.filling = start.rstrip("+=")
        is_extended = start.endswith("+=")
        self.filled = list(self.arrays.get(self.filling, ())) if is_extended else []

    def _add_to_array(self, word: str) -> None:
        if word == ")":
            self.arrays[self.filling] = self.filled
            self.filling = ""
        elif len(self.filled) < _MOST_WORDS:
            self.filled += islice(self._spliced([word]), _MOST_WORDS)

    def _end(self, command: Sequence[str]) -> None:
        words = list(command)
        while words and words[0] in (*_OPENING, *_CLOSING, *_BETWEEN):
            word = words.pop(0)
            self.depth += (word in _OPENING) - (word in _CLOSING)
            if word in ("for", "select") and words:
                self.variables.pop(words[0], None)
        if words and words[0] in _DECLARATIONS:
            words.pop(0)
        assigned = []
        while words and (match := _ASSIGNMENT.fullmatch(words[0])):
            assigned.append(match)
            words.pop(0)
        if words:
            self._read_command(words)  # assignments before a command are its environment
            return
        for match in assigned:
            self._assign(match[1], match[2])

    def _assign(self, name: str, text: str) -> None:
        value = self._expanded(text)
        if self.depth and self.variables.get(name, value) != value:
            value = f"${name}"  # known only to a run of the script
        self.variables[name] = value.replace("$", _UNKNOWN)[:_LONGEST]

    def _read_command(self, words: Sequence[str]) -> None:
        spliced = list(islice(self._spliced(words), _MOST_WORDS))
        if len(self.commands) < _MOST_COMMANDS:
            self.commands.append([self._expanded(word) for word in spliced[:_MOST_NAMED]])
        arguments = deque(spliced[1:])
        while arguments:
            word = arguments.popleft()
            if flag := _FLAG.fullmatch(word):
                values = [flag[2]] if flag[2] is not None else []
                while flag[2] is None and arguments and not _is_option(arguments[0]):
                    values.append(arguments.popleft())
                self._found(flag[1].replace("-", "_"), " ".join(values) if values else "true")
            elif override := _OVERRIDE.fullmatch(word):
                self._found(override[1], override[2])

    def _spliced(self, words: Sequence[str]) -> Iterator[str]:
        for word in words:
            if word in ("$@", "$*"):
                continue  # arguments of the script
            if array := _ALL_OF_ARRAY.fullmatch(word):
                yield from self.arrays.get(array[1], ())
            elif word.startswith("$") and " " in (value := self._expanded(word)):
                yield from value.split()  # arguments that a variable collects
            else:
                yield word

    def _found(self, key: str, text: str) -> None:
        value, values = self._expanded(text), self.found.setdefault(key, [])
        if value not in values:
            values.append(value)

    def _expanded(self, text: str) -> str:
        for _ in range(_DEEPEST):  # a default may contain a variable
            before, text = text, _VARIABLE.sub(self._variable, text[:_LONGEST])
            if text == before:
                break
        return _SUM.sub(self._computed, text)

    def _computed(self, match: re.Match[str]) -> str:
        text = match[1].replace(_OPENS, "(").replace(_CLOSES, ")")
        try:
            return str(self._integer(ast.parse(text, mode="eval").body))
        except (SyntaxError, ValueError, ArithmeticError, KeyError, RecursionError):
            return f"$(({text}))"

    def _integer(self, node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            return int(self._expanded(self.variables[node.id]))
        if isinstance(node, ast.BinOp):
            compute = _OPERATORS[type(node.op)]
            return compute(self._integer(node.left), self._integer(node.right))
        raise ValueError(ast.dump(node))

    def _variable(self, match: re.Match[str]) -> str:
        value = self.variables.get(match[1] or match[3], match[2])
        return match[0] if value is None else value


def _is_option(word: str) -> bool:
    return _FLAG.fullmatch(word) is not None or (
        _OVERRIDE.fullmatch(word) is not None and "." in word.partition("=")[0]
    )


def _value(values: Sequence[str]) -> Setting:
    text = " | ".join(values).replace(_UNKNOWN, "$")
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else _TRUTH.get(text.lower(), text)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines with their continuations; without comments and texts that a command reads."""
    pending, quote, end_of_text, lines = "", "", "", 0
    for line in text.splitlines()[:_MOST_LINES]:
        if end_of_text:
            end_of_text = "" if line.strip() == end_of_text else end_of_text
            continue
        part, quote = _without_comment(line, quote)
        lines += 1
        if quote and lines < _LONGEST_QUOTE:
            pending += f"{part}\n"
        elif part.endswith("\\") and part == line:
            pending += f"{part[:-1]} "
        else:
            whole, pending, quote, lines = pending + part, "", "", 0
            if here := _HERE.search(whole):
                end_of_text = here[1]
            yield whole
    yield pending


def _without_comment(line: str, quote: str) -> tuple[str, str]:
    """A line up to the # that begins a word, and the quotation mark that is open at its end.

    Args:
        line: one line.
        quote: the quotation mark that is open at its start; empty if none is.
    """
    escaped = False
    for at, letter in enumerate(line):
        if escaped:
            escaped = False
        elif letter == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at], ""
    return line, quote


def _words(line: str) -> list[str]:
    text = _REDIRECTION.sub(" ", _without_substitutions(line))
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();|&")
    lexer.commenters = ""
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return []  # a quotation without an end


def _without_substitutions(line: str) -> str:
    """The line with each `$((…))` marked as a sum, and each command in brackets as one word."""
    line = re.sub(r"`[^`]*`", "$COMMAND", line)
    parts, at = [], 0
    while (start := line.find("$(", at)) >= 0:
        end = _closing(line, start + 1)
        inner = line[start + 2 : end]
        is_sum = inner.startswith("(") and inner.endswith(")")
        text = "".join(inner[1:-1].split()).replace("(", _OPENS).replace(")", _CLOSES)
        parts += [line[at:start], f"{_SUM_OPENS}{text}{_SUM_CLOSES}" if is_sum else "$COMMAND"]
        at = end + 1
    return "".join([*parts, line[at:]])


def _closing(line: str, start: int) -> int:
    """The position of the bracket that closes the one at `start`; the last one if none does."""
    depth = 0
    for at in range(start, len(line)):
        depth += (line[at] == "(") - (line[at] == ")")
        if depth == 0:
            return at
    return len(line) - 1
