/** The WebSocket client for Node 20, against a server that is made of bytes. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { test } from "node:test";

import { NodeWebSocket } from "../src/transports/node_websocket.js";
import { closePayload, encodeFrame, FrameDecoder, FrameError, OPCODE } from "../src/transports/ws_frames.js";

const text = (value: string): Uint8Array => new TextEncoder().encode(value);

/** A frame as a server sends it: not masked. */
function serverFrame(opcode: number, payload: Uint8Array, final = true): Buffer {
  const length = payload.length;
  const header = Buffer.alloc(length < 126 ? 2 : length < 65536 ? 4 : 10);
  header[0] = (final ? 0x80 : 0) | opcode;
  header[1] = length < 126 ? length : length < 65536 ? 126 : 127;
  if (header.length === 4) header.writeUInt16BE(length, 2);
  if (header.length === 10) header.writeBigUInt64BE(BigInt(length), 2);
  return Buffer.concat([header, payload]);
}

/** Undoes the client's masking, so that the decoder for the client's side can read it. */
function unmasked(frame: Uint8Array): Buffer {
  const short = frame[1]! & 0x7f;
  const at = 2 + (short === 126 ? 2 : short === 127 ? 8 : 0);
  const mask = frame.subarray(at, at + 4);
  const payload = frame.subarray(at + 4).map((byte, index) => byte ^ mask[index & 3]!);
  return serverFrame(frame[0]! & 0x0f, payload);
}

test("messages of every length survive the way through bytes cut anywhere", () => {
  for (const length of [0, 1, 125, 126, 65_535, 65_536]) {
    const payload = Uint8Array.from({ length }, (_, index) => index);
    const frame = unmasked(encodeFrame(OPCODE.binary, payload));
    for (const size of [1, 7, 70_000]) {
      if (size === 1 && length > 1000) continue;
      const decoder = new FrameDecoder(100_000);
      const messages = [];
      for (let at = 0; at < frame.length; at += size) messages.push(...decoder.push(frame.subarray(at, at + size)));

      assert.equal(messages.length, 1);
      assert.deepEqual(Buffer.from(messages[0]!.payload), Buffer.from(payload));
    }
  }
});

test("a fragmented message is joined, with a ping in its middle", () => {
  const wire = Buffer.concat([
    serverFrame(OPCODE.text, text("Hel"), false),
    serverFrame(OPCODE.ping, text("p")),
    serverFrame(OPCODE.continuation, text(""), false),
    serverFrame(OPCODE.continuation, text("lo")),
  ]);
  const messages = new FrameDecoder(100)
    .push(wire)
    .map(({ opcode, payload }) => [opcode, Buffer.from(payload).toString()]);

  assert.deepEqual(messages, [
    [OPCODE.ping, "p"],
    [OPCODE.text, "Hello"],
  ]);
});

const BAD_FRAMES: Record<string, [Uint8Array, number]> = {
  "a reserved bit": [Uint8Array.of(0xc1, 0), 1002],
  "a mask": [encodeFrame(OPCODE.text, text("x")), 1002],
  "an unknown opcode": [serverFrame(3, text("x")), 1002],
  "an unknown control opcode": [serverFrame(0xb, text("x")), 1002],
  "a fragmented ping": [serverFrame(OPCODE.ping, text("x"), false), 1002],
  "a long ping": [serverFrame(OPCODE.ping, new Uint8Array(126)), 1002],
  "a continuation of nothing": [serverFrame(OPCODE.continuation, text("x")), 1002],
  "a second start": [
    Buffer.concat([serverFrame(OPCODE.text, text("x"), false), serverFrame(OPCODE.text, text("y"))]),
    1002,
  ],
  "too large a size, before its bytes are there": [serverFrame(OPCODE.text, new Uint8Array(101)).subarray(0, 4), 1009],
  "too large a sum": [
    Buffer.concat([
      serverFrame(OPCODE.text, new Uint8Array(60), false),
      serverFrame(OPCODE.continuation, new Uint8Array(60)),
    ]),
    1009,
  ],
};
for (const [name, [wire, code]] of Object.entries(BAD_FRAMES)) {
  test(`a frame with ${name} is answered with ${code}`, () => {
    assert.throws(
      () => new FrameDecoder(100).push(wire),
      (error) => error instanceof FrameError && error.closeCode === code,
    );
  });
}

interface Peer {
  socket: Duplex;
  offered: string | undefined;
  /** The client's next frame. */
  read(): Promise<[number, string]>;
}

/** Connects a client to a server that accepts the handshake and leaves the rest to the test. */
async function connected(t: { after(end: () => void): void }, accept = (proof: string) => proof) {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => (server.close(), server.closeAllConnections()));
  const client = new NodeWebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}/v1/makai`, [
    "makai.v1",
    "makai.token.T",
  ]);
  const [request, socket] = (await once(server, "upgrade")) as [{ headers: Record<string, string> }, Duplex];
  t.after(() => socket.destroy());
  const proof = createHash("sha1")
    .update(`${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
    .digest("base64");
  socket.write(
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
      `Sec-WebSocket-Accept: ${accept(proof)}\r\nSec-WebSocket-Protocol: makai.v1\r\n\r\n`,
  );
  const peer: Peer = {
    socket,
    offered: request.headers["sec-websocket-protocol"],
    read: async () => {
      const [frame] = (await once(socket, "data")) as [Uint8Array];
      const [message] = new FrameDecoder(1000).push(unmasked(frame));
      return [message!.opcode, Buffer.from(message!.payload).toString("latin1")];
    },
  };
  return { client, peer };
}

function event<T>(client: NodeWebSocket, name: "onopen" | "onmessage" | "onerror" | "onclose"): Promise<T> {
  return new Promise((resolve) => Object.assign(client, { [name]: resolve }));
}

test("it connects, sends, receives, answers pings and closes", { timeout: 10_000 }, async (t) => {
  const { client, peer } = await connected(t);
  await event(client, "onopen");
  const message = event<{ data: unknown }>(client, "onmessage");
  client.send("grüße");
  const sent = await peer.read();
  peer.socket.write(serverFrame(OPCODE.ping, text("beat")));
  const pong = await peer.read();
  peer.socket.write(serverFrame(OPCODE.text, text("hello \u{1F30D}")));
  const received = await message;
  const closed = event<{ code: number; reason: string }>(client, "onclose");
  client.close(1000);
  const close = await peer.read();
  peer.socket.end(serverFrame(OPCODE.close, closePayload(1000, "bye")));

  assert.equal(peer.offered, "makai.v1, makai.token.T");
  assert.equal(client.protocol, "makai.v1");
  assert.deepEqual(sent, [OPCODE.text, Buffer.from("grüße").toString("latin1")]);
  assert.deepEqual(pong, [OPCODE.pong, "beat"]);
  assert.deepEqual(received, { data: "hello \u{1F30D}" });
  assert.deepEqual(close, [OPCODE.close, "\u0003\u00e8"]);
  assert.deepEqual(await closed, { code: 1000, reason: "bye" });
});

test("text that is not UTF-8 is answered with 1007", { timeout: 10_000 }, async (t) => {
  const { client, peer } = await connected(t);
  await event(client, "onopen");
  peer.socket.write(serverFrame(OPCODE.text, Uint8Array.of(0xff)));

  assert.deepEqual(await peer.read(), [OPCODE.close, "\u0003\u00ef"]);
});

test("a connection that breaks is an abnormal close", { timeout: 10_000 }, async (t) => {
  const { client, peer } = await connected(t);
  await event(client, "onopen");
  const closed = event(client, "onclose");
  peer.socket.destroy();

  assert.deepEqual(await closed, { code: 1006, reason: "" });
});

test("a server that did not read the handshake is refused", { timeout: 10_000 }, async (t) => {
  const { client } = await connected(t, () => "wrong");

  assert.deepEqual(await event(client, "onerror"), { message: "the server's handshake is not valid" });
});

test("a server that answers with plain HTTP, or not at all, is reported", { timeout: 10_000 }, async (t) => {
  const server = createServer((_, response) => response.writeHead(401).end());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const refused = await event(new NodeWebSocket(url, ["makai.v1"]), "onerror");
  server.close();
  await once(server, "close");
  const unreachable = await event<{ message: string }>(new NodeWebSocket(url, ["makai.v1"]), "onerror");

  assert.deepEqual(refused, { message: "the server answered HTTP 401" });
  assert.match(unreachable.message, /ECONNREFUSED/);
});
