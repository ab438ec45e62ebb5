"""Untrusted text of users, models and tools as Markdown. No piece can change how the text after it is read, and none
holds a character that a terminal or an editor would interpret instead of show."""

from __future__ import annotations

import re
from difflib import unified_diff
from typing import Final

import msgspec

from makai.core.session_events import FileDiff

# CommonMark 0.31 §4.5: a fence is three or more ` or ~; it is closed by at least as many of the same.
_FENCE: Final = re.compile(r"(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_INDENTED_FENCE: Final = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_FENCE_ANYWHERE: Final = re.compile(r"```|~~~")
# §4.6: these begin raw HTML that continues past blank lines until its end tag, which may be missing.
_ENDLESS_HTML: Final = re.compile(r"( {0,3})<(?=!--|\?|![A-Za-z\[]|/?(?:script|pre|style|textarea)\b)", re.IGNORECASE)
_SPECIAL: Final = re.compile(r"([\\`*_<>\[\]#|~])")
_TICKS: Final = re.compile(r"`+")

_MAX_COMPARED: Final = 2_000
"""Lines; longer texts are shown as replaced as a whole, because comparing takes quadratic time."""

_CONTROL: Final = (
    *(code for code in range(0x20) if code not in (0x09, 0x0A)),
    *range(0x7F, 0xA0),
    *(0x2028, 0x2029, 0xFEFF),  # line ends only some readers know, and a mark that only the first character may be
    *(0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),  # they reorder text (Trojan Source)
)
_ESCAPES: Final = {code: f"\\u{code:04x}" for code in _CONTROL}


def visible(text: str) -> str:
    """The text with every control character written as its escape."""
    return text.replace("\r\n", "\n").translate(_ESCAPES)


def one_line(text: str, most: int = 200) -> str:
    """The text on one line, cut where it is too long for one."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def plain(text: str) -> str:
    """The text on one line, without any meaning in Markdown."""
    return _SPECIAL.sub(r"\\\1", one_line(text))


def code_span(text: str) -> str:
    """The text on one line as code; §6.1: a span ends at a run of backticks as long as the one that opened it."""
    line = one_line(text)
    ticks = "`" * (1 + max((len(run) for run in _TICKS.findall(line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}" if line else "` `"


def fenced(text: str, language: str = "") -> str:
    """A block of code that holds any text, fences included."""
    body = visible(text).removesuffix("\n")
    ticks = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(body)), default=0))
    return f"{ticks}{language}\n{body}\n{ticks}"


def quoted(text: str) -> str:
    """A quote; an open block in it ends with it, because a quote is a container (§5.1)."""
    return "\n".join(f"> {line}".rstrip() for line in visible(text).strip("\n").split("\n"))


def closed(text: str) -> str:
    """Markdown of a model as Markdown, with an open fence closed, and HTML without an end as text. Fences inside lists
    and quotes would take a whole Markdown parser to follow; a text that has them is quoted."""
    lines: list[str] = []
    fence = ""
    for line in visible(text).strip("\n").split("\n"):
        found = (_INDENTED_FENCE if fence else _FENCE).match(line)
        if not fence and found is None and _FENCE_ANYWHERE.search(line):
            return quoted(text)
        lines.append(line if fence else _ENDLESS_HTML.sub(r"\1&lt;", line))
        if found is not None:
            fence = _fence_after(fence, found["fence"], found["info"])
    return "\n".join([*lines, fence] if fence else lines)


def _fence_after(fence: str, mark: str, info: str) -> str:
    """The fence that is open after a line that begins with `mark`."""
    if not fence:
        return "" if mark[0] == "`" and "`" in info else mark  # a backtick in the info string: a code span
    is_end = mark[0] == fence[0] and len(mark) >= len(fence) and not info.strip()
    return "" if is_end else fence


def diff_block(diff: FileDiff) -> str:
    return fenced("\n".join(diff_lines(diff)), "diff")


def diff_lines(diff: FileDiff) -> list[str]:
    """A unified diff; its characters are those of the file, not escaped."""
    path = one_line(diff.path).lstrip("/")
    old_name = "/dev/null" if diff.old_text is None else f"a/{path}"
    return _compared((diff.old_text or "").splitlines(), diff.new_text.splitlines(), old_name, f"b/{path}")


def _compared(before: list[str], after: list[str], old_name: str, new_name: str) -> list[str]:
    head = [f"--- {old_name}", f"+++ {new_name}"]
    if max(len(before), len(after)) <= _MAX_COMPARED:
        lines = list(unified_diff(before, after, old_name, new_name, lineterm=""))
        return lines or [*head, "(only line ends changed)"]
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    tail = 0
    while tail < min(len(before), len(after)) - same and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    gone, come = before[same : len(before) - tail], after[same : len(after) - tail]
    place = f"@@ -{same + 1},{len(gone)} +{same + 1},{len(come)} @@"
    return [*head, place, *(f"-{line}" for line in gone), *(f"+{line}" for line in come)]


def json_block(text: str) -> str:
    try:
        pretty = msgspec.json.format(text.encode(), indent=2).decode()
    except (msgspec.DecodeError, UnicodeError):
        return fenced(text)
    return fenced(pretty, "json")
