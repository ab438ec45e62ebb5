"""Azure serves OpenAI's Responses at another address, with another header."""

from __future__ import annotations

import pytest
from support import streams as ref
from support.streams import ask, assert_reference, decode, done, model

from makai.core.content import ToolCall
from makai.core.request import StreamOptions
from makai.core.secret import Secret
from makai.core.usage import Usage
from makai.providers.openai_responses import AzureOpenAIResponses, OpenAIResponses

API = AzureOpenAIResponses()
RESOURCE = "https://my-resource.openai.azure.example"


@pytest.mark.parametrize("base_url", [RESOURCE, RESOURCE + "/", RESOURCE + "/openai/v1", RESOURCE + "/openai/v1/"])
@pytest.mark.parametrize(
    ("options", "query"),
    [({}, ""), ({"api_version": "preview"}, "?api-version=preview"), ({"api_version": "a&b"}, "?api-version=a%26b")],
)
def test_the_address_is_the_v1_path_of_the_resource(base_url: str, options: dict[str, str], query: str) -> None:
    target = model(API.id, "azure", base_url=base_url, options=options)

    assert API.request(ask(target)).url == f"{RESOURCE}/openai/v1/responses{query}"


def test_the_key_travels_in_its_own_header() -> None:
    assert API.request(ask(model(API.id, "azure"))).headers == {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "api-key": Secret("test-key"),
    }


def test_the_body_is_that_of_openai_with_the_deployment_as_model() -> None:
    options = StreamOptions(reasoning_effort="low", session_id="s", max_tokens=100)
    target = model(API.id, "azure", id="my-deployment")

    body = API.request(ask(target, options=options)).body

    assert body == OpenAIResponses().request(ask(target, options=options)).body
    assert b'"model":"my-deployment"' in body


def event(name: str, fields: str) -> bytes:
    return f'event: response.{name}\ndata: {{"type":"response.{name}",{fields}}}\n\n'.encode()


@pytest.mark.req("MK-PROV-009")
def test_the_reference_answer_has_the_common_order_and_content() -> None:
    arguments = ref.TOOL_ARGUMENTS.replace('"', '\\"')
    call = f'"type":"function_call","id":"fc_1","call_id":"{ref.TOOL_ID}","name":"{ref.TOOL_NAME}"'
    data = (
        event("created", '"sequence_number":0,"response":{"id":"resp_1","content_filters":null}')
        + event("output_item.added", '"output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}')
        + event("reasoning_summary_text.delta", f'"output_index":0,"summary_index":0,"delta":"{ref.THINKING}"')
        + event("output_item.done", '"output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}')
        + event("output_item.added", '"output_index":1,"item":{"type":"message","id":"msg_1","content":[]}')
        + event("output_text.delta", f'"output_index":1,"content_index":0,"delta":"{ref.TEXT}"')
        + event("output_item.done", '"output_index":1,"item":{"type":"message","id":"msg_1","content":[]}')
        + event("output_item.added", f'"output_index":2,"item":{{{call},"arguments":""}}')
        + event("function_call_arguments.delta", f'"output_index":2,"delta":"{arguments}"')
        + event("output_item.done", f'"output_index":2,"item":{{{call},"arguments":"{arguments}"}}')
        + event("completed", '"response":{"id":"resp_1","status":"completed","usage":{"output_tokens":3}}')
    )

    assert_reference(decode(API, ask(model(API.id, "azure")), data), Usage(output=3))


def test_a_content_filter_ends_the_answer_as_a_refusal() -> None:
    details = '"response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"}}'
    call = '"output_index":0,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}'

    said = done(
        decode(API, ask(model(API.id, "azure")), event("output_item.done", call) + event("incomplete", details))
    )

    assert said.stop_reason == "refusal"
    assert said.content == (ToolCall(tool_call_id="c", name="f", arguments_json="{}"),)
