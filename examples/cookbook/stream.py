"""Stream an answer word by word.

python examples/cookbook/stream.py [MODEL]
"""

import asyncio
import sys

import makai

MODEL = sys.argv[1] if len(sys.argv) > 1 else "local/smollm2-135m"


async def main() -> None:
    async with makai.connect() as client:
        stream = client.provider.stream(model_ref=MODEL, messages="Why is the sky blue? One sentence.")
        async for event in stream:
            match event:
                case makai.TextDeltaEvent():
                    print(event.delta, end="", flush=True)
                case makai.ErrorEvent():
                    raise SystemExit(f"\n{event.message}")

        assert stream.response is not None  # complete now, with what it used
        usage = stream.response.usage or makai.UsageSummary()
        print(f"\n{usage.input} tokens in, {usage.output} out")


asyncio.run(main())
