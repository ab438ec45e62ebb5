"""A queued message that was taken back is never run: not by the agent that works, not by the next owner."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from support.live_sessions import Desk, kind_of, new_session, owned_sessions, refused, whole_log
from support.session_trials import Trial

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.messages import UserMessage
from makai.core.request import ToolDefinition
from makai.harness.base import StartRun, ToolAnswer, ToolRequest
from makai.sessions import commands as cmd
from makai.sessions.history import history
from makai.sessions.requests import ForkSession, GetState
from makai.sessions.state import fold

WEATHER = ToolDefinition(name="weather", description="The weather.", parameters_schema_json='{"type":"object"}')


def withdraw(input_id: str) -> cmd.WithdrawInput:
    return cmd.WithdrawInput(now=1, input_id=input_id)


# ---------------------------------------------------------------- the rules


def test_a_withdrawn_message_is_passed_over_and_the_others_keep_their_order(trial: Trial) -> None:
    for text in ("one", "two", "three"):
        trial.send(text, "queue")
    decision = trial.do(cmd.WithdrawInput(now=1, input_id="input-two", token="local"))
    trial.answer("1")
    trial.answer("3")

    assert [logged.event for logged in decision.events] == [ev.InputWithdrawn(input_id="input-two", token="local")]
    assert decision.effects == ()
    assert [event.content for event in trial.of(ev.UserInput)] == ["one", "three"]
    assert [effect.input_id for effect in trial.effects_of(StartRun)] == ["input-one", "input-three"]
    assert history(trial.log).messages()[::2] == (UserMessage(content="one"), UserMessage(content="three"))
    assert trial.state == fold(trial.log)


def test_a_message_is_withdrawn_once_and_not_after_the_agent_has_read_it(trial: Trial) -> None:
    trial.send("one")
    trial.send("two", "queue")
    trial.send("careful", "steer")
    assert trial.refusal(withdraw("input-one")) == "INPUT_NOT_WAITING"
    trial.do(withdraw("input-two"))
    assert trial.refusal(withdraw("input-two")) == "INPUT_NOT_WAITING"
    trial.report(ev.UserInput(input_id="input-careful", content="careful"))
    assert trial.refusal(withdraw("input-careful")) == "INPUT_NOT_WAITING"


def test_a_withdrawn_message_that_is_sent_again_by_a_client_that_lost_its_connection_stays_withdrawn(
    trial: Trial,
) -> None:
    trial.send("one")
    trial.send("two", "queue", client_msg_id="m2")
    trial.do(withdraw("input-two"))

    assert trial.send("two", "queue", client_msg_id="m2").events == ()
    assert trial.state.waiting == ()


def test_steering_input_that_was_withdrawn_can_no_longer_be_read(trial: Trial) -> None:
    trial.send("one")
    trial.send("careful", "steer")
    trial.send("quick", "steer")
    trial.do(withdraw("input-careful"))

    assert trial.report_refusal(ev.UserInput(input_id="input-careful", content="careful")) == "INPUT_NOT_WAITING"
    trial.report(ev.UserInput(input_id="input-quick", content="quick"))
    assert [event.content for event in trial.of(ev.UserInput)] == ["one", "quick"]


def test_steering_input_of_an_agent_that_reads_at_any_time_is_out_of_reach_and_its_queue_is_not() -> None:
    trial = Trial()
    external = ev.HarnessCapabilities(has_turns=False, needs_model=False)
    trial.do(cmd.Create(now=1, model_ref="", harness="external", capabilities=external))
    trial.send("one")
    trial.send("careful", "steer")
    trial.send("two", "queue")

    assert trial.refusal(withdraw("input-careful")) == "INPUT_NOT_WAITING"
    trial.do(withdraw("input-two"))
    assert [waiting.input_id for waiting in trial.state.waiting] == ["input-careful"]


def test_a_withdrawn_message_does_not_run_after_a_restart(trial: Trial) -> None:
    trial.send("one")
    trial.send("two", "queue")
    trial.send("three", "queue")
    trial.do(withdraw("input-two"))
    trial.restart(can_resume=False)

    assert [event.content for event in trial.of(ev.UserInput)] == ["one", "three"]


# ---------------------------------------------------------------- live sessions


async def test_a_message_is_taken_back_while_a_tool_runs(tmp_path: Path) -> None:
    script = "tool: weather {}\n---\nsay: Sunny.\n---\nsay: The next one."
    async with new_session(tmp_path, script, terms=ev.SessionTerms(tools=(WEATHER,))) as (sessions, client):

        async def execute(request: ToolRequest) -> ToolAnswer:
            for name in ("steered", "queued", "kept"):
                delivery: ev.Delivery = "steer" if name == "steered" else "queue"
                await client.do(cmd.Send(now=0, input_id=name, content=name, delivery=delivery))
            with refused("INPUT_NOT_WAITING", match="No such message is waiting"):
                await client.do(withdraw("unknown"))
            await client.do(withdraw("steered"))
            await client.do(withdraw("queued"))
            return ToolAnswer(content=(Text(text="sunny"),))

        await sessions.register_executor(client.session_id, execute)
        await client.run("Weather?")
        await client.until_settled()
        assert [event.content for event in client.events(ev.UserInput)] == ["Weather?", "kept"]
        assert [event.text for event in client.events(ev.AssistantText)] == ["Sunny.", "The next one."]
        assert client.events(ev.InputWithdrawn) == [
            ev.InputWithdrawn(input_id="steered", token="local"),
            ev.InputWithdrawn(input_id="queued", token="local"),
        ]
        state = await sessions.dispatch(GetState(client.session_id))
        assert (state.waiting, fold(await whole_log(sessions, client.session_id))) == ((), state)
        fork = await sessions.dispatch(ForkSession(origin=client.session_id))
        kinds = {kind_of(logged.event) for logged in await whole_log(sessions, fork)}
        assert not kinds & {"input_accepted", "input_withdrawn"}


async def test_a_withdrawn_message_is_not_run_after_its_owner_was_killed(tmp_path: Path) -> None:
    session_id = await asyncio.to_thread(_killed_child, tmp_path)
    async with owned_sessions(tmp_path, "echo") as sessions:
        again = Desk(sessions, session_id)
        await again.until_settled()
        await again.until_settled()

        assert [event.content for event in again.events(ev.UserInput)] == ["First", "kept"]
        assert again.events(ev.InputWithdrawn) == [ev.InputWithdrawn(input_id="taken back", token="local")]
        assert (await sessions.dispatch(GetState(session_id))).waiting == ()


def _killed_child(root: Path) -> str:
    """Kill the child as soon as it has said that the withdrawal is durable; returns the session's id."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "support.queue_child", str(root)]
    environ = {**os.environ, "PYTHONPATH": path, "MAKAI_HOME": str(root / "makai-home")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as child:
        assert child.stdout is not None
        try:
            return child.stdout.readline().strip()
        finally:
            child.send_signal(signal.SIGKILL)
