"""Checks an answer against a JSON Schema. Not every API enforces a schema, and a length limit can cut the JSON.

Nothing is fetched: a `$ref` to another document is an error.
"""

from __future__ import annotations

from typing import NoReturn

import jsonschema_rs
import msgspec

from makai.core.errors import InvalidRequest, ProviderError
from makai.core.messages import AssistantMessage
from makai.providers.preparation import schema_object


class OutputSchema:
    """A schema that was compiled before any model is asked."""

    def __init__(self, text: str) -> None:
        raw = schema_object(text, "the output schema")
        try:
            self._validator = jsonschema_rs.validator_for(msgspec.json.decode(raw), retriever=_refuse)
        except ValueError as error:
            reason = str(error).partition("\n")[0]
            raise InvalidRequest(f"the output schema is not a JSON Schema we can use: {reason}") from error

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
    return ProviderError(
        f"the answer of {message.provider} {why}",
        provider_id=message.provider,
        hint="Try again, or use a stronger model (-m).",
    )


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is another document, and none is fetched")
