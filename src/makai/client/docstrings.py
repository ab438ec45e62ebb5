"""What a docstring says about a function and its parameters, in the forms of Google, NumPy and reST. Pure text."""

from __future__ import annotations

import inspect
import re
from typing import Final, NamedTuple

_GOOGLE: Final = re.compile(r"^(Args|Arguments|Parameters|Params):\s*$")
_OTHER_SECTION: Final = re.compile(
    r"^(Returns?|Yields?|Raises|Examples?|Notes?|Warnings?|Attributes|See Also|References|Todo):\s*$"
)
_GOOGLE_ITEM: Final = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY_ITEM: Final = re.compile(r"^\*{0,2}(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")
_REST_ITEM: Final = re.compile(r"^:(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_REST_FIELD: Final = re.compile(r"^:\w+[^:]*:")


class Docstring(NamedTuple):
    summary: str
    """Everything before the first section."""
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> Docstring:
    lines = inspect.cleandoc(text or "").splitlines()
    summary: list[str] = []
    found: dict[str, list[str]] = {}
    position, in_summary = 0, True
    while position < len(lines):
        line = lines[position]
        underlined = _is_underlined(lines, position)
        if _REST_FIELD.match(line):
            in_summary = False
            position = _rest(lines, position, found)
        elif underlined and line.strip() in ("Parameters", "Other Parameters"):
            in_summary = False
            position = _numpy(lines, position + 2, found)
        elif _GOOGLE.match(line):
            in_summary = False
            position = _google(lines, position + 1, found)
        else:
            in_summary = in_summary and not underlined and _OTHER_SECTION.match(line) is None
            if in_summary:
                summary.append(line)
            position += 1
    parameters = {name: " ".join(said).strip() for name, said in found.items()}
    return Docstring("\n".join(summary).strip(), {name: said for name, said in parameters.items() if said})


def _google(lines: list[str], position: int, found: dict[str, list[str]]) -> int:
    """Items are indented; deeper lines continue them. The section ends at a line that is not indented."""
    margin: int | None = None
    name = ""
    while position < len(lines):
        line = lines[position]
        if line.strip():
            indent = _indent(line)
            if indent == 0:
                break
            margin = indent if margin is None else margin
            item = _GOOGLE_ITEM.match(line.strip()) if indent <= margin else None
            if item is not None:
                name = item[1]
                found[name] = [item[2].strip()]
            elif name:
                found[name].append(line.strip())
        position += 1
    return position


def _numpy(lines: list[str], position: int, found: dict[str, list[str]]) -> int:
    """`name : type` at the margin, its description indented below. The next underlined title ends the section."""
    names: list[str] = []
    while position < len(lines):
        line = lines[position]
        underlined = _is_underlined(lines, position)
        if line.strip() and _indent(line) == 0:
            item = None if underlined else _NUMPY_ITEM.match(line.strip())
            if item is None:
                break
            names = [name.strip() for name in item[1].split(",")]
            found.update({name: [] for name in names})
        elif line.strip():
            for name in names:
                found[name].append(line.strip())
        position += 1
    return position


def _rest(lines: list[str], position: int, found: dict[str, list[str]]) -> int:
    """One field; indented lines continue it."""
    item = _REST_ITEM.match(lines[position])
    said = [] if item is None else [item[2].strip()]
    position += 1
    while position < len(lines) and lines[position].strip() and _indent(lines[position]) > 0:
        said.append(lines[position].strip())
        position += 1
    if item is not None:
        found[item[1]] = said
    return position


def _is_underlined(lines: list[str], position: int) -> bool:
    return position + 1 < len(lines) and re.fullmatch(r"-{3,}\s*", lines[position + 1]) is not None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
