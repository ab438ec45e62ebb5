/**
 * Envelopes that are too large for one frame.
 *
 * In: a large envelope, or fragments as they arrive. Out: its fragments, or the whole envelope. A fragment's payload
 * is `{data}`: base64 of a slice of the whole payload's UTF-8 JSON. What arrives is bounded in size, count and time,
 * whatever the sender claims.
 */

import { type Envelope, MalformedFrame, newId, parseObject } from "./envelope.js";
import { MakaiStreamError } from "./errors.js";

export interface FragmentLimits {
  readonly frameBytes: number;
  readonly messageBytes: number;
  readonly fragments: number;
  readonly unfinished: number;
  readonly seconds: number;
}

const MIB = 1024 * 1024;
export const DEFAULT_LIMITS: FragmentLimits = {
  frameBytes: 16 * MIB,
  messageBytes: 64 * MIB,
  fragments: 1024,
  unfinished: 8,
  seconds: 30,
};
/** Room for everything in a fragment's envelope that is not its data. */
const HEADER_BYTES = 1024;
const CODE_UNITS_PER_CALL = 0x2000;

/** Whether an encoded frame may be sent as it is. A UTF-16 code unit is at most three bytes of UTF-8. */
export function fitsInFrame(frame: string, limits: FragmentLimits): boolean {
  return frame.length * 3 <= limits.frameBytes || new TextEncoder().encode(frame).length <= limits.frameBytes;
}

/** The envelope as fragments; the first has the envelope's sequence, the others the numbers after it. */
export function splitEnvelope(envelope: Envelope, limits: FragmentLimits): Envelope[] {
  const bytes = new TextEncoder().encode(JSON.stringify(envelope.payload));
  const slice = Math.floor(((limits.frameBytes - HEADER_BYTES) * 3) / 4 / 3) * 3;
  const total = Math.ceil(bytes.length / slice);
  if (bytes.length > limits.messageBytes || total > limits.fragments) {
    throw new MakaiStreamError(`a message of ${bytes.length} bytes is larger than the protocol allows`, {
      kind: "unknown",
      code: "invalid_request",
    });
  }
  return Array.from({ length: total }, (_, index) => ({
    ...envelope,
    messageId: newId(),
    sequence: envelope.sequence + index,
    fragment: { index, total, id: envelope.messageId },
    payload: { data: toBase64(bytes.subarray(index * slice, (index + 1) * slice)) },
  }));
}

interface Unfinished {
  readonly first: Envelope;
  readonly total: number;
  readonly slices: Uint8Array[];
  readonly startedAt: number;
  bytes: number;
}

/** Puts fragments together again. Within a scope they arrive in order, because their sequences do. */
export class Reassembly {
  readonly #unfinished = new Map<string, Unfinished>();

  constructor(
    private readonly limits: FragmentLimits,
    private readonly now: () => number,
  ) {}

  /** The whole envelope when this was its last fragment. `MalformedFrame` when the sender broke a rule or a bound. */
  add(envelope: Envelope): Envelope | undefined {
    const fragment = envelope.fragment;
    if (fragment === undefined) return envelope;
    this.#forgetOld();
    const entry = this.#unfinished.get(fragment.id) ?? this.#begin(envelope, fragment.id, fragment.total);
    try {
      this.#append(entry, envelope);
    } catch (error) {
      this.#unfinished.delete(fragment.id);
      throw error;
    }
    if (entry.slices.length < entry.total) return undefined;
    this.#unfinished.delete(fragment.id);
    return wholeEnvelope(entry, fragment.id);
  }

  #begin(first: Envelope, id: string, total: number): Unfinished {
    if (total < 1 || total > this.limits.fragments) throw new MalformedFrame("a message of too many fragments");
    if (this.#unfinished.size >= this.limits.unfinished) throw new MalformedFrame("too many unfinished messages");
    const entry = { first, total, slices: [], startedAt: this.now(), bytes: 0 };
    this.#unfinished.set(id, entry);
    return entry;
  }

  #append(entry: Unfinished, envelope: Envelope): void {
    const { fragment, payload } = envelope;
    const same =
      fragment?.index === entry.slices.length &&
      fragment.total === entry.total &&
      envelope.type === entry.first.type &&
      envelope.scopeId === entry.first.scopeId;
    if (!same) throw new MalformedFrame("a fragment that does not continue its message");
    const slice = fromBase64(payload["data"]);
    entry.bytes += slice.length;
    if (entry.bytes > this.limits.messageBytes) throw new MalformedFrame("a fragmented message that is too large");
    entry.slices.push(slice);
  }

  #forgetOld(): void {
    const oldest = this.now() - this.limits.seconds * 1000;
    for (const [id, entry] of this.#unfinished) {
      if (entry.startedAt < oldest) this.#unfinished.delete(id);
    }
  }
}

function wholeEnvelope(entry: Unfinished, id: string): Envelope {
  const bytes = new Uint8Array(entry.bytes);
  let at = 0;
  for (const slice of entry.slices) {
    bytes.set(slice, at);
    at += slice.length;
  }
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new MalformedFrame("a fragmented message that is not UTF-8");
  }
  const { fragment: _, ...first } = entry.first;
  return { ...first, messageId: id, payload: parseObject(text) };
}

function toBase64(bytes: Uint8Array): string {
  let binary = "";
  for (let at = 0; at < bytes.length; at += CODE_UNITS_PER_CALL) {
    binary += String.fromCharCode(...bytes.subarray(at, at + CODE_UNITS_PER_CALL));
  }
  return btoa(binary);
}

function fromBase64(data: unknown): Uint8Array {
  if (typeof data !== "string") throw new MalformedFrame("a fragment without data");
  try {
    return Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  } catch {
    throw new MalformedFrame("a fragment whose data is not base64");
  }
}
