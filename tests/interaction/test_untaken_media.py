"""A picture for a model that takes none, through every face: refused at once with the name of the model and of one that
takes pictures, and no later message fails because of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.acp_client import RpcFailed, acp_place, connected
from support.live_sessions import SCENARIO_MODEL, Desk, owned_sessions, whole_log
from support.minicodex import BOTH
from support.serve_process import serve_process

import makai
from makai.core import session_events as ev
from makai.core.content import Audio, Image, SessionPart, Text
from makai.core.errors import SessionRefused
from makai.sessions.commands import Abort, Send, SetModel
from makai.sessions.requests import CreateSession, GetState, RunCommand
from makai.sessions.service import Sessions

PICTURE = Image(data="QUJD", mime_type="image/png")
RECORDING = Audio(data="QUJD", mime_type="audio/wav")
DEMO = "scripted/scripted@demo"
"""Takes words only."""
REFUSED = "demo takes no pictures; scripted/echo does."
HINT = "Change the model, or send the message without the picture."


async def send(sessions: Sessions, session_id: str, *content: SessionPart) -> None:
    await sessions.dispatch(RunCommand(session_id, Send(now=0, input_id=str(uuid4()), content=content)))


async def test_a_session_refuses_what_its_model_does_not_take_and_logs_nothing(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "say: Hello.") as sessions:
        session_id = await sessions.dispatch(CreateSession(model_ref=DEMO))
        before = await sessions.dispatch(GetState(session_id))
        for part, message in ((PICTURE, REFUSED), (RECORDING, "demo takes no audio; scripted/echo does.")):
            with pytest.raises(SessionRefused) as refused:
                await send(sessions, session_id, Text(text="Look"), part)
            assert (refused.value.code, refused.value.message) == ("BAD_ARGUMENT", message)
        assert await sessions.dispatch(GetState(session_id)) == before


async def test_a_session_continues_with_a_model_that_takes_no_pictures(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "say: I see it.") as sessions:
        session_id = await sessions.dispatch(CreateSession(model_ref=SCENARIO_MODEL))
        desk = Desk(sessions, session_id)
        await send(sessions, session_id, Text(text="Look"), PICTURE, RECORDING)
        await desk.until_settled()
        await desk.do(SetModel(now=0, model_ref=DEMO))
        assert isinstance(await desk.run("And now?"), ev.RunFinished)


async def test_a_picture_that_waits_in_the_queue_fails_its_own_run_only(tmp_path: Path) -> None:
    """The model changed between the message and its run."""
    async with owned_sessions(tmp_path, "stall") as sessions:
        session_id = await sessions.dispatch(CreateSession(model_ref=SCENARIO_MODEL))
        desk = Desk(sessions, session_id)
        await desk.send("wait")
        await desk.until(lambda logged: isinstance(logged.event, ev.TurnStarted))
        await desk.do(Send(now=0, input_id="i2", content=(PICTURE,), delivery="queue"))
        await desk.do(SetModel(now=0, model_ref=DEMO))
        await desk.do(Abort(now=0, by="tester"))
        await desk.until_settled()
        failed = await desk.until_settled()
        assert isinstance(failed, ev.RunFailed)
        assert (failed.code, failed.message, failed.hint) == ("invalid_request", REFUSED, HINT)
        assert isinstance(await desk.run("And now?"), ev.RunFinished)


async def test_clients_of_a_websocket_are_refused_with_a_hint(tmp_path: Path) -> None:
    async with serve_process(tmp_path, "say: Hello.") as server:
        session_id = await server.session(tmp_path)
        client = await server.connect(session_id, *BOTH)
        await client.hello()
        assert await client.ask("set_model", model_ref=DEMO) == "accepted"
        pictures = [{"data": PICTURE.data, "mime_type": PICTURE.mime_type}]
        assert await client.ask("send", text="Look", images=pictures) == "BAD_ARGUMENT"
        (error,) = client.of_type("error")
        assert (error["message"], error["details"]["hint"]) == (REFUSED, HINT)
        assert client.of_type("user_text") == []
        assert await client.ask("send", text="And now?") == "accepted"
        await client.until("user_text")


async def test_editors_are_refused_with_invalid_parameters(tmp_path: Path) -> None:
    async with acp_place(tmp_path, "say: Hello.") as place, connected(place.server) as client:
        await client.initialize()
        session_id = await client.new_session(place.folder)
        await place.sessions.dispatch(RunCommand(session_id, SetModel(now=0, model_ref=DEMO)))
        prompt = [{"type": "image", "data": PICTURE.data, "mimeType": PICTURE.mime_type}]
        with pytest.raises(RpcFailed, match=REFUSED):
            await client.ask("session/prompt", {"sessionId": session_id, "prompt": prompt})
        log = await whole_log(place.sessions, session_id)
        assert not any(isinstance(logged.event, ev.UserInput) for logged in log)


async def test_the_sdk_raises_before_anything_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKAI_HOME", str(tmp_path))
    picture = {"type": "image", "data": PICTURE.data, "mime_type": PICTURE.mime_type}
    messages: list[dict[str, Any]] = [{"role": "user", "content": [picture]}]
    async with makai.connect() as client:
        with pytest.raises(makai.MakaiStreamError, match=REFUSED):
            await client.provider.complete(model_ref=DEMO, messages=messages)
        with pytest.raises(makai.MakaiStreamError, match=REFUSED):
            await client.agent.run(model_ref=DEMO, messages=messages)
        later = [*messages, {"role": "assistant", "content": "I see."}, {"role": "user", "content": "And now?"}]
        answer = await client.provider.complete(model_ref=DEMO, messages=later)
        assert answer.stop_reason in ("end_turn", "tool_use")
