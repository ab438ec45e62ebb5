"""Drives an ACP agent with the official Python SDK and prints what it saw as one JSON object, as `client.mjs` does.

Usage: python client.py FOLDER COMMAND ARGS...   The environment is passed on to the agent.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import acp
from acp import schema


class Editor:
    def __init__(self) -> None:
        self.text = ""
        self.replayed: list[tuple[str, str]] = []
        self.tools: dict[str, str] = {}
        self.asked: list[list[str]] = []
        self.options: list[Any] | None = None
        self.replaying = False
        self.chunk = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **further: Any) -> None:
        kind = update.session_update
        if kind.endswith("message_chunk"):
            if self.replaying:
                self.replayed.append((kind, update.content.text))
            else:
                self.text += update.content.text
            self.chunk.set()
        elif kind == "config_option_update":  # lists of models may come after the answer to session/new
            self.options = update.config_options
        elif kind.startswith("tool_call") and not self.replaying and update.status:
            self.tools[update.tool_call_id] = update.status

    async def request_permission(self, options: Any, session_id: str, tool_call: Any, **further: Any) -> Any:
        self.asked.append(sorted({option.kind for option in options}))
        chosen = next(option.option_id for option in options if option.kind == "allow_once")
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen)
        return schema.RequestPermissionResponse(outcome=outcome)


def other(values: list[str], current: str) -> str:
    return next(value for value in values if value != current)


def option_of(each: Any) -> Any:
    return getattr(each, "root", each)


def values_of(option: Any) -> list[str]:
    groups = [each.options if hasattr(each, "group") else [each] for each in option.options]
    return [value.value for group in groups for value in group]


def current(options: list[Any]) -> dict[str, Any]:
    return {option_of(option).id: option_of(option).current_value for option in options}


def joined(chunks: list[tuple[str, str]], kind: str) -> str:
    return "".join(text for each, text in chunks if each == kind)


async def main(folder: str, command: str, *arguments: str) -> None:
    editor = Editor()
    options = {"stderr": None, "limit": 2**26}
    async with acp.spawn_agent_process(
        editor, command, *arguments, env=dict(os.environ), cwd=folder, transport_kwargs=options
    ) as (agent, process):
        started = await agent.initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(),
            client_info=schema.Implementation(name="test", version="1"),
        )
        session = await agent.new_session(cwd=folder, mcp_servers=[])
        name = session.session_id

        async def say(text: str) -> Any:
            return await agent.prompt(session_id=name, prompt=[schema.TextContentBlock(type="text", text=text)])

        turn = await say("Please write.")
        mode = other([each.id for each in session.modes.available_modes], session.modes.current_mode_id)
        await agent.set_session_mode(session_id=name, mode_id=mode)
        option = next(option_of(each) for each in session.config_options if option_of(each).category == "mode")
        value = other(values_of(option), mode)
        changed = await agent.set_config_option(session_id=name, config_id=option.id, value=value)

        said = editor.text
        editor.chunk.clear()
        long = asyncio.create_task(say("at length"))
        await editor.chunk.wait()
        await agent.cancel(session_id=name)
        stopped = await long

        listed = await agent.list_sessions(cwd=folder)
        editor.replaying = True
        await agent.load_session(session_id=name, cwd=folder, mcp_servers=[])
        editor.replaying = False
        try:
            await agent.load_session(session_id="unknown", cwd=folder, mcp_servers=[])
            refused = None
        except acp.RequestError as error:
            refused = error.code
        process.stdin.close()
        report = {
            "version": started.protocol_version,
            "agent": started.agent_info.name,
            "stops": [turn.stop_reason, stopped.stop_reason],
            "text": said,
            "tools": [*editor.tools.values()],
            "asked": editor.asked,
            "options": sorted(current(changed.config_options))
            == sorted(current(editor.options or session.config_options)),
            "changed": current(changed.config_options)[option.id] == value,
            "listed": [each.session_id == name and each.cwd == folder for each in listed.sessions],
            "replayed": joined(editor.replayed, "user_message_chunk"),
            "answered": joined(editor.replayed, "agent_message_chunk").startswith(said),
            "refused": refused,
            "exit": await process.wait(),
        }
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
