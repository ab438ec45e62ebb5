"""Tool calls of a turn: what runs, beside what, and what the model gets when something does not."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from support.agent import FakeHost, FakeTool, called, finished, result_texts, run, text, turn
from support.messages import call, result

from makai.agent import tool_io
from makai.agent.settings import AgentOutcome, Standing
from makai.agent.tool_io import MAX_PROGRESS_LENGTH, MAX_SHOWN, NO_MORE, ProgressReporter
from makai.core import session_events as ev
from makai.core.content import Image, Text
from makai.core.messages import AssistantMessage, UserMessage
from makai.core.request import Context
from makai.providers.preparation import prepare
from makai.tools.base import CallDescription, ToolContext, ToolOutcome, text_outcome
from makai.tools.plan import PlanTool


async def test_a_call_is_told_started_and_finished_and_its_result_goes_to_the_model() -> None:
    tool = FakeTool("look")
    outcome, host, requests = await run('say: Wait\ntool: look {"at": "x"}\n---\nsay: Seen', tool)

    assert host.told == [
        *turn(1, *text("Wait"), called("look", arguments_json='{"at": "x"}', content_index=1), stop="tool_use"),
        ev.ToolStarted(call_id="c1"),
        finished("c1", "look did it"),
        *turn(2, *text("Seen")),
    ]
    assert tool.ran == [{"at": "x"}]
    assert outcome == AgentOutcome(stop_reason="end_turn")
    answer, told = requests[1].context.messages[1:]
    assert isinstance(answer, AssistantMessage)
    vendor_call_id = answer.tool_calls()[0].tool_call_id
    assert told == result(vendor_call_id, "look", (Text(text="look did it"),))
    assert [fact.vendor_call_id for fact in host.facts if isinstance(fact, ev.ToolCalled)] == [vendor_call_id]


async def test_everything_a_tool_tells_is_in_the_facts() -> None:
    diff = ev.FileDiff(path="/p/a.py", old_text="a", new_text="b")
    notice = ev.Notice(level="warning", code="protected_file_taken", message="Look at it.")
    shown: dict[str, Any] = {"kind": "edit", "title": "Edit a.py", "locations": (ev.FilePlace("/p/a.py", 3),)}
    came_of_it: dict[str, Any] = {
        "content": (Text(text="done"), Image(data="aGk=", mime_type="image/png")),
        "diffs": (diff,),
        "exit_code": 0,
        "omitted_bytes": 7,
        "spill_path": "/p/rest",
    }

    class Editor(FakeTool):
        async def describe(self, arguments: Mapping[str, Any]) -> CallDescription:
            return CallDescription(subject="a.py", diffs=(diff,), **shown)

    async def edit(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return ToolOutcome(notices=(notice,), **came_of_it)

    _, host, _ = await run("tool: edit {}\n---\nsay: Done", Editor("edit", edit))

    assert host.told[1] == ev.ToolCalled(call_id="c1", name="edit", arguments_json="{}", **shown)
    assert host.told[5:7] == [ev.ToolFinished(call_id="c1", **came_of_it), notice]
    ((call_id, description, diffs),) = host.questions
    assert (call_id, description.subject, diffs) == ("c1", "a.py", (diff,))


async def test_a_tool_without_output_says_so() -> None:
    async def nothing(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return ToolOutcome(content=())

    _, _, requests = await run("tool: quiet {}\n---\nsay: Done", FakeTool("quiet", nothing))

    assert result_texts(requests[1]) == [("The tool gave no output.", False)]


@pytest.mark.req("MK-TOOL-007")
async def test_independent_calls_run_beside_each_other_and_are_answered_in_any_order() -> None:
    entered: list[str] = []
    all_entered = asyncio.Event()
    turns = {"first": asyncio.Event(), "second": asyncio.Event(), "third": asyncio.Event()}

    async def meet(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        name = arguments["name"]
        entered.append(name)
        if len(entered) == 3:
            all_entered.set()
            turns["third"].set()
        await all_entered.wait()
        await turns[name].wait()
        return text_outcome(f"{name} was here")

    host = FakeHost()
    after = {"c3": "second", "c2": "first"}

    def release(fact: ev.SessionEvent) -> None:
        if isinstance(fact, ev.ToolFinished) and fact.call_id in after:
            turns[after[fact.call_id]].set()

    host.on_fact = release
    calls = [f'tool: meet {{"name":"{name}"}}' for name in turns]
    _, host, requests = await run("\n".join(calls) + "\n---\nsay: All", FakeTool("meet", meet), host=host)

    assert host.told == [
        *turn(
            1,
            *(
                called("meet", f"c{number + 1}", f'{{"name":"{name}"}}', content_index=number)
                for number, name in enumerate(turns)
            ),
            stop="tool_use",
        ),
        *(ev.ToolStarted(call_id=call_id) for call_id in ("c1", "c2", "c3")),
        finished("c3", "third was here"),
        finished("c2", "second was here"),
        finished("c1", "first was here"),
        *turn(2, *text("All")),
    ]
    assert result_texts(requests[1]) == [(f"{name} was here", False) for name in turns]


async def test_changes_wait_for_what_comes_before_them_and_hold_up_what_comes_after() -> None:
    log: list[str] = []

    def noting(name: str) -> FakeTool:
        async def note(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
            log.append(f"{name} begins")
            for _ in range(5):
                await asyncio.sleep(0)
            log.append(f"{name} ends")
            return text_outcome("ok")

        kinds = {"read": "read", "edit": "edit", "shell": "execute"}
        return FakeTool(name, note, kind=kinds[name])  # type: ignore[arg-type]

    script = "\n".join(f"tool: {name} {{}}" for name in ("read", "edit", "shell", "read")) + "\n---\nsay: Done"
    await run(script, noting("read"), noting("edit"), noting("shell"), max_same_calls=9)

    order = ("read", "edit", "shell", "read")
    assert log == [f"{name} {what}" for name in order for what in ("begins", "ends")]


async def test_only_so_many_calls_run_at_once() -> None:
    running = most = 0

    async def count(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return text_outcome("ok")

    script = "\n".join(f'tool: count {{"n":{number}}}' for number in range(9)) + "\n---\nsay: Done"
    tool = FakeTool("count", count)
    await run(script, tool, max_parallel_tools=2)

    assert (most, len(tool.ran)) == (2, 9)


async def test_a_later_change_is_described_again_for_its_approval() -> None:
    """The first edit changes the file that the second one shows in its diff."""
    file = ["one"]

    async def append(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        file[0] += "+"
        return text_outcome("ok")

    def diff() -> tuple[ev.FileDiff, ...]:
        return (ev.FileDiff(path="f", old_text=file[0], new_text=f"{file[0]}+"),)

    tool = FakeTool("append", append, kind="edit", diffs=diff)
    _, host, _ = await run('tool: append {}\ntool: append {"n":2}\n---\nsay: Done', tool)

    assert [diffs[0].old_text for _, _, diffs in host.questions] == ["one", "one+"]


async def test_a_denied_call_is_an_error_the_model_sees_and_the_run_goes_on() -> None:
    tool = FakeTool("look")
    outcome, host, requests = await run("tool: look {}\n---\nsay: Pity", tool, host=FakeHost({"look": "deny_continue"}))

    assert host.told == [
        *turn(1, called("look"), stop="tool_use"),
        finished("c1", "denied: not today", is_error=True),
        *turn(2, *text("Pity")),
    ]
    assert tool.ran == []
    assert result_texts(requests[1]) == [("denied: not today", True)]
    assert outcome == AgentOutcome(stop_reason="end_turn")


async def test_a_denial_that_ends_the_run_stops_the_calls_beside_it() -> None:
    started = asyncio.Event()

    async def wait(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    class Host(FakeHost):
        async def decide(self, call: ev.ToolCalled, *about: Any) -> Any:
            if call.name == "delete":
                await started.wait()
            return await super().decide(call, *about)

    host = Host({"delete": "deny_abort"})
    script = "tool: wait {}\ntool: delete {}\ntool: change {}"
    delete, change = FakeTool("delete", kind="other"), FakeTool("change", kind="edit")
    outcome, _, requests = await run(script, FakeTool("wait", wait), delete, change, host=host)

    ended = "the run was ended when another call was denied"
    assert host.told == [
        *turn(
            1,
            called("wait", "c1"),
            called("delete", "c2", kind="other", content_index=1),
            called("change", "c3", kind="edit", content_index=2),
            stop="tool_use",
        ),
        ev.ToolStarted(call_id="c1"),
        finished("c2", "denied: not today", is_error=True),
        finished("c1", f"Interrupted: {ended}; what the tool did so far is unknown.", is_error=True, interrupted=True),
        finished("c3", f"Not run: {ended}.", is_error=True),
    ]
    assert outcome == AgentOutcome(stop_reason="aborted")
    assert (delete.ran, change.ran, len(requests)) == ([], [], 1)


async def test_a_plan_is_told_when_it_was_understood() -> None:
    steps = '{"steps":[{"content":"Look","status":"in_progress"},{"content":"Leap","priority":"high"}]}'
    host = FakeHost()
    _, host, _ = await run(f"tool: plan {steps}\n---\nsay: Go", PlanTool(), host=host)  # type: ignore[arg-type]

    assert [fact for fact in host.facts if isinstance(fact, ev.PlanUpdated)] == [
        ev.PlanUpdated(
            entries=(ev.PlanEntry(content="Look", status="in_progress"), ev.PlanEntry(content="Leap", priority="high"))
        )
    ]


async def test_progress_is_gathered_and_comes_before_the_result() -> None:
    async def chatter(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        context.progress("one ")
        context.progress("two")
        return text_outcome("done")

    _, host, _ = await run("tool: chatter {}\n---\nsay: Done", FakeTool("chatter", chatter))

    assert host.told[4:7] == [
        ev.ToolStarted(call_id="c1"),
        ev.ToolProgress(call_id="c1", text="one two"),
        finished("c1", "done"),
    ]


async def test_progress_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_io, "PROGRESS_INTERVAL_S", 0.0)
    shown: list[ev.ToolProgress] = []

    async def emit(fact: ev.ToolProgress) -> None:
        shown.append(fact)
        await asyncio.sleep(0)

    async with ProgressReporter("c1", emit) as progress:
        for _ in range(200):
            progress.progress("x" * 10_000)
            if _ % 10 == 9:
                await asyncio.sleep(0.001)
    progress.progress("too late")

    assert shown[0].text.startswith("[83,616 characters left out]\nxxx")
    assert max(len(fact.text) for fact in shown) < MAX_PROGRESS_LENGTH + 100
    assert MAX_SHOWN < sum(len(fact.text) for fact in shown) < MAX_SHOWN + 2 * MAX_PROGRESS_LENGTH
    assert shown[-1].text.endswith(NO_MORE)


async def test_calls_that_were_open_when_the_server_ended_come_first_and_run_once() -> None:
    calls = (call("a", "look", '{"n":1}'), call("b", "look", '{"n":1}'))
    answer = AssistantMessage(content=calls, stop_reason="tool_use")
    past = Context(messages=(UserMessage(content="Look twice"), answer, result("a", "look", "seen")))
    open_call = ev.ToolCalled(
        call_id="old-2", name="look", arguments_json='{"n":1}', vendor_call_id="b", kind="read", title="Use look"
    )
    tool = FakeTool("look")
    outcome, host, requests = await run(
        "say: Both seen", tool, conversation=past, standing=Standing(turns=1, open_calls=(open_call,), places=(2, 5, 7))
    )

    assert host.told == [
        ev.ToolStarted(call_id="old-2"),
        finished("old-2", "look did it"),
        *turn(2, *text("Both seen")),
    ]
    assert tool.ran == [{"n": 1}]
    assert result_texts(requests[0]) == [("seen", False), ("look did it", False)]
    assert (
        prepare(requests[0].context, requests[0].model, inline_system=True).messages[1:]
        == (requests[0].context.messages[1:])
    )
    assert outcome == AgentOutcome(stop_reason="end_turn")
