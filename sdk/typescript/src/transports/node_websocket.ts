/**
 * A small WebSocket client for Node 20, which has no global one.
 *
 * In: an address and subprotocols. Out: the part of the standard WebSocket that `websocket.ts` uses. It does the
 * opening handshake over `node:http(s)` and moves bytes; frames are `ws_frames.ts`. No extensions are offered. It must
 * not know what messages mean.
 */

import { createHash, randomBytes } from "node:crypto";
import { type IncomingMessage, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import type { Duplex } from "node:stream";

import { CLOSE_MS, MAX_FRAME_BYTES } from "./channel.js";
import type { WebSocketLike } from "./websocket.js";
import { closePayload, encodeFrame, FrameDecoder, FrameError, type Message, OPCODE } from "./ws_frames.js";

/** The constant of RFC 6455 §1.3 by which a server proves that it read the handshake. */
const HANDSHAKE_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const NO_STATUS = 1005;
const ABNORMAL = 1006;

export class NodeWebSocket implements WebSocketLike {
  protocol = "";
  onopen: ((event: object) => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onerror: ((event: { message: string }) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  readonly #request;
  readonly #frames = new FrameDecoder(MAX_FRAME_BYTES);
  #socket: Duplex | undefined;
  #closing = false;
  #closed = false;
  #closeStatus = { code: ABNORMAL, reason: "" };

  constructor(url: string, protocols: string[]) {
    const address = new URL(url);
    const secure = address.protocol === "wss:";
    address.protocol = secure ? "https:" : "http:";
    const key = randomBytes(16).toString("base64");
    this.#request = (secure ? requestHttps : requestHttp)(address, {
      headers: {
        Connection: "Upgrade",
        Upgrade: "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key,
        "Sec-WebSocket-Protocol": protocols.join(", "),
      },
    });
    this.#request.once("upgrade", (response, socket, head) => this.#upgraded(response, socket, head, key));
    this.#request.once("response", (response) => this.#refused(`the server answered HTTP ${response.statusCode}`));
    this.#request.once("error", (error) => this.#refused(error.message));
    this.#request.end();
  }

  send(text: string): void {
    this.#write(OPCODE.text, new TextEncoder().encode(text));
  }

  close(code = 1000, reason = ""): void {
    if (this.#closing || this.#closed) return;
    this.#closing = true;
    if (this.#socket === undefined) return this.#refused("closed before it was open");
    this.#write(OPCODE.close, closePayload(code, reason));
    setTimeout(() => this.#socket?.destroy(), CLOSE_MS).unref();
  }

  #upgraded(response: IncomingMessage, socket: Duplex, head: Uint8Array, key: string): void {
    const proof = createHash("sha1")
      .update(key + HANDSHAKE_GUID)
      .digest("base64");
    socket.on("error", (error) => this.onerror?.({ message: error.message }));
    socket.once("close", () => this.#finish());
    if (this.#closing || response.headers["sec-websocket-accept"] !== proof) {
      socket.destroy();
      return this.#refused("the server's handshake is not valid");
    }
    this.#socket = socket;
    this.protocol = String(response.headers["sec-websocket-protocol"] ?? "");
    this.onopen?.({});
    socket.on("data", (chunk: Uint8Array) => this.#read(chunk));
    socket.once("end", () => socket.end());
    this.#read(head);
  }

  #refused(message: string): void {
    if (this.#closed) return;
    this.#request.destroy();
    this.onerror?.({ message });
    this.#finish();
  }

  #read(chunk: Uint8Array): void {
    try {
      for (const message of this.#frames.push(chunk)) this.#message(message);
    } catch (error) {
      const code = error instanceof FrameError ? error.closeCode : 1007;
      this.onerror?.({ message: error instanceof Error ? error.message : String(error) });
      this.#end(code);
    }
  }

  #message({ opcode, payload }: Message): void {
    if (this.#closed) return;
    if (opcode === OPCODE.ping) this.#write(OPCODE.pong, payload);
    if (opcode === OPCODE.close) this.#closeReceived(payload);
    if (opcode >= OPCODE.close) return;
    const data = opcode === OPCODE.text ? decode(payload) : payload;
    this.onmessage?.({ data });
  }

  #closeReceived(payload: Uint8Array): void {
    const code = payload.length < 2 ? NO_STATUS : new DataView(payload.buffer, payload.byteOffset).getUint16(0);
    this.#closeStatus = { code, reason: decode(payload.subarray(2)) };
    this.#end(code === NO_STATUS ? 1000 : code);
  }

  /** Send our close frame, if none was sent, and hang up. */
  #end(code: number): void {
    if (!this.#closing) this.#write(OPCODE.close, closePayload(code, ""));
    this.#closing = true;
    this.#socket?.end();
    setTimeout(() => this.#socket?.destroy(), CLOSE_MS).unref();
  }

  #write(opcode: number, payload: Uint8Array): void {
    if (this.#socket?.writable) this.#socket.write(encodeFrame(opcode, payload));
  }

  #finish(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.onclose?.(this.#closeStatus);
  }
}

/** Throws on bytes that are not UTF-8, which RFC 6455 §8.1 answers with 1007. */
function decode(payload: Uint8Array): string {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(payload);
}
