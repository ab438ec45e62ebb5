/**
 * The envelope: the one thing that travels between client and server.
 *
 * In: an `Envelope`, or the text of a frame. Out: the other one.
 */

import { MakaiStreamError } from "./errors.js";

export const PROTOCOL_VERSION = 1;
/** The deepest JSON that a server reads. */
export const MAX_DEPTH = 128;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** An escaped NUL or lone surrogate in the output of `JSON.stringify`, which escapes no surrogate of a pair. */
const UNCARRIED = /(?<before>(?<!\\)(?:\\\\)*)\\u(?:0000|d[89a-f][0-9a-f]{2})/;

export type Payload = Record<string, unknown>;
/** Which of the three id fields an envelope is addressed by: provider and auth, agent, tools. */
export type ScopeKind = "stream_id" | "session_id" | "server_id";
const SCOPE_KINDS: readonly ScopeKind[] = ["stream_id", "session_id", "server_id"];

export interface Fragment {
  readonly index: number;
  readonly total: number;
  /** The message id of the whole envelope. */
  readonly id: string;
}

export interface Envelope {
  readonly type: string;
  readonly scopeKind: ScopeKind;
  readonly scopeId: string;
  readonly messageId: string;
  readonly sequence: number;
  readonly timestamp: number;
  readonly inReplyTo?: string;
  readonly encoding?: "proxy";
  readonly fragment?: Fragment;
  readonly payload: Payload;
}

/** A frame that is not an envelope: the server greets (stdio), or could not read something we sent. */
export type HostFrame =
  | { readonly type: "ready"; readonly protocolVersion: string }
  | { readonly type: "host_error"; readonly code: string; readonly message: string };

export class MalformedFrame extends Error {}

/** The frame of an envelope, keys in the order the protocol lists them. */
export function encodeEnvelope(envelope: Envelope): string {
  return JSON.stringify({
    type: envelope.type,
    [envelope.scopeKind]: envelope.scopeId,
    message_id: envelope.messageId,
    sequence: envelope.sequence,
    timestamp: envelope.timestamp,
    version: PROTOCOL_VERSION,
    in_reply_to: envelope.inReplyTo,
    encoding: envelope.encoding,
    fragment: envelope.fragment,
    payload: envelope.payload,
  });
}

/** The frame of an envelope that a server will read; throws `MakaiStreamError` for any other. */
export function encodeRequest(envelope: Envelope): string {
  let frame: string;
  try {
    frame = encodeEnvelope(envelope);
  } catch (error) {
    throw unsendable(`it is no JSON: ${String(error)}`, error);
  }
  if (frame.includes("\\u") && UNCARRIED.test(frame)) {
    throw unsendable("it holds a NUL character or a lone surrogate");
  }
  if (depthOf(frame) > MAX_DEPTH) throw unsendable(`it is nested more than ${MAX_DEPTH} levels deep`);
  return frame;
}

function unsendable(reason: string, cause?: unknown): MakaiStreamError {
  return new MakaiStreamError(`the request cannot be sent: ${reason}`, { kind: "unknown", code: "invalid_request", cause });
}

/** How deep JSON text is nested. */
function depthOf(json: string): number {
  let depth = 0;
  let deepest = 0;
  let quoted = false;
  for (let at = 0; at < json.length; at += 1) {
    const code = json.charCodeAt(at);
    if (quoted) {
      if (code === BACKSLASH) at += 1;
      else quoted = code !== QUOTE;
    } else if (code === QUOTE) quoted = true;
    else if (code === 0x5b || code === 0x7b) deepest = Math.max(deepest, (depth += 1));
    else if (code === 0x5d || code === 0x7d) depth -= 1;
  }
  return deepest;
}

/** The value with U+FFFD for every NUL and lone surrogate in its strings: neither can be sent. */
export function sanitize<T>(value: T): T {
  const json = JSON.stringify(value);
  if (json === undefined || !json.includes("\\u") || !UNCARRIED.test(json)) return value;
  return JSON.parse(json.replace(new RegExp(UNCARRIED, "g"), "$<before>\\ufffd")) as T;
}

/** What a frame says. Unknown fields are ignored; `MalformedFrame` if it breaks the format. */
export function decodeFrame(text: string): Envelope | HostFrame {
  const value = parseObject(text);
  const type = value["type"];
  if (typeof type !== "string") throw new MalformedFrame("a frame without a type");
  const kinds = SCOPE_KINDS.filter((kind) => typeof value[kind] === "string");
  if (kinds.length === 0) return decodeHostFrame(type, value);
  const [scopeKind] = kinds;
  if (scopeKind === undefined || kinds.length > 1) throw new MalformedFrame("an envelope with more than one scope id");
  if (value["version"] !== PROTOCOL_VERSION) throw new MalformedFrame("an envelope of another protocol version");
  return {
    type,
    scopeKind,
    scopeId: stringAt(value, scopeKind),
    messageId: stringAt(value, "message_id"),
    sequence: wholeAt(value, "sequence"),
    timestamp: wholeAt(value, "timestamp"),
    payload: objectAt(value, "payload"),
    ...(typeof value["in_reply_to"] === "string" && { inReplyTo: value["in_reply_to"] }),
    ...(value["encoding"] === "proxy" && { encoding: "proxy" }),
    ...(value["fragment"] !== undefined && { fragment: decodeFragment(objectAt(value, "fragment")) }),
  };
}

function decodeHostFrame(type: string, value: Payload): HostFrame {
  if (type === "ready") return { type, protocolVersion: stringAt(value, "protocol_version") };
  if (type === "error")
    return { type: "host_error", code: stringAt(value, "code"), message: stringAt(value, "message") };
  throw new MalformedFrame("an envelope without a scope id");
}

function decodeFragment(value: Payload): Fragment {
  return { index: wholeAt(value, "index"), total: wholeAt(value, "total"), id: stringAt(value, "id") };
}

/** JSON text of one object; `MalformedFrame` if it is anything else. */
export function parseObject(text: string): Payload {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new MalformedFrame(`not JSON: ${text.slice(0, 80)}`);
  }
  if (!isObject(value)) throw new MalformedFrame("not a JSON object");
  return value;
}

export function isObject(value: unknown): value is Payload {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function stringAt(value: Payload, key: string): string {
  const field = value[key];
  if (typeof field !== "string") throw new MalformedFrame(`"${key}" is not a string`);
  return field;
}

function wholeAt(value: Payload, key: string): number {
  const field = value[key];
  if (typeof field !== "number" || !Number.isSafeInteger(field) || field < 0) {
    throw new MalformedFrame(`"${key}" is not a whole number`);
  }
  return field;
}

function objectAt(value: Payload, key: string): Payload {
  const field = value[key];
  if (!isObject(field)) throw new MalformedFrame(`"${key}" is not an object`);
  return field;
}

/** A random UUID (version 4). `crypto.randomUUID` is missing on pages that are not served over TLS. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
