"""`provider/api@model`: one ref per triple, one triple per ref; the vectors are shared with the TypeScript package."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.fixtures import FIXTURES

from makai.catalog.model_ref import MAX_MODEL_ID_LENGTH, MAX_REF_LENGTH, ModelRef, format_model_ref, parse_model_ref
from makai.core.errors import ModelRefError

PARTS = st.text(
    st.characters(exclude_characters="/@%", exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp", "Zs", "Co", "Cn")),
    min_size=1,
    max_size=20,
)
MODEL_IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
TRIPLES = st.builds(ModelRef, PARTS, PARTS, MODEL_IDS)


@pytest.mark.req("MK-MODEL-018")
@pytest.mark.parametrize(
    ("triple", "ref"),
    [
        (("anthropic", "anthropic-messages", "claude-sonnet-4-5"), "anthropic/anthropic-messages@claude-sonnet-4-5"),
        (("ollama", "ollama", "qwen2.5:7b"), "ollama/ollama@qwen2.5%3A7b"),
        (("groq", "openai-completions", "openai/gpt-oss-120b"), "groq/openai-completions@openai%2Fgpt-oss-120b"),
        (("x", "y", "a b@c%é~_-."), "x/y@a%20b%40c%25%C3%A9~_-."),
    ],
)
def test_the_canonical_form(triple: tuple[str, str, str], ref: str) -> None:
    assert format_model_ref(*triple) == ref
    assert parse_model_ref(ref) == ModelRef(*triple)
    assert str(ModelRef(*triple)) == ref


@pytest.mark.req("MK-MODEL-019")
@given(TRIPLES)
@example(ModelRef("a", "b", " :/@%41\n\0é☂ "))
def test_formatting_then_parsing_returns_the_triple(triple: ModelRef) -> None:
    assert parse_model_ref(str(triple)) == triple


@pytest.mark.req("MK-MODEL-019")
@given(TRIPLES, TRIPLES)
@example(ModelRef("a", "b", "c "), ModelRef("a", "b", "c"))
@example(ModelRef("a", "b", "C"), ModelRef("a", "b", "c"))
@example(ModelRef("a", "b", "%41"), ModelRef("a", "b", "A"))
def test_distinct_triples_have_distinct_refs(one: ModelRef, other: ModelRef) -> None:
    assert (str(one) == str(other)) == (one == other)


@pytest.mark.req("MK-MODEL-019", "MK-MODEL-020")
@given(st.text(max_size=40) | st.from_regex(r"[a-z]{1,3}/[a-z]{1,3}@[a-zA-Z0-9%/@ ]{0,12}", fullmatch=True))
def test_every_text_is_either_the_only_ref_of_its_triple_or_a_typed_error(text: str) -> None:
    try:
        triple = parse_model_ref(text)
    except ModelRefError:
        return
    assert str(triple) == text


LONG_REF, LONG_ID = "a/b@" + "x" * MAX_REF_LENGTH, "a/b@" + "x" * (MAX_MODEL_ID_LENGTH + 1)
MALFORMED = {
    "missing_separators": ["", "openai", "openai/gpt", "openai@gpt"],
    "missing_provider_id": ["/openai-responses@gpt"],
    "missing_api": ["openai/@gpt"],
    "missing_model_id": ["openai/openai-responses@"],
    "ambiguous_separators": ["a/b/c@d", "a/b@c/d", "a/b@c@d", "a@b/c@d"],
    "invalid_provider_id": ["a%20/b@c", "a\n/b@c", "p" * 300 + "/b@c"],
    "invalid_api": ["a/b%2F@c"],
    "invalid_percent_escape": ["a/b@c%", "a/b@c%4", "a/b@c%GG"],
    "invalid_model_id_encoding": ["a/b@c:d", "a/b@c d", "a/b@é", "a/b@%41", LONG_REF, LONG_ID],
    "invalid_utf8_model_id": ["a/b@%FF", "a/b@%ED%A0%80", "a/b@%C0%AF"],
}


@pytest.mark.req("MK-MODEL-020")
@pytest.mark.parametrize(("text", "kind"), [(text, kind) for kind, texts in MALFORMED.items() for text in texts])
def test_a_malformed_ref_fails_with_its_kind(text: str, kind: str) -> None:
    with pytest.raises(ModelRefError) as caught:
        parse_model_ref(text)
    assert caught.value.kind == kind


@pytest.mark.req("MK-MODEL-020")
@pytest.mark.parametrize(
    ("triple", "kind"),
    [
        (("", "b", "c"), "missing_provider_id"),
        (("a", "", "c"), "missing_api"),
        (("a", "b", ""), "missing_model_id"),
        (("a/b", "b", "c"), "invalid_provider_id"),
        (("a", "b@", "c"), "invalid_api"),
        (("a", "b", "\ud800"), "invalid_utf8_model_id"),
        (("a", "b", "c" * (MAX_MODEL_ID_LENGTH + 1)), "invalid_model_id_encoding"),
        (("a", "b", "\U0001f600" * MAX_MODEL_ID_LENGTH), "invalid_model_id_encoding"),
    ],
)
def test_a_triple_without_a_ref_fails_with_its_kind(triple: tuple[str, str, str], kind: str) -> None:
    with pytest.raises(ModelRefError) as caught:
        format_model_ref(*triple)
    assert caught.value.kind == kind


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
