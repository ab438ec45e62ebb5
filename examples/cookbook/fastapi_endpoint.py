"""A chat endpoint that streams, with FastAPI.

    pip install fastapi uvicorn
    MAKAI_MODEL=local/smollm2-135m uvicorn --app-dir examples/cookbook fastapi_endpoint:app
    curl -N localhost:8000/chat -H 'Content-Type: application/json' -d '{"message": "Hello"}'

Send the `x-session` of an answer back as `session` to continue the conversation, also after a restart.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

import makai

MODEL = os.environ.get("MAKAI_MODEL", "local/smollm2-135m")


class Question(BaseModel):
    message: str
    session: UUID | None = None


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with makai.connect() as app.state.client:  # one client for all requests
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/chat")
async def chat(question: Question) -> StreamingResponse:
    session = str(question.session or uuid4())

    async def text() -> AsyncIterator[str]:
        stream = app.state.client.agent.stream(
            model_ref=MODEL, messages=question.message, options={"session_id": session, "max_turns": 5}
        )
        async for event in stream:  # a browser that goes away stops the run
            if event.type == "text_delta":
                yield event.delta
            elif event.type == "error":
                yield f"\n[{event.message}]"

    return StreamingResponse(text(), media_type="text/plain", headers={"x-session": session})
