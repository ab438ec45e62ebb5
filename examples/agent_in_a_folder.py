"""An agent that works in a folder: makai's own tools, one tool of this program, and a person who is asked.

    python examples/agent_in_a_folder.py MODEL_REF FOLDER TASK

It looks around unasked; before it changes a file or runs a command, `permission` is asked. makai runs inside this
program, unless MAKAI_URL and MAKAI_TOKEN name a server (`makai serve`); the folder is then one of the server's machine.
"""

import asyncio
import os
import sys
from datetime import date
from typing import Any

import makai


async def holidays(arguments: dict[str, Any]) -> list[str]:
    """Runs here, in this program. An exception is reported to the model."""
    year = date.fromisoformat(arguments["day"]).year
    return [f"{year}-01-01", f"{year}-12-25"]


def permission(request: makai.PermissionRequest) -> makai.Allow | makai.Deny:
    """Asked before anything is changed; a plain function may wait for a person. No answer in time is a no."""
    print(f"\n{request.title or request.tool_name}")
    for diff in request.diffs:
        print(f"  {diff.path}: {diff.new_text!r}")
    return makai.Allow() if input("Allow it? [y/N] ") == "y" else makai.Deny(reason="The user said no.")


async def main(model_ref: str, folder: str, task: str) -> None:
    async with makai.connect(os.environ.get("MAKAI_URL"), token=os.environ.get("MAKAI_TOKEN")) as client:
        stream = client.agent.stream(
            model_ref=model_ref,
            messages=task,
            builtin_tools=True,
            cwd=folder,
            tools=[
                makai.AgentTool(
                    name="holidays",
                    description="Public holidays of the year a day is in",
                    schema={"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]},
                    execute=holidays,
                )
            ],
            on_permission_request=permission,
            options={"max_turns": 20},
        )
        async for event in stream:
            match event:
                case makai.TextDeltaEvent():
                    print(event.delta, end="", flush=True)
                case makai.ToolCallEvent():
                    print(f"\n[{event.name} {event.arguments_json}]")
                case makai.ToolExecutionEndEvent(is_error=True):
                    print("[that failed]")
                case makai.ErrorEvent():
                    raise SystemExit(event.message)
        print(f"\nContinue with: makai -r {stream.session_id}")


if len(sys.argv) != 4:
    sys.exit(__doc__)
_, model, place, wish = sys.argv
try:
    asyncio.run(main(model, os.path.abspath(place), wish))
except makai.MakaiError as error:  # no login, no such model, no server
    sys.exit(str(error))
