"""JSON Schemas that callers give as text, checked before they are put into a request.

In: JSON text. Out: the same bytes as `msgspec.Raw`, so that key order and numbers reach the vendor untouched.
"""

from __future__ import annotations

import msgspec

from makai.core.errors import InvalidRequest

_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def schema_object(schema_json: str, what: str) -> msgspec.Raw:
    """The schema, ready to embed; `InvalidRequest` naming `what` when it is not a JSON object."""
    try:
        encoded = schema_json.encode()
        _object_decoder.decode(encoded)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidRequest(f"{what} is not a JSON Schema object: {error}") from error
    return msgspec.Raw(encoded)
