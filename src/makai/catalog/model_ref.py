"""The `model_ref`: one text that permanently names one model of one provider behind one API.

Canonical form (MK-MODEL-018): `<provider_id>/<api>@<percent-encoded-model-id>`. Every byte of the model id outside RFC
3986's unreserved set is written `%XX` in upper case, so each triple has exactly one canonical ref and each ref one
triple. Escapes with lower-case digits are read too: RFC 3986 section 2.1 calls them equivalent.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from makai.core.errors import ModelRefError
from makai.core.model import Model

MAX_REF_LENGTH = 4096
MAX_PART_LENGTH = 256
MAX_MODEL_ID_LENGTH = 512
"""In characters, before encoding."""

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ESCAPED = tuple(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in range(256))
_SEPARATORS = re.compile(r"[/@%]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_ENCODED_ID = re.compile(r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+")
_ESCAPE_BYTES = re.compile(rb"%([0-9A-F]{2})")


class ModelRef(msgspec.Struct, frozen=True):
    provider_id: str
    api: str
    model_id: str
    """The vendor's own name, byte for byte."""

    def __str__(self) -> str:
        return format_model_ref(self.provider_id, self.api, self.model_id)


def format_model_ref(provider_id: str, api: str, model_id: str) -> str:
    _check_part(provider_id, "provider_id")
    _check_part(api, "api")
    if not model_id:
        raise ModelRefError("the model id is empty", kind="missing_model_id")
    _check_length(model_id, MAX_MODEL_ID_LENGTH, "model id")
    try:
        encoded = "".join([_ESCAPED[byte] for byte in model_id.encode()])
    except UnicodeEncodeError:
        raise ModelRefError("the model id has a lone surrogate", kind="invalid_utf8_model_id") from None
    ref = f"{provider_id}/{api}@{encoded}"
    _check_length(ref, MAX_REF_LENGTH, "model_ref")
    return ref


def ref_of(model: Model) -> str:
    return format_model_ref(model.provider, model.api, model.id)


@lru_cache(maxsize=1024)
def parse_model_ref(text: str) -> ModelRef:
    """The triple of a ref. Only what `format_model_ref` can write is accepted, but for the case of escapes."""
    _check_length(text, MAX_REF_LENGTH, "model_ref")
    provider_id, slash, rest = text.partition("/")
    api, at, encoded = rest.partition("@")
    if not slash or not at:
        raise ModelRefError("a model_ref looks like provider/api@model", kind="missing_separators")
    if "@" in provider_id or "/" in api or "/" in encoded or "@" in encoded:
        raise ModelRefError(
            "a model_ref has one '/' and one '@'; in the model id they are written %2F and %40",
            kind="ambiguous_separators",
        )
    _check_part(provider_id, "provider_id")
    _check_part(api, "api")
    return ModelRef(provider_id, api, _decode_model_id(encoded))


def _check_part(value: str, part: str) -> None:
    if not value:
        raise ModelRefError(f"the {part} is empty", kind=f"missing_{part}")
    if len(value) > MAX_PART_LENGTH or _SEPARATORS.search(value) or not value.isprintable():
        raise ModelRefError(
            f"the {part} may not hold '/', '@', '%' or control characters, nor exceed {MAX_PART_LENGTH} characters",
            kind=f"invalid_{part}",
        )


def _decode_model_id(encoded: str) -> str:
    if not encoded:
        raise ModelRefError("the model id is empty", kind="missing_model_id")
    if _BAD_ESCAPE.search(encoded):
        raise ModelRefError("'%' must be followed by two hexadecimal digits", kind="invalid_percent_escape")
    encoded = _ESCAPE.sub(lambda escape: escape[0].upper(), encoded)
    if not _ENCODED_ID.fullmatch(encoded):
        raise ModelRefError("the model id has a character that must be escaped", kind="invalid_model_id_encoding")
    raw = _ESCAPE_BYTES.sub(lambda escape: bytes([int(escape[1], 16)]), encoded.encode())
    if "%" in encoded and any(f"%{byte:02X}" in encoded for byte in _UNRESERVED):
        # Two spellings of one id would break "distinct triples never give the same ref" the other way round.
        raise ModelRefError("the model id escapes a character that needs none", kind="invalid_model_id_encoding")
    try:
        model_id = raw.decode()
    except UnicodeDecodeError:
        raise ModelRefError("the model id is not UTF-8", kind="invalid_utf8_model_id") from None
    _check_length(model_id, MAX_MODEL_ID_LENGTH, "model id")
    return model_id


def _check_length(text: str, longest: int, what: str) -> None:
    if len(text) > longest:
        raise ModelRefError(f"the {what} is longer than {longest} characters", kind="invalid_model_id_encoding")
