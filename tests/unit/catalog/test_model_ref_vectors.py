"""The vectors of the TypeScript package: both parsers must agree on them."""

import json

import msgspec
import pytest
from support.fixtures import FIXTURES

from makai.catalog.model_ref import ModelRef, parse_model_ref
from makai.core.errors import ModelRefError

VECTORS = FIXTURES.parent.parent / "sdk" / "typescript" / "test" / "model_ref_vectors.json"


class _Valid(msgspec.Struct):
    ref: str
    provider_id: str
    api: str
    model_id: str


class _Invalid(msgspec.Struct):
    ref: str
    kind: str


class _Vectors(msgspec.Struct):
    valid: list[_Valid]
    invalid: list[_Invalid]


# The standard library reads lone surrogates, which some vectors hold on purpose; msgspec refuses them.
SHARED = msgspec.convert(json.loads(VECTORS.read_text(encoding="utf-8")), _Vectors)


@pytest.mark.req("MK-TSSDK-003")
@pytest.mark.parametrize("vector", SHARED.valid, ids=lambda vector: ascii(vector.ref))
def test_valid_refs_parse_alike(vector: _Valid) -> None:
    assert parse_model_ref(vector.ref) == ModelRef(vector.provider_id, vector.api, vector.model_id)


@pytest.mark.req("MK-TSSDK-003")
@pytest.mark.parametrize("vector", SHARED.invalid, ids=lambda vector: ascii(vector.ref[:40]))
def test_invalid_refs_fail_alike(vector: _Invalid) -> None:
    with pytest.raises(ModelRefError) as failure:
        parse_model_ref(vector.ref)
    assert failure.value.kind == vector.kind
