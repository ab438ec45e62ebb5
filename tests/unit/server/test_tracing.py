"""Traces as a collector gets them: which spans, whose children, with which attributes, and what is not in them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.cli import SOURCES
from support.minicodex_client import BOTH
from support.otlp import collecting
from support.serving import BEARER, serving

from makai.core import session_events as ev
from makai.core.access import trace_parent_of
from makai.core.config import ObservabilityConfig
from makai.core.errors import InvalidRequest
from makai.server.observability import Observability

WORDS = "the-secret-word"
SCENARIO = f"""
tool: read {{"path": "notes.txt", "why": "{WORDS}"}}
usage: input=10 output=5 cache_read=3
---
say: {WORDS} it is.
usage: input=20 output=7
"""
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize("capture", [False, True])
async def test_a_run_is_a_span_with_its_turns_and_tools_below_the_trace_of_its_caller(
    tmp_path: Path, capture: bool
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.txt").write_text(WORDS, encoding="utf-8")
    async with collecting() as collector:
        config = ObservabilityConfig(otlp_endpoint=collector.url, service_name="team", capture_content=capture)
        observed = Observability(config=config)
        async with serving(tmp_path, SCENARIO, observability=observed) as site:
            session_id = await site.session(cwd=folder)
            headers = {**BEARER, "traceparent": f"00-{TRACE}-{PARENT}-01"}
            client = await site.connect(session_id, *BOTH, headers=headers)
            await client.hello()
            await client.ask("send", text=f"Find {WORDS}.")
            await client.until_over()
            await client.close()
        await observed.close()

    assert collector.resource["service.name"] == "team"
    assert [span.name for span in collector.spans] == [
        "chat scenario",
        "execute_tool read",
        "chat scenario",
        "invoke_agent makai",
    ]
    first, tool, second, run = collector.spans
    assert {span.trace_id for span in collector.spans} == {TRACE}
    assert [span.parent_id for span in collector.spans] == [run.span_id] * 3 + [PARENT]
    assert [span.kind for span in collector.spans] == [3, 1, 3, 1]  # client, internal
    assert run.start_ns <= first.start_ns <= first.end_ns <= tool.start_ns <= tool.end_ns <= second.start_ns
    assert second.end_ns <= run.end_ns
    assert first.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scenario",
        "gen_ai.conversation.id": session_id,
        "gen_ai.usage.input_tokens": 13,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.response.finish_reasons": ["tool_use"],
        "makai.usage.cost_usd": 0.0,
    }
    assert (tool.attributes["gen_ai.tool.name"], tool.attributes["gen_ai.operation.name"]) == ("read", "execute_tool")
    assert (run.attributes["gen_ai.usage.input_tokens"], run.attributes["gen_ai.usage.output_tokens"]) == (33, 12)
    content = ("gen_ai.input.messages", "gen_ai.output.messages")
    assert [name in run.attributes for name in content] == [capture] * 2
    assert [WORDS.encode() in body for body in collector.bodies] == [capture] * len(collector.bodies)


async def test_a_failed_tool_a_failed_run_and_a_sub_agent_are_in_their_places() -> None:
    facts: list[ev.SessionEvent] = [
        ev.RunStarted(run_number=1, model_ref="anthropic/anthropic-messages@claude"),
        ev.TurnStarted(turn=1),
        ev.ToolCalled(call_id="task", name="task", arguments_json="{}"),
        ev.TurnEnded(turn=1, stop_reason="tool_use"),
        ev.ToolStarted(call_id="task"),
        ev.TurnStarted(turn=1, model_ref="google/google-generative-ai@flash", parent_call_id="task"),
        ev.ToolCalled(call_id="inner", name="shell", arguments_json="{}", parent_call_id="task"),
        ev.TurnEnded(turn=1, stop_reason="tool_use", parent_call_id="task"),
        ev.ApprovalDecided(call_id="inner", decision="approve", by="tester"),
        ev.ToolStarted(call_id="inner"),
        ev.ToolFinished(call_id="inner", content=(), is_error=True),
        ev.RunFailed(code="overloaded", message=WORDS),
    ]
    async with collecting() as collector:
        observed = Observability(config=ObservabilityConfig(otlp_endpoint=collector.url))
        logged = [ev.Logged(event_id=n, ts=1000 + n, event=fact, run_id="r") for n, fact in enumerate(facts, 1)]
        observed.observer.committed("s", logged, 0.0)
        await observed.close()
    run, task, inner = (
        collector.named(name) for name in ("invoke_agent makai", "execute_tool task", "execute_tool shell")
    )
    chat = collector.named("chat flash")
    assert [task.parent_id, inner.parent_id, chat.parent_id] == [run.span_id, task.span_id, task.span_id]
    assert chat.attributes["gen_ai.provider.name"] == "gcp.gemini"
    errors = {span.name: span.attributes.get("error.type") for span in collector.spans if span.is_error}
    assert errors == {
        "execute_tool shell": "tool_error",
        "execute_tool task": "interrupted",
        "invoke_agent makai": "overloaded",
    }
    assert run.events == ("makai.approval",)
    assert run.end_ns == 1012 * 1_000_000
    assert WORDS not in str(collector.spans)


@pytest.mark.parametrize(
    ("header", "is_taken"),
    [
        (f"00-{TRACE}-{PARENT}-01", True),
        (f"00-{TRACE}-{PARENT}-01-more", False),
        (f"00-{'0' * 32}-{PARENT}-01", False),
        (f"00-{TRACE.upper()}-{PARENT}-01", False),
        (f"00-{TRACE}-{PARENT}-01\n", False),
        ("", False),
    ],
)
def test_only_a_valid_trace_parent_is_taken(header: str, is_taken: bool) -> None:
    assert trace_parent_of(header) == (header if is_taken else "")


def test_opentelemetry_is_loaded_only_when_traces_are_on() -> None:
    program = (
        "import sys, makai.server.serve\nfrom makai.server.observability import Observability\n"
        "Observability(environ={'OTEL_SDK_DISABLED': 'true', 'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://127.0.0.1:9'})\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    made = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert made.stdout == "[]\n"


def test_traces_without_the_extra_say_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "makai.server.tracing", None)
    with pytest.raises(InvalidRequest) as refused:
        Observability(environ={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert refused.value.hint == "Install it: pip install 'makai[otel]'."
