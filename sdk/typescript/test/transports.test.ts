import assert from "node:assert/strict";
import { test } from "node:test";

import { createMakaiClient } from "../src/index.js";
import type { WebSocketConstructor, WebSocketLike } from "../src/index.js";
import { LineError, LineSplitter } from "../src/transports/lines.js";
import { facts, failureOf } from "./support/fake_server.js";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

test("only a newline ends a line, wherever the bytes are cut", () => {
  const text = "a\u2028b\u2029c\r\n\n\u{1F30D}\n";
  for (const size of [1, 2, 3, 100]) {
    const splitter = new LineSplitter(100);
    const lines: string[] = [];
    const whole = bytes(text);
    for (let at = 0; at < whole.length; at += size) lines.push(...splitter.push(whole.subarray(at, at + size)));

    assert.deepEqual(lines, ["a\u2028b\u2029c\r", "", "\u{1F30D}"]);
  }
});

test("a line that is too long or not UTF-8 is refused", () => {
  assert.throws(() => new LineSplitter(3).push(bytes("abcd")), LineError);
  assert.throws(() => new LineSplitter(9).push(Uint8Array.of(0xff, 0x0a)), LineError);
});

/** A "makai" that is a Node program. */
const program = (source: string) => createMakaiClient({ command: process.execPath, args: ["-e", source] });
const READY = 'console.log(JSON.stringify({type:"ready",protocol_version:"1"}));';

const BAD_PROGRAMS: Record<string, [string, RegExp]> = {
  "ends before it is ready": [
    'console.error("no model here"); process.exit(3)',
    /ended \(exit code 3\)\nno model here$/,
  ],
  "greets with something else": ['console.log("hello")', /not the protocol: not JSON: hello/],
  "speaks another version": ['console.log(\'{"type":"ready","protocol_version":"2"}\')', /speaks version 2/],
};
for (const [name, [source, message]] of Object.entries(BAD_PROGRAMS)) {
  test(`a program that ${name} is reported`, async () => {
    const error = await failureOf(program(source));

    assert.equal(facts(error)["kind"], "transport_error");
    assert.match(String(facts(error)["message"]), message);
  });
}

test("a program that does not exist is reported with what to do", async () => {
  const error = await failureOf(createMakaiClient({ command: "makai-that-does-not-exist" }));

  assert.equal(facts(error)["kind"], "transport_error");
  assert.match(String(facts(error)["message"]), /could not be started; is makai installed/);
});

test("a program that dies in the middle fails the request with what it last said", async () => {
  const client = await program(
    `${READY} process.stdin.once("data", () => { console.error("out of memory"); process.exit(9) })`,
  );
  const error = await failureOf(client.models.list());
  await client.close();

  assert.equal(facts(error)["kind"], "transport_error");
  assert.match(String(facts(error)["message"]), /ended \(exit code 9\)\nout of memory$/);
});

test("a program that writes something that is not the protocol fails the request", async () => {
  const client = await program(`${READY} process.stdin.once("data", () => console.log("debug"))`);
  const error = await failureOf(client.models.list());
  await client.close();

  assert.match(String(facts(error)["message"]), /broke the protocol: not JSON: debug/);
});

test("environment and working directory reach the program", async () => {
  const client = await createMakaiClient({
    command: process.execPath,
    args: [
      "-e",
      `${READY} process.stdin.once("data", () => { console.error(process.env.GREETING, process.cwd()); process.exit() })`,
    ],
    env: { GREETING: "hello" },
    cwd: "/",
  });

  assert.match(String(facts(await failureOf(client.models.list()))["message"]), /hello \/$/);
  await client.close();
});

test("an address or token that cannot be right is refused before anything is sent", async () => {
  const messages = await Promise.all(
    [{ url: "http://localhost/" }, { url: "ws://localhost/", token: "a b" }].map(
      async (options) => facts(await failureOf(createMakaiClient(options)))["message"],
    ),
  );

  assert.deepEqual(messages, [
    "the address of a server begins with ws:// or wss://",
    "the token has a character that no makai token has",
  ]);
});

/** A standard WebSocket whose events the test fires. */
class FakeWebSocket implements WebSocketLike {
  static last: FakeWebSocket;
  protocol = "makai.v1";
  onopen: ((event: object) => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onerror: ((event: object) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  readonly sent: string[] = [];
  constructor(
    readonly url: string,
    readonly protocols: string[],
  ) {
    FakeWebSocket.last = this;
    queueMicrotask(() => this.begin());
  }
  begin(): void {
    this.onopen?.({});
  }
  send(text: string): void {
    this.sent.push(text);
  }
  close(code = 1005): void {
    this.onclose?.({ code, reason: "" });
  }
}

test("a WebSocket of the caller's is used, with the token as a second subprotocol", async () => {
  const client = await createMakaiClient({ url: "ws://h/v1/makai", token: "T", WebSocket: FakeWebSocket });
  const { url, protocols } = FakeWebSocket.last;
  await client.close();

  assert.deepEqual([url, protocols], ["ws://h/v1/makai", ["makai.v1", "makai.token.T"]]);
});

test("an address without a path is that of the protocol", async () => {
  const seen: string[] = [];
  for (const url of ["ws://h:1", "wss://h/", "ws://h?a=b", "ws://h/other", "ws://h/other/?a=/"]) {
    await (await createMakaiClient({ url, WebSocket: FakeWebSocket })).close();
    seen.push(FakeWebSocket.last.url);
  }

  assert.deepEqual(seen, [
    "ws://h:1/v1/makai",
    "wss://h/v1/makai",
    "ws://h/v1/makai?a=b",
    "ws://h/other",
    "ws://h/other/?a=/",
  ]);
});

test("a server that chose no subprotocol of ours is refused", async () => {
  class Other extends FakeWebSocket {
    override protocol = "";
  }
  const error = await failureOf(createMakaiClient({ url: "ws://h/", WebSocket: Other }));

  assert.match(String(facts(error)["message"]), /does not speak makai\.v1/);
});

test("a refused connection is reported at once, though no close event follows", async () => {
  class Refused extends FakeWebSocket {
    override begin(): void {
      this.onerror?.({ message: "HTTP 401" });
    }
    override close(): void {}
  }
  const error = await failureOf(createMakaiClient({ url: "ws://h/", WebSocket: Refused }));

  assert.equal(facts(error)["message"], "could not connect to ws://h/v1/makai: HTTP 401");
});

test("a binary message, and a close by the server, end the connection", async () => {
  for (const [act, message] of [
    [() => FakeWebSocket.last.onmessage?.({ data: new Uint8Array(1) }), /not text/],
    [() => FakeWebSocket.last.onclose?.({ code: 1009, reason: "too big" }), /closed the connection \(1009 too big\)/],
  ] as const) {
    const client = await createMakaiClient({ url: "ws://h/", WebSocket: FakeWebSocket });
    const failure = failureOf(client.models.list());
    act();

    assert.match(String(facts(await failure)["message"]), message);
  }
});

test("the browser's own WebSocket type fits", () => {
  type Standard = typeof globalThis extends { WebSocket: infer T } ? T : WebSocketConstructor;
  const fits: [Standard] extends [WebSocketConstructor] ? true : false = true;

  assert.ok(fits);
});
