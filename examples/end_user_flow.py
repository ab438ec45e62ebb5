"""From nothing to an answer: which providers there are, a login if it is needed, a model, a run.

    python examples/end_user_flow.py [PROVIDER [QUESTION]]

PROVIDER is `openai` unless you name another; `local` and `scripted` need no account. makai runs inside this program,
unless MAKAI_URL and MAKAI_TOKEN name a server (`makai serve`).
"""

import asyncio
import os
import sys

import makai


def show(event: makai.MakaiAuthEvent) -> None:
    """What a login has to say."""
    if event.type == "auth_url":
        print(f"Open {event.url} {event.instructions or ''}")
    elif event.type == "progress":
        print(event.message)


def answer(prompt: makai.AuthPromptEvent) -> str:
    """What a login has to ask. A real program hides what is typed (getpass): it may be a secret."""
    return input(f"{prompt.message} ")


async def main(provider_id: str = "openai", question: str = "Why is the sky blue?") -> None:
    async with makai.connect(os.environ.get("MAKAI_URL"), token=os.environ.get("MAKAI_TOKEN")) as client:
        status = {provider.id: provider.auth_status for provider in await client.auth.list_providers()}
        print(f"{len(status)} providers, {provider_id}: {status.get(provider_id, 'needs no login')}")

        if status.get(provider_id, "authenticated") != "authenticated":
            await client.auth.login(provider_id, makai.AuthFlowHandlers(on_event=show, on_prompt=answer))
            print("Logged in.")

        models = (await client.models.list(provider_id=provider_id)).models
        if not models:
            raise SystemExit(f"There is no model of {provider_id}.")
        print(f"{len(models)} models, the first: {models[0].model_ref}")

        stream = client.agent.stream(model_ref=models[0].model_ref, messages=question)
        async for event in stream:
            if event.type == "text_delta":
                print(event.delta, end="", flush=True)
            elif event.type == "error":
                raise SystemExit(event.message)
        print(f"\nContinue with: makai -r {stream.session_id}")


try:
    asyncio.run(main(*sys.argv[1:]))
except makai.MakaiError as error:  # no login, no such model, no server
    sys.exit(str(error))
