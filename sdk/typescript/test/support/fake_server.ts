/**
 * A server in memory whose every word a test chooses.
 *
 * In: frames of the client under test, and the test's replies. Out: the client's envelopes, decoded and in order,
 * and frames for the client with correct sequences.
 */

import { decodeFrame, encodeEnvelope, type Envelope, newId, type Payload } from "../../src/envelope.js";
import { clientOver } from "../../src/client.js";
import { transportError } from "../../src/errors.js";
import type { Channel, ChannelListener } from "../../src/transports/channel.js";
import type { MakaiClient, MakaiClientOptions } from "../../src/types.js";

export class FakeServer {
  /** Everything the client sent. */
  readonly received: Envelope[] = [];
  closed = false;
  #listener: ChannelListener | undefined;
  #sequences = new Map<string, number>();
  #taken = 0;
  #arrival: (() => void) | undefined;

  readonly open = async (listener: ChannelListener): Promise<Channel> => {
    this.#listener = listener;
    return {
      send: (frame) => this.#receive(frame),
      close: async () => {
        this.closed = true;
      },
    };
  };

  client(options?: MakaiClientOptions, now?: () => number): Promise<MakaiClient> {
    return clientOver(this.open, options, now);
  }

  /** The client's next envelope, which must be of this type. */
  async next(type: string): Promise<Envelope> {
    while (this.received.length <= this.#taken) await new Promise<void>((resolve) => (this.#arrival = resolve));
    const envelope = this.received[this.#taken]!;
    this.#taken += 1;
    if (envelope.type !== type) throw new Error(`expected ${type}, the client sent ${envelope.type}`);
    return envelope;
  }

  reply(request: Envelope, type: string, payload: Payload = {}): void {
    this.frame(encodeEnvelope({ ...this.#next(request), type, payload, inReplyTo: request.messageId }));
  }

  /** An envelope in the scope of a request that answers none. */
  say(request: Envelope, type: string, payload: Payload = {}): void {
    this.frame(encodeEnvelope({ ...this.#next(request), type, payload }));
  }

  /** The scope of this request is over; whatever comes in it next counts from 1. */
  beginAnew(request: Envelope): void {
    this.#sequences.delete(request.scopeId);
  }

  ack(request: Envelope): void {
    this.reply(request, "ack", { acknowledged_id: request.messageId });
  }

  nack(request: Envelope, code: string, reason: string, more: Payload = {}): void {
    this.reply(request, "nack", { rejected_id: request.messageId, reason, error_code: code, ...more });
  }

  frame(text: string): void {
    this.#listener?.frame(text);
  }

  /** The connection breaks. */
  drop(): void {
    this.#listener?.lost(transportError("the fake server hung up"));
  }

  #next(request: Envelope): Omit<Envelope, "type" | "payload"> {
    const sequence = (this.#sequences.get(request.scopeId) ?? 0) + 1;
    this.#sequences.set(request.scopeId, sequence);
    const { scopeKind, scopeId } = request;
    return { scopeKind, scopeId, messageId: newId(), sequence, timestamp: 1 };
  }

  #receive(frame: string): void {
    const envelope = decodeFrame(frame);
    if (!("payload" in envelope)) throw new Error(`not an envelope: ${frame}`);
    this.received.push(envelope);
    this.#arrival?.();
    this.#arrival = undefined;
  }
}

/** Everything an async iterable yields. */
export async function collect<T>(iterable: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of iterable) items.push(item);
  return items;
}

/** The error a promise ends in. */
export async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it did not fail");
}

/** What a test compares of an error. */
export function facts(error: unknown): Record<string, unknown> {
  const { name, kind, code, provider_id, message } = error as Record<string, unknown>;
  return { name, kind, code, provider_id, message };
}
