"""Completions of the contract: by a harness that can do them itself, else by a session that is stopped afterwards."""

from __future__ import annotations

import tempfile
from typing import Final

from makai.aio.cancellation import finish_cleanup
from makai.core.errors import AgentFailed, AuthRequired, Unsupported
from makai.harness.answer_schema import AnswerSchema, FoundValue, prompt_of
from makai.harness.contract.endpoint import TransportKind
from makai.harness.contract.events import AgentErrorEvent, AssistantTextEvent, CostData, ResultEvent
from makai.harness.contract.interfaces import STOP_GRACE_S, Handle, Harness, HarnessProvider, OneShotProvider
from makai.harness.contract.one_shot import OneShotRequest, OneShotResult
from makai.harness.contract.spec import PermissionConfig, Spec

STOP_S: Final = STOP_GRACE_S + 10.0


async def complete(harness: Harness, request: OneShotRequest) -> OneShotResult:
    """One answer, without a second try. A harness that completes by itself does it, any other spawns a session
    (DM-ONE-003). Raises for a session that fails; an answer that does not follow the schema is no error."""
    return await (
        harness.complete(request) if isinstance(harness, OneShotProvider) else spawn_complete(harness, request)
    )


async def spawn_complete(harness: Harness, request: OneShotRequest) -> OneShotResult:
    """Spawn a session in an empty folder, in which every question of the agent is denied, and return at its terminal
    event (DM-ONE-008). The session is stopped on every path, also when the caller is cancelled (DM-ONE-011).
    `Unsupported` for a harness that declares that it completes nothing."""
    caps = harness.manifest().caps if isinstance(harness, HarnessProvider) else None
    if caps is not None and not caps.supports_one_shot:
        raise Unsupported(
            f"{harness.capabilities.human_label} acts without asking, so it completes no requests (oneShot).",
            hint="Use another agent or a model; a task that may act is `makai harness run`.",
        )
    schema = None if request.response_schema is None else AnswerSchema(request.response_schema)
    with tempfile.TemporaryDirectory(prefix="makai-complete-") as folder:
        spec = Spec(
            prompt=prompt_of(request.messages, schema),
            cwd=folder,
            autonomous=True,
            sandbox_enabled=True,
            sandbox_level="read-only",
            model=request.effective_model,
            endpoint=request.endpoint,
            effort=request.effort,
            response_schema=request.response_schema,
            system_prompt_append=request.system,
            permission_config=PermissionConfig(default_decision="deny"),
        )
        handle = await harness.spawn(spec)
        try:
            texts, cost = await _answer(handle)
        finally:
            await finish_cleanup(handle.stop(), STOP_S, "stopping a completion")
    return result_of(request, texts, schema, cost, None if caps is None else caps.transport)


async def _answer(handle: Handle) -> tuple[list[str], CostData | None]:
    texts: list[str] = []
    async for event in handle:
        match event:
            case AssistantTextEvent(text=text, raw=raw):
                # What a sub-agent says is no answer.
                texts += [] if isinstance(raw, dict) and raw.get("parentToolUseId") else [text]
            case ResultEvent(success=True, cost=cost):
                return texts, cost
            case ResultEvent() as result:
                why = "; ".join(result.errors) or result.message or result.error_subtype
                raise AgentFailed(f"The completion failed: {why}")
            case AgentErrorEvent(code=AuthRequired.code, message=message):
                raise AuthRequired(f"The completion failed: {message}", provider_id="")
            case AgentErrorEvent(message=message):
                raise AgentFailed(f"The completion failed: {message}")
            case _:
                pass
    raise AgentFailed("The completion ended without a result.")


def result_of(
    request: OneShotRequest,
    texts: list[str],
    schema: AnswerSchema | None,
    cost: CostData | None,
    transport: TransportKind | None,
) -> OneShotResult:
    found = FoundValue(None, "") if schema is None else schema.find(texts)
    owns_login = request.endpoint is not None and request.endpoint.brings_own_auth
    return OneShotResult(
        text="".join(texts),
        structured=found.value,
        schema_ok=schema is not None and found.is_valid,
        cost=None if owns_login else cost,
        transport_used=transport,
    )
