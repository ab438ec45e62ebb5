import asyncio

import makai


async def main(model_ref: str) -> None:
    look = makai.AgentTool(name="look", description="Look at the sea", execute=lambda arguments: "It is calm.")
    async with makai.connect() as program, program.tools.serve("desk", tools=[look]) as server:
        print("Models see", *server.tool_names)
        async with makai.connect() as client:
            answer = await client.agent.run(model_ref=model_ref, messages="How is the sea?", tool_servers=["desk"])
            print(answer.text)


asyncio.run(main("local/openai-completions@smollm2-135m"))
