"""A person decides before something happens.

    python examples/cookbook/approvals.py [MODEL]

`permission="ask"` makes every call of a tool a question of its session. The question is stored: the page and the
terminal show it too, the first answer counts, and it survives a restart of this program.
"""

import asyncio
import sys

import makai

MODEL = sys.argv[1] if len(sys.argv) > 1 else "local/smollm2-135m"


@makai.tool(read_only=True)
def balance(account: str) -> float:
    """The balance of an account, in euros."""
    return 120.0


@makai.tool(permission="ask")
def transfer(to: str, amount: float) -> str:
    """Transfer euros to another person."""
    return f"{amount:.2f} euros are on their way to {to}"


def decide(request: makai.PermissionRequest) -> makai.Allow | makai.Deny:
    """A plain function runs in a thread of its own, so it may wait for a person."""
    print(f"The agent wants to call {request.tool_name} with {request.arguments}")
    if input("Allow it? [y/N] ") == "y":
        return makai.Allow()
    return makai.Deny(reason="The user said no.")


async def main() -> None:
    async with makai.connect() as client:
        answer = await client.agent.run(
            model_ref=MODEL,
            messages="Send Ada the 50 euros that I owe her, if I have them.",
            tools=[balance, transfer],
            on_permission_request=decide,
        )
        print(answer.text)


asyncio.run(main())
