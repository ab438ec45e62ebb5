"""Untrusted text of users, models and tools as Markdown. No piece can change how the text after it is read, and none
holds a character that a terminal or an editor would interpret instead of show."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from makai.core.line_diff import ChangedLines, changed_lines
from makai.core.session_events import FileDiff

# CommonMark 0.31 §4.5: a fence is three or more ` or ~; it is closed by at least as many of the same.
_FENCE: Final = re.compile(r"(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_INDENTED_FENCE: Final = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_FENCE_ANYWHERE: Final = re.compile(r"```|~~~")
# §4.6: these begin raw HTML that continues past blank lines until its end tag, which may be missing.
_ENDLESS_HTML: Final = re.compile(r"( {0,3})<(?=!--|\?|![A-Za-z\[]|/?(?:script|pre|style|textarea)\b)", re.IGNORECASE)
_SPECIAL: Final = re.compile(r"([\\`*_<>\[\]#|~])")
_TICKS: Final = re.compile(r"`+")

_CONTEXT: Final = 3
"""Unchanged lines around a change."""

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
    hunks: list[list[ChangedLines]] = []
    for change in changed_lines(before, after):
        if hunks and change.old_from - hunks[-1][-1].old_to <= 2 * _CONTEXT:
            hunks[-1].append(change)
        else:
            hunks.append([change])
    lines = [line for hunk in hunks for line in _hunk(before, after, hunk)]
    return [*head, *(lines or ["(only line ends changed)"])]


def _hunk(before: list[str], after: list[str], changes: list[ChangedLines]) -> list[str]:
    context = min(_CONTEXT, changes[0].old_from)
    old_from, new_from = changes[0].old_from - context, changes[0].new_from - context
    body: list[str] = []
    at = old_from
    for change in changes:
        body += [f" {line}" for line in before[at : change.old_from]]
        body += [f"-{line}" for line in before[change.old_from : change.old_to]]
        body += [f"+{line}" for line in after[change.new_from : change.new_to]]
        at = change.old_to
    body += [f" {line}" for line in before[at : at + _CONTEXT]]
    counts = [sum(line[0] in signs for line in body) for signs in (" -", " +")]
    return [f"@@ -{_range(old_from, counts[0])} +{_range(new_from, counts[1])} @@", *body]


def _range(start: int, count: int) -> str:
    """As the unified format writes it: from 1, without a count of 1, and before the first line of an empty range."""
    return f"{start + 1}" if count == 1 else f"{start + bool(count)},{count}"


def json_block(text: str) -> str:
    try:
        pretty = msgspec.json.format(text.encode(), indent=2).decode()
    except (msgspec.DecodeError, UnicodeError):
        return fenced(text)
    return fenced(pretty, "json")
