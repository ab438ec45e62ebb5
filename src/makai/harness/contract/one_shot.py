"""A completion without a conversation: one request, one answer, optionally constrained by a JSON Schema."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from makai.harness.contract.endpoint import EndpointBinding, TransportKind, Unset
from makai.harness.contract.events import CostData
from makai.harness.contract.shapes import ContractShape, always
from makai.harness.contract.spec import EffortLevel, JsonSchema


class OneShotMessage(ContractShape, frozen=True, kw_only=True):
    role: Literal["user", "assistant"] | Unset = always(lambda: "")
    content: str

    @property
    def effective_role(self) -> Literal["user", "assistant"]:
        """`role`, where an empty one means user (DM-ONE-001)."""
        return self.role or "user"


Message: TypeAlias = OneShotMessage
"""Its name in the contract. Class names are unique in makai."""


class OneShotRequest(ContractShape, frozen=True, kw_only=True):
    system: str = ""
    messages: tuple[OneShotMessage, ...] = always(tuple)
    model: str = ""
    endpoint: EndpointBinding | None = None
    effort: EffortLevel | None = None
    response_schema: JsonSchema | None = None
    """None: free text."""
    max_tokens: int = 0
    """0: the default of the harness. Harnesses that spawn a session ignore it (DM-ONE-010)."""

    @property
    def effective_model(self) -> str:
        """The model of the endpoint wins over `model` (DM-ONE-001). Empty: the harness' default."""
        return (self.endpoint.model if self.endpoint is not None else "") or self.model

    def public(self) -> OneShotRequest:
        endpoint = self.endpoint.public() if self.endpoint is not None else None
        return msgspec.structs.replace(self, endpoint=endpoint)


class OneShotResult(ContractShape, frozen=True, kw_only=True):
    text: str
    structured: Any = None
    """The value found in the text; None without a response schema (DM-ONE-002)."""
    schema_ok: bool = always(bool)
    """Whether `structured` was found and is valid. False is no error: the caller repairs, asks again or drops it."""
    cost: CostData | None = None
    """None where the user's own login pays (DM-ONE-009)."""
    transport_used: TransportKind | None = None
