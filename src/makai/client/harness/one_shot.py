"""Completions of the contract by a model API, without an agent."""

from __future__ import annotations

from makai.core.content import Text
from makai.core.messages import AssistantMessage, Message, UserMessage
from makai.core.request import Context, StreamOptions
from makai.harness.answer_schema import AnswerSchema
from makai.harness.contract.one_shot import OneShotRequest, OneShotResult
from makai.harness.one_shot import result_of
from makai.protocols.harness_events import cost_of
from makai.providers.runtime import ModelRuntime


async def complete_with_models(models: ModelRuntime, request: OneShotRequest) -> OneShotResult:
    """Ask a model API directly. Its own way to constrain an answer is used, and the instruction too: not every API has
    one."""
    schema = None if request.response_schema is None else AnswerSchema(request.response_schema)
    messages: list[Message] = []
    for number, message in enumerate(request.messages, 1):
        words = message.content
        if schema is not None and number == len(request.messages):
            words = f"{words}\n\n{schema.instruction}"
        if message.effective_role == "user":
            messages.append(UserMessage(content=words))
        else:
            messages.append(AssistantMessage(content=(Text(text=words),)))
    options = StreamOptions(
        json_schema=None if schema is None else schema.text,
        max_tokens=request.max_tokens or None,
        reasoning_effort=request.effort,
    )
    context = Context(messages=tuple(messages), system_prompt=request.system or None)
    said = await models.complete(request.effective_model or None, context, options)
    return result_of(request, [said.text()], schema, cost_of(said.usage, 1), "direct-api")
