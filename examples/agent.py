import asyncio

import makai


async def main(model_ref: str) -> None:
    clock = makai.AgentTool(name="clock", description="What time it is", execute=lambda arguments: "It is noon.")
    async with makai.connect() as client:
        first = await client.agent.run(model_ref=model_ref, messages="What time is it?", tools=[clock])
        go_on = {"session_id": first.session_id}
        second = await client.agent.run(model_ref=model_ref, messages="And in an hour?", tools=[clock], options=go_on)
        print(first.text, second.text, sep="\n")


asyncio.run(main("local/openai-completions@smollm2-135m"))
