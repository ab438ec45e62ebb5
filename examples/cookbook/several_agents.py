"""Several agents at once, and one that reads what they found.

    python examples/cookbook/several_agents.py [MODEL]

Each run is a session of its own. One client carries any number of them side by side.
"""

import asyncio
import sys

import makai

MODEL = sys.argv[1] if len(sys.argv) > 1 else "local/smollm2-135m"
ROLES = {
    "security": "You review code for security only. Be brief.",
    "speed": "You review code for speed only. Be brief.",
}
CODE = "def read(name): return open('/data/' + name).read()"


async def review(client: makai.MakaiClient, role: str) -> str:
    answer = await client.agent.run(
        model_ref=MODEL, system_prompt=ROLES[role], messages=f"Review: {CODE}", title=f"Review for {role}"
    )
    return f"{role}: {answer.text}"


async def main() -> None:
    async with makai.connect() as client:
        async with asyncio.TaskGroup() as group:  # when one fails, the others are stopped
            tasks = [group.create_task(review(client, role)) for role in ROLES]
        findings = "\n".join(task.result() for task in tasks)
        print(findings)
        answer = await client.agent.run(model_ref=MODEL, messages=f"Which is most urgent, and why?\n\n{findings}")
        print(answer.text)


asyncio.run(main())
