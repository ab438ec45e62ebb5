/**
 * WebSocket frames (RFC 6455), the client's side, without a socket.
 *
 * In: bytes as they arrive, messages to send. Out: whole messages, bytes to send. `FrameError` carries the close
 * code the RFC asks for.
 */

export const OPCODE = { continuation: 0x0, text: 0x1, binary: 0x2, close: 0x8, ping: 0x9, pong: 0xa } as const;

export interface Message {
  readonly opcode: number;
  readonly payload: Uint8Array;
}

export class FrameError extends Error {
  constructor(
    readonly closeCode: number,
    message: string,
  ) {
    super(message);
  }
}

const FIN = 0x80;
const RESERVED = 0x70;
const MASKED = 0x80;
const MAX_CONTROL = 125;

/** One unfragmented frame. Clients must mask what they send (RFC 6455 §5.3). */
export function encodeFrame(opcode: number, payload: Uint8Array): Uint8Array {
  const extended = payload.length < 126 ? 0 : payload.length < 0x10000 ? 2 : 8;
  const frame = new Uint8Array(2 + extended + 4 + payload.length);
  const view = new DataView(frame.buffer);
  frame[0] = FIN | opcode;
  frame[1] = MASKED | (extended === 0 ? payload.length : extended === 2 ? 126 : 127);
  if (extended === 2) view.setUint16(2, payload.length);
  if (extended === 8) view.setBigUint64(2, BigInt(payload.length));
  const mask = crypto.getRandomValues(frame.subarray(2 + extended, 6 + extended));
  const body = frame.subarray(6 + extended);
  for (let index = 0; index < payload.length; index += 1) body[index] = payload[index]! ^ mask[index & 3]!;
  return frame;
}

/** The payload of a close frame. */
export function closePayload(code: number, reason: string): Uint8Array {
  const text = new TextEncoder().encode(reason).subarray(0, MAX_CONTROL - 2);
  const payload = new Uint8Array(2 + text.length);
  new DataView(payload.buffer).setUint16(0, code);
  payload.set(text, 2);
  return payload;
}

interface Header {
  readonly final: boolean;
  readonly opcode: number;
  readonly headerLength: number;
  readonly length: number;
}

/** Puts messages together from bytes cut anywhere; holds at most `maxBytes` of one message. */
export class FrameDecoder {
  readonly #bytes = new ByteQueue();
  #message: { opcode: number; pieces: Uint8Array[]; length: number } | undefined;

  constructor(private readonly maxBytes: number) {}

  /** The messages these bytes complete, control frames included. */
  push(chunk: Uint8Array): Message[] {
    this.#bytes.push(chunk);
    const messages: Message[] = [];
    for (let header = this.#header(); header !== undefined; header = this.#header()) {
      if (this.#bytes.length < header.headerLength + header.length) break;
      this.#bytes.take(header.headerLength);
      const message = this.#frame(header, this.#bytes.take(header.length));
      if (message !== undefined) messages.push(message);
    }
    return messages;
  }

  #header(): Header | undefined {
    const start = this.#bytes.peek(2);
    if (start === undefined) return undefined;
    const [first = 0, second = 0] = start;
    if (first & RESERVED) throw new FrameError(1002, "a reserved bit is set");
    if (second & MASKED) throw new FrameError(1002, "a server must not mask");
    const short = second & 0x7f;
    const headerLength = 2 + (short === 126 ? 2 : short === 127 ? 8 : 0);
    const bytes = this.#bytes.peek(headerLength);
    if (bytes === undefined) return undefined;
    const header = {
      final: (first & FIN) !== 0,
      opcode: first & 0x0f,
      headerLength,
      length: payloadLength(bytes, short),
    };
    this.#check(header);
    return header;
  }

  #check({ final, opcode, length }: Header): void {
    if (opcode >= OPCODE.close) {
      if (!final || length > MAX_CONTROL || opcode > OPCODE.pong) throw new FrameError(1002, "a bad control frame");
      return;
    }
    if (opcode > OPCODE.binary) throw new FrameError(1002, "an unknown opcode");
    if ((opcode === OPCODE.continuation) !== (this.#message !== undefined)) {
      throw new FrameError(1002, "a frame out of order");
    }
    if (length + (this.#message?.length ?? 0) > this.maxBytes) throw new FrameError(1009, "a message is too large");
  }

  #frame({ final, opcode }: Header, payload: Uint8Array): Message | undefined {
    if (opcode >= OPCODE.close) return { opcode, payload };
    const message = this.#message ?? { opcode, pieces: [], length: 0 };
    message.pieces.push(payload);
    message.length += payload.length;
    this.#message = final ? undefined : message;
    return final ? { opcode: message.opcode, payload: concatenate(message.pieces, message.length) } : undefined;
  }
}

function payloadLength(header: Uint8Array, short: number): number {
  const view = new DataView(header.buffer, header.byteOffset, header.byteLength);
  if (short === 126) return view.getUint16(2);
  return short === 127 ? Number(view.getBigUint64(2)) : short;
}

/** Bytes in the chunks they came in: a large message is copied once, not once per chunk. */
class ByteQueue {
  #chunks: Uint8Array[] = [];
  length = 0;

  push(chunk: Uint8Array): void {
    if (chunk.length === 0) return;
    this.#chunks.push(chunk);
    this.length += chunk.length;
  }

  /** The first bytes, left in place; undefined if there are not so many. */
  peek(count: number): Uint8Array | undefined {
    if (this.length < count) return undefined;
    const first = this.#chunks[0];
    if (first !== undefined && first.length >= count) return first.subarray(0, count);
    const head = this.take(count);
    this.#chunks.unshift(head);
    this.length += count;
    return head;
  }

  take(count: number): Uint8Array {
    const taken: Uint8Array[] = [];
    let missing = count;
    let used = 0;
    for (const chunk of this.#chunks) {
      if (missing < chunk.length) break;
      taken.push(chunk);
      missing -= chunk.length;
      used += 1;
    }
    this.#chunks.splice(0, used);
    const next = this.#chunks[0];
    if (missing > 0 && next !== undefined) {
      taken.push(next.subarray(0, missing));
      this.#chunks[0] = next.subarray(missing);
    }
    this.length -= count;
    return concatenate(taken, count);
  }
}

function concatenate(pieces: readonly Uint8Array[], length: number): Uint8Array {
  const [only] = pieces;
  if (pieces.length === 1 && only !== undefined) return only;
  const whole = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
