import asyncio

import makai


async def main(model_ref: str) -> None:
    async with makai.connect() as client:
        async for event in client.provider.stream(model_ref=model_ref, messages="Why is the sky blue?"):
            if event.type == "text_delta":
                print(event.delta, end="", flush=True)
            elif event.type == "error":
                raise SystemExit(event.message)


asyncio.run(main("local/openai-completions@smollm2-135m"))
