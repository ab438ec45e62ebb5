"""A program that can be killed at any moment, and continues when it is started again.

    python examples/cookbook/resume.py [MODEL]

The session has a fixed id and is stored, event by event. After a crash the same program finds it: a run that was active
continues, a call that was being carried out is never repeated, and nothing that was said is lost.
"""

import asyncio
import sys
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import makai

MODEL = sys.argv[1] if len(sys.argv) > 1 else "local/smollm2-135m"
SESSION = str(uuid5(NAMESPACE_URL, f"cookbook/resume/{Path.cwd()}"))  # one per folder
OPTIONS = {"session_id": SESSION}
WORK = Path("work.log")


def step(number: int) -> str:
    """Do one step of the work."""
    with WORK.open("a", encoding="utf-8") as log:
        log.write(f"step {number}\n")
    return f"step {number} is done"


async def continue_run(client: makai.MakaiClient) -> bool:
    """Wait for a run that an earlier start left behind; whether the session exists."""
    try:
        async with client.agent.attach(SESSION, tools=[step]) as session:
            if (await client.agent.status(SESSION)).status != "idle":
                print("Continuing the run that was active.", flush=True)
                async for event in session:
                    if event.type in ("agent_end", "error"):
                        break
    except makai.MakaiStreamError as error:
        if error.code != "session_not_found":
            raise
        return False
    return True


async def main() -> None:
    async with makai.connect() as client:
        if not await continue_run(client):
            print("Starting.", flush=True)
            await client.agent.run(model_ref=MODEL, messages="Do all steps.", tools=[step], options=OPTIONS)
        answer = await client.agent.run(model_ref=MODEL, messages="What did you do?", tools=[step], options=OPTIONS)
        print(answer.text)


asyncio.run(main())
