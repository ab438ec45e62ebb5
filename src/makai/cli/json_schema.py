"""Checks an answer against a JSON Schema. Not every API enforces a schema, and a length limit can cut the JSON."""

from __future__ import annotations

import msgspec

from makai.agent.tool_io import compiled_schema
from makai.core.errors import ProviderError
from makai.core.messages import AssistantMessage


class OutputSchema:
    """A schema that was compiled before any model is asked."""

    def __init__(self, text: str) -> None:
        refusal = "the output schema is not a JSON Schema we can use"
        self._validator = compiled_schema(text, "the output schema", refusal)

    def check(self, message: AssistantMessage) -> None:
        """Raise `ProviderError` unless the answer is JSON of this schema."""
        try:
            value = msgspec.json.decode(message.text())
        except msgspec.DecodeError as error:
            cut = " (it was cut at the length limit)" if message.stop_reason == "max_tokens" else ""
            raise _unfit(message, f"is not JSON{cut}: {error}") from error
        for misfit in self._validator.iter_errors(value):
            where = "/".join(str(step) for step in misfit.instance_path)
            at = f" at {where}" if where else ""
            raise _unfit(message, f"does not fit the schema{at}: {misfit.message}")


def _unfit(message: AssistantMessage, why: str) -> ProviderError:
    hint = "Try again, or use a stronger model (-m)."
    return ProviderError(f"the answer of {message.provider} {why}", provider_id=message.provider, hint=hint)
