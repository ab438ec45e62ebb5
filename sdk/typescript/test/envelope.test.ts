import assert from "node:assert/strict";
import { test } from "node:test";

import { decodeFrame, encodeEnvelope, type Envelope, MalformedFrame, newId } from "../src/envelope.js";

const ENVELOPE: Envelope = {
  type: "text_delta",
  scopeKind: "stream_id",
  scopeId: "4acb66d3-f669-454e-8f57-07ca938cc8a4",
  messageId: "5f038bdf-f145-4852-bf80-5226eaeb7867",
  sequence: 3,
  timestamp: 1760000000000,
  inReplyTo: "10f42e8a-3d4c-4a90-9459-a7207d1d8b5f",
  encoding: "proxy",
  fragment: { index: 0, total: 2, id: "89ef1cb9-9d15-4f5a-8cb6-8659e1986f01" },
  payload: { delta: "a\u2028b" },
};

test("an envelope is written with its keys in the protocol's order and read back the same", () => {
  const frame = encodeEnvelope(ENVELOPE);

  assert.equal(
    frame,
    '{"type":"text_delta","stream_id":"4acb66d3-f669-454e-8f57-07ca938cc8a4",' +
      '"message_id":"5f038bdf-f145-4852-bf80-5226eaeb7867","sequence":3,"timestamp":1760000000000,"version":1,' +
      '"in_reply_to":"10f42e8a-3d4c-4a90-9459-a7207d1d8b5f","encoding":"proxy",' +
      '"fragment":{"index":0,"total":2,"id":"89ef1cb9-9d15-4f5a-8cb6-8659e1986f01"},"payload":{"delta":"a\u2028b"}}',
  );
  assert.deepEqual(decodeFrame(frame), ENVELOPE);
});

test("unknown fields are ignored", () => {
  const { fragment: _, encoding: __, inReplyTo: ___, ...plain } = ENVELOPE;
  const frame = { ...JSON.parse(encodeEnvelope(plain)), later: 1 };

  assert.deepEqual(decodeFrame(JSON.stringify(frame)), plain);
});

test("the two frames that are no envelopes are told apart from an error event", () => {
  assert.deepEqual(decodeFrame('{"type":"ready","protocol_version":"1"}'), { type: "ready", protocolVersion: "1" });
  assert.deepEqual(decodeFrame('{"type":"error","code":"unknown_envelope","protocol_version":"1","message":"no id"}'), {
    type: "host_error",
    code: "unknown_envelope",
    message: "no id",
  });
  assert.equal(decodeFrame(encodeEnvelope({ ...ENVELOPE, type: "error" })).type, "error");
});

const wire = JSON.parse(encodeEnvelope(ENVELOPE)) as Record<string, unknown>;
const MALFORMED: Record<string, unknown> = {
  "not JSON": "{",
  "not an object": [],
  "no type": { ...wire, type: undefined },
  "no scope": { ...wire, stream_id: undefined },
  "two scopes": { ...wire, session_id: "x" },
  "another version": { ...wire, version: 2 },
  "no message id": { ...wire, message_id: 7 },
  "a fractional sequence": { ...wire, sequence: 1.5 },
  "a negative sequence": { ...wire, sequence: -1 },
  "no payload": { ...wire, payload: undefined },
  "a list as payload": { ...wire, payload: [] },
  "a broken fragment": { ...wire, fragment: { index: 0 } },
};
for (const [name, frame] of Object.entries(MALFORMED)) {
  test(`a frame with ${name} is refused`, () => {
    const text = typeof frame === "string" ? frame : JSON.stringify(frame);

    assert.throws(() => decodeFrame(text), MalformedFrame);
  });
}

test("ids are random version 4 UUIDs", () => {
  const ids = new Set(Array.from({ length: 100 }, newId));

  assert.equal(ids.size, 100);
  for (const id of ids) assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});
