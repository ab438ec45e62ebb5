import assert from "node:assert/strict";
import { test } from "node:test";

import { Reconstruction } from "../src/reconstruct.js";
import type { Payload } from "../src/envelope.js";

function rebuilt(events: [string, Payload][]): Reconstruction {
  const answer = new Reconstruction();
  for (const [type, payload] of events) answer.apply(type, payload);
  return answer;
}

test("blocks that arrive interleaved become parts in the order of their index, signatures included", () => {
  const answer = rebuilt([
    ["start", {}],
    ["thinking_start", { content_index: 0 }],
    ["text_start", { content_index: 1 }],
    ["thinking_delta", { content_index: 0, delta: "hm" }],
    ["text_delta", { content_index: 1, delta: "Hel" }],
    ["keepalive", {}],
    ["text_delta", { content_index: 1, delta: "lo" }],
    ["text_end", { content_index: 1, content_signature: "s1" }],
    ["thinking_end", { content_index: 0, thinking_signature: "s0", redacted: true }],
    ["toolcall_start", { content_index: 2, id: "call_1", name: "look" }],
    ["toolcall_delta", { content_index: 2, delta: '{"a":' }],
    ["toolcall_delta", { content_index: 2, delta: "1}" }],
    ["toolcall_end", { content_index: 2, tool_call: { thought_signature: "s2" } }],
  ]);

  assert.deepEqual(answer.content(), [
    { type: "thinking", thinking: "hm", thinking_signature: "s0", redacted: true },
    { type: "text", text: "Hello", text_signature: "s1" },
    { type: "tool_call", tool_call_id: "call_1", name: "look", arguments_json: '{"a":1}', thought_signature: "s2" },
  ]);
  assert.deepEqual(answer.toolCall(2), answer.content()[2]);
  assert.equal(answer.toolCall(1), undefined);
});

test("the whole tool call of the full encoding says the same as its deltas", () => {
  const call = { type: "tool_call", tool_call_id: "c", name: "n", arguments_json: "{}" };
  const answer = rebuilt([
    ["toolcall_start", { content_index: 0, id: "c", name: "n" }],
    ["toolcall_delta", { content_index: 0, delta: "{}" }],
    ["toolcall_end", { content_index: 0, tool_call: call, partial: {} }],
  ]);

  assert.deepEqual(answer.content(), [call]);
});

test("a block that ends without extras has only its own fields", () => {
  const answer = rebuilt([
    ["text_start", { content_index: 0 }],
    ["text_end", { content_index: 0 }],
  ]);

  assert.deepEqual(answer.content(), [{ type: "text", text: "" }]);
});

test("deltas of a block that was never opened are ignored", () => {
  assert.deepEqual(rebuilt([["text_delta", { content_index: 4, delta: "x" }]]).content(), []);
});
