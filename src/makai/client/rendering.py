"""Answers as HTML and Markdown, for notebooks.

What a model wrote is untrusted. HTML in it is shown as text, links have only harmless schemes, and no picture is loaded
by itself, because its address could carry data away. The Markdown form is a block of code, which holds any text.
"""

from __future__ import annotations

from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from makai.core.content import ToolCall
from makai.core.usage import Usage
from makai.core.visible_text import one_line, shown
from makai.sessions.markdown_text import code_span, fenced

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MAX_ARGUMENTS: Final = 200
MAX_OUTPUT: Final = 20_000
GREY: Final = "color:gray;font-size:small"


class RenderedAnswer(NamedTuple):
    """What is shown of a whole answer: its value if it has one, else its text; its tool calls; who made it, and what it
    cost."""

    text: str
    output: Any = None
    calls: tuple[ToolCall, ...] = ()
    model_id: str = ""
    usage: Usage | None = None

    def html(self) -> str:
        said = markdown_html(self.text) if self.output is None else f"<pre>{escaped(self._value)}</pre>"
        calls = "".join(call_html(call.name, call.arguments_json) for call in self.calls)
        return f"<div>{said}{calls}{footer_html(self._line)}</div>"

    def markdown(self) -> str:
        blocks = [fenced(self.text if self.output is None else self._value)]
        blocks += [f"{code_span(call.name)} {code_span(call.arguments_json)}" for call in self.calls]
        return "\n\n".join([*blocks, *([code_span(self._line)] if self._line else [])])

    @property
    def _value(self) -> str:
        text = repr(self.output)
        return text if len(text) <= MAX_OUTPUT else f"{text[:MAX_OUTPUT]}…"

    @property
    def _line(self) -> str:
        return " · ".join(filter(None, [one_line(self.model_id, 80), usage_line(self.usage)]))


def markdown_html(text: str) -> str:
    """Markdown of a model as HTML without anything that acts."""
    html: str = _markdown().render(shown(text))
    return html


def call_html(name: str, arguments_json: str) -> str:
    arguments = one_line(arguments_json, MAX_ARGUMENTS)
    return f'<div style="{GREY}"><code>{escaped(name)} {escaped(arguments)}</code></div>'


def footer_html(line: str) -> str:
    return f'<div style="{GREY}">{escaped(line)}</div>' if line else ""


def escaped(text: str) -> str:
    return escape(shown(text))


def usage_line(usage: Usage | None) -> str:
    if usage is None:
        return ""
    cost = "" if usage.cost_usd is None else f" · ${usage.cost_usd:.4f}"
    return f"{usage.input + usage.cache_read + usage.cache_write:,} tokens in · {usage.output:,} out{cost}"


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
