import assert from "node:assert/strict";
import { test } from "node:test";

import { Connection, type ScopeListener } from "../src/connection.js";
import { decodeFrame, encodeEnvelope, type Envelope } from "../src/envelope.js";
import { type MakaiStreamError, transportError } from "../src/errors.js";
import { DEFAULT_LIMITS, type FragmentLimits, splitEnvelope } from "../src/fragments.js";

const SMALL: FragmentLimits = {
  ...DEFAULT_LIMITS,
  frameBytes: 2048,
  messageBytes: 10_000,
  fragments: 8,
  unfinished: 2,
};

class Recorder implements ScopeListener {
  readonly envelopes: Envelope[] = [];
  error: MakaiStreamError | undefined;
  unreadable: MakaiStreamError | undefined;
  received(envelope: Envelope): void {
    this.envelopes.push(envelope);
  }
  unread(error: MakaiStreamError): void {
    this.unreadable = error;
  }
  lost(error: MakaiStreamError): void {
    this.error = error;
  }
}

function setUp(limits = DEFAULT_LIMITS) {
  const written: Envelope[] = [];
  const clock = { now: 1000 };
  const state = { failures: 0 };
  const write = (frame: string): void => void written.push(decodeFrame(frame) as Envelope);
  const connection = new Connection({ write, failed: () => (state.failures += 1) }, () => clock.now, limits);
  const listener = new Recorder();
  const scope = connection.open("stream_id", listener);
  const envelope = (sequence: number, more: Partial<Envelope> = {}): Envelope => ({
    type: "text_delta",
    scopeKind: "stream_id",
    scopeId: scope.id,
    messageId: `m${sequence}`,
    sequence,
    timestamp: 5,
    payload: {},
    ...more,
  });
  const receive = (value: Envelope): void => connection.receive(encodeEnvelope(value));
  return { connection, scope, listener, written, clock, state, envelope, receive };
}

test("a scope counts what it sends from one", () => {
  const { scope, written } = setUp();
  scope.send("stream_request", { a: 1 }, "proxy");
  scope.send("abort_request", {});

  assert.deepEqual(
    written.map(({ messageId: _, ...rest }) => rest),
    [
      {
        type: "stream_request",
        scopeKind: "stream_id",
        scopeId: scope.id,
        sequence: 1,
        timestamp: 1000,
        encoding: "proxy",
        payload: { a: 1 },
      },
      { type: "abort_request", scopeKind: "stream_id", scopeId: scope.id, sequence: 2, timestamp: 1000, payload: {} },
    ],
  );
});

test("an envelope reaches the scope it names; strangers and repetitions are dropped", () => {
  const { listener, envelope, receive } = setUp();
  receive(envelope(1));
  receive(envelope(1));
  receive(envelope(1, { scopeId: "another scope" }));
  receive(envelope(2));

  assert.deepEqual(listener.envelopes, [envelope(1), envelope(2)]);
  assert.equal(listener.error, undefined);
});

test("a missing envelope ends its scope and no other", () => {
  const { connection, listener, envelope, receive, state } = setUp();
  const other = new Recorder();
  const otherScope = connection.open("session_id", other);
  receive(envelope(1));
  receive(envelope(3));
  receive(envelope(1, { scopeKind: "session_id", scopeId: otherScope.id }));

  assert.equal(listener.error?.code, "sequence_gap");
  assert.equal(listener.error?.kind, "transport_error");
  assert.equal(other.envelopes.length, 1);
  assert.deepEqual([connection.alive, state.failures], [true, 0]);
});

test("a frame that breaks the protocol ends the connection, once", () => {
  const { connection, listener, state, envelope, receive } = setUp();
  connection.receive("nonsense");
  connection.receive("more nonsense");
  receive(envelope(1));

  assert.match(String(listener.error?.message), /broke the protocol: not JSON/);
  assert.deepEqual(listener.envelopes, []);
  assert.equal(state.failures, 1);
});

test("a server that could not read some request fails those without an answer, and the connection stays", () => {
  const { connection, listener, state } = setUp();
  connection.receive('{"type":"error","code":"unknown_envelope","message":"no id","protocol_version":"1"}');

  assert.match(String(listener.unreadable?.message), /no id \(unknown_envelope\)/);
  assert.equal(listener.error, undefined);
  assert.deepEqual([connection.alive, state.failures], [true, 0]);
});

test("after a failure new scopes fail at once and nothing is written", () => {
  const { connection, written } = setUp();
  connection.fail(transportError("gone"));
  const late = new Recorder();
  connection.open("stream_id", late).send("models_request", {});

  assert.equal(late.error?.message, "gone");
  assert.deepEqual(written, []);
});

test("a write that throws ends the connection", () => {
  const listener = new Recorder();
  const write = (): void => {
    throw new Error("EPIPE");
  };
  const connection = new Connection({ write, failed: () => undefined });
  connection.open("stream_id", listener).send("models_request", {});

  assert.equal(listener.error?.kind, "transport_error");
  assert.equal((listener.error?.cause as Error).message, "EPIPE");
});

test("a message too large for a frame travels in fragments and arrives whole", () => {
  const payload = { text: "Grüße, 世界 \u{1F30D} ".repeat(200) };
  const { scope, written, envelope, receive, listener } = setUp(SMALL);
  scope.send("stream_request", payload, "proxy");
  scope.send("next", {});

  assert.ok(written.length > 3);
  assert.deepEqual(
    written.map(({ sequence }) => sequence),
    written.map((_, index) => index + 1),
  );
  assert.ok(written.every((part) => encodeEnvelope(part).length <= SMALL.frameBytes));

  const whole = envelope(1, { payload, type: "result", inReplyTo: "r", encoding: "proxy" });
  const parts = splitEnvelope(whole, SMALL);
  parts.forEach(receive);
  receive(envelope(parts.length + 1));

  assert.deepEqual(listener.envelopes, [whole, envelope(parts.length + 1)]);
});

test("a message above the protocol's bound is refused before anything is sent", () => {
  const { scope, written } = setUp(SMALL);

  assert.throws(() => scope.send("stream_request", { text: "x".repeat(20_000) }), { code: "invalid_request" });
  assert.deepEqual(written, []);
});

const data = btoa("x".repeat(900));
const LIES: Record<
  string,
  (at: (sequence: number, index: number, total: number, id?: string) => Envelope) => Envelope[]
> = {
  "lie about their total": (at) => [at(1, 0, 3), at(2, 1, 4)],
  overlap: (at) => [at(1, 0, 3), at(2, 0, 3)],
  "begin in the middle": (at) => [at(1, 1, 3)],
  "are too many": (at) => [at(1, 0, 9)],
  "are none": (at) => [at(1, 0, 0)],
  "belong to too many messages": (at) => [at(1, 0, 2, "a"), at(2, 0, 2, "b"), at(3, 0, 2, "c")],
};
for (const [name, frames] of Object.entries(LIES)) {
  test(`fragments that ${name} end the connection`, () => {
    const { connection, envelope, receive } = setUp(SMALL);
    frames((sequence, index, total, id = "a") =>
      envelope(sequence, { fragment: { index, total, id }, payload: { data } }),
    ).forEach(receive);

    assert.equal(connection.alive, false);
  });
}

test("fragments that add up to too much end the connection", () => {
  const { connection, envelope, receive } = setUp({ ...SMALL, messageBytes: 1000 });
  receive(envelope(1, { fragment: { index: 0, total: 3, id: "a" }, payload: { data } }));
  receive(envelope(2, { fragment: { index: 1, total: 3, id: "a" }, payload: { data } }));

  assert.equal(connection.alive, false);
});

test("fragments that never complete are forgotten after their time", () => {
  const { connection, envelope, receive, clock } = setUp(SMALL);
  const first = (sequence: number, id: string): Envelope =>
    envelope(sequence, { fragment: { index: 0, total: 2, id }, payload: { data } });
  receive(first(1, "a"));
  receive(first(2, "b"));
  clock.now += 30_001;
  receive(first(3, "c"));

  assert.equal(connection.alive, true);
});
