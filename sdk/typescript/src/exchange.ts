/**
 * One request as an async caller sees it: send, then take the answers one by one.
 *
 * In: envelopes of one scope from the connection. Out: promises of them. Knows about refusals (`nack`), deadlines
 * and `AbortSignal`.
 */

import type { Connection, Scope, ScopeListener } from "./connection.js";
import type { Envelope, Payload, ScopeKind } from "./envelope.js";
import { abortedError, failureFromCode, type MakaiAuthError, type MakaiStreamError, transportError } from "./errors.js";

/** A server answers every request with `ack` or `nack` at once. */
const FIRST_ANSWER_MS = 30_000;
/** What a caller who does not read may leave in our memory. */
export const MAX_QUEUED_CHARACTERS = 64 * 1024 * 1024;

export type Failure = MakaiAuthError | MakaiStreamError;

interface Waiting {
  resolve(envelope: Envelope): void;
  reject(error: Failure): void;
}

export class Exchange implements ScopeListener {
  readonly #scope: Scope;
  readonly #abort: () => void;
  #queue: { envelope: Envelope; size: number }[] = [];
  /** Where the queue begins: `shift` on a long array costs its length. */
  #head = 0;
  #queued = 0;
  #waiting: Waiting | undefined;
  #failure: Failure | undefined;
  #answered = false;
  /** Whether the server has answered anything: then it has read the request. */
  #heard = false;
  #ended = false;
  /** The payload of the `ack`. */
  acknowledged: Payload = {};

  constructor(
    private readonly connection: Connection,
    kind: ScopeKind,
    private readonly signal?: AbortSignal,
  ) {
    this.#abort = () => this.fail(abortedError(signal?.reason));
    this.#scope = connection.open(kind, this);
    signal?.addEventListener("abort", this.#abort, { once: true });
    if (signal?.aborted) this.#abort();
  }

  get id(): string {
    return this.#scope.id;
  }

  /** Send in this scope; nothing is sent for a request that has already failed here. */
  send(type: string, payload: Payload, encoding?: "proxy"): void {
    if (this.#failure === undefined && !this.#ended) this.#scope.send(type, payload, encoding);
  }

  /** The next envelope that is not an `ack`. Throws when the request was refused, aborted or lost. */
  async next(deadlineMs?: number): Promise<Envelope> {
    for (;;) {
      const envelope = await this.#take(this.#answered ? deadlineMs : FIRST_ANSWER_MS);
      this.#answered = true;
      if (envelope.type === "nack") {
        this.end();
        throw refusal(envelope.payload);
      }
      if (envelope.type !== "ack") return envelope;
      this.acknowledged = envelope.payload;
    }
  }

  /** Fail now, forgetting what is queued and hearing no more. */
  fail(error: Failure): void {
    this.#scope.release();
    this.#emptyQueue();
    this.lost(error);
  }

  /** The last envelope was taken: nothing is left to abort. */
  end(): void {
    this.#ended = true;
    this.#scope.release();
    this.signal?.removeEventListener("abort", this.#abort);
  }

  /** Leave; a stream the server may still be working on is aborted there. */
  leaveStream(): void {
    const running = !this.#ended && this.#scope.started && this.connection.alive;
    this.end();
    // An abort travels under an id of its own.
    if (running) this.connection.post("abort_request", { target_stream_id: this.id });
  }

  received(envelope: Envelope, size: number): void {
    this.#heard = true;
    const waiting = this.#waiting;
    if (waiting !== undefined) {
      this.#waiting = undefined;
      waiting.resolve(envelope);
      return;
    }
    this.#queue.push({ envelope, size });
    this.#queued += size;
    if (this.#queued > MAX_QUEUED_CHARACTERS) {
      this.fail(transportError("the answer was not read while it arrived", { code: "overloaded" }));
    }
  }

  unread(error: MakaiStreamError): void {
    if (!this.#heard && this.#scope.started) this.fail(error);
  }

  lost(error: Failure): void {
    this.#failure ??= error;
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.reject(this.#failure);
  }

  #emptyQueue(): void {
    this.#queue = [];
    this.#head = 0;
    this.#queued = 0;
  }

  #take(deadlineMs: number | undefined): Promise<Envelope> {
    const first = this.#queue[this.#head];
    if (first !== undefined) {
      this.#head += 1;
      this.#queued -= first.size;
      if (this.#head === this.#queue.length) this.#emptyQueue();
      return Promise.resolve(first.envelope);
    }
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => {
      const timer =
        deadlineMs === undefined
          ? undefined
          : setTimeout(() => this.fail(transportError("the server did not answer in time")), deadlineMs);
      this.#waiting = {
        resolve: (envelope) => (clearTimeout(timer), resolve(envelope)),
        reject: (error) => (clearTimeout(timer), reject(error)),
      };
    });
  }
}

/** The error a `nack` stands for. */
export function refusal(payload: Payload): Failure {
  const { reason, error_code: code } = payload;
  const message = typeof reason === "string" ? reason : "the server refused the request";
  return failureFromCode(typeof code === "string" ? code : undefined, message, failureDetails(payload));
}

/** The fields that `nack`, `stream_error` and `agent_error` share. */
export function failureDetails(payload: Payload): {
  provider_id?: string | undefined;
  retry_after_ms?: number | undefined;
  hint?: string | undefined;
} {
  const { provider_id, retry_after_ms, hint } = payload;
  return {
    provider_id: typeof provider_id === "string" ? provider_id : undefined,
    retry_after_ms: typeof retry_after_ms === "number" ? retry_after_ms : undefined,
    hint: typeof hint === "string" ? hint : undefined,
  };
}
