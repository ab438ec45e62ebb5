/**
 * The client's half of the protocol, without I/O.
 *
 * In: frames that arrived (`receive`), the news that none will follow (`fail`), and what scopes send. Out: frames
 * for `write`, and envelopes for the listener of the scope they belong to.
 */

import {
  decodeFrame,
  encodeEnvelope,
  encodeRequest,
  type Envelope,
  MalformedFrame,
  newId,
  type Payload,
  type ScopeKind,
} from "./envelope.js";
import { type MakaiStreamError, transportError } from "./errors.js";
import { DEFAULT_LIMITS, fitsInFrame, type FragmentLimits, Reassembly, splitEnvelope } from "./fragments.js";

export interface ScopeListener {
  /** An envelope of this scope, whole and in order. `size` is the length of the frame that completed it. */
  received(envelope: Envelope, size: number): void;
  /** The server could not read some message of this client, and did not say which: fail what it has not answered. */
  unread(error: MakaiStreamError): void;
  /** Nothing will come any more in this scope. */
  lost(error: MakaiStreamError): void;
}

export interface ConnectionEnds {
  /** Send a frame. May throw; that ends the connection. */
  readonly write: (frame: string) => void;
  /** The connection failed; called once. */
  readonly failed: () => void;
}

/** One conversation on the connection: a request and everything that answers it. */
export class Scope {
  #sent = 0;
  #expected = 1;

  constructor(
    private readonly connection: Connection,
    readonly kind: ScopeKind,
    private readonly listener: ScopeListener,
    readonly id: string = newId(),
  ) {}

  /** Whether the server may have heard of this scope. */
  get started(): boolean {
    return this.#sent > 0;
  }

  /**
   * Send the scope's next envelope and return its message id. Nothing happens on a connection that has failed: the
   * listener knows. Throws for what no server would read; then nothing was sent, and nothing is counted.
   */
  send(type: string, payload: Payload, encoding?: "proxy"): string {
    const messageId = newId();
    this.#sent += this.connection.write({
      type,
      scopeKind: this.kind,
      scopeId: this.id,
      messageId,
      sequence: this.#sent + 1,
      timestamp: this.connection.now(),
      payload,
      ...(encoding && { encoding }),
    });
    return messageId;
  }

  /** Stop listening. What the server still sends in this scope is ignored. */
  release(): void {
    this.connection.forget(this);
  }

  /** Whether this frame is the next of the scope; a repeated one is dropped, a missing one ends the scope. */
  accepts(sequence: number): boolean {
    if (sequence < this.#expected) return false;
    if (sequence > this.#expected) {
      this.lose(transportError("the server skipped a message of this request", { code: "sequence_gap" }));
      return false;
    }
    this.#expected += 1;
    return true;
  }

  deliver(envelope: Envelope, size: number): void {
    this.listener.received(envelope, size);
  }

  unread(error: MakaiStreamError): void {
    this.listener.unread(error);
  }

  lose(error: MakaiStreamError): void {
    this.release();
    this.listener.lost(error);
  }
}

export class Connection {
  readonly #scopes = new Map<string, Scope>();
  readonly #reassembly: Reassembly;
  #failure: MakaiStreamError | undefined;

  constructor(
    private readonly ends: ConnectionEnds,
    readonly now: () => number = Date.now,
    private readonly limits: FragmentLimits = DEFAULT_LIMITS,
  ) {
    this.#reassembly = new Reassembly(limits, now);
  }

  get alive(): boolean {
    return this.#failure === undefined;
  }

  /** Why nothing is sent any more. */
  get failure(): MakaiStreamError | undefined {
    return this.#failure;
  }

  /** Begin a scope: a new one, or that of a session or tool server, of which there may be one on this connection. */
  open(kind: ScopeKind, listener: ScopeListener, id?: string): Scope {
    const scope = new Scope(this, kind, listener, id);
    if (this.#failure === undefined) this.#scopes.set(keyOf(scope.kind, scope.id), scope);
    else listener.lost(this.#failure);
    return scope;
  }

  /** Send an envelope under an id of its own without waiting for its answer. */
  post(type: string, payload: Payload): void {
    const ignore = (): void => undefined;
    const scope = this.open("stream_id", { received: ignore, unread: ignore, lost: ignore });
    scope.send(type, payload);
    scope.release();
  }

  receive(frame: string): void {
    if (this.#failure !== undefined) return;
    try {
      this.#receive(frame);
    } catch (error) {
      if (!(error instanceof MalformedFrame)) throw error;
      this.fail(transportError(`the server broke the protocol: ${error.message}`, { code: "parse_error" }));
    }
  }

  #receive(frame: string): void {
    const inbound = decodeFrame(frame);
    if (!("payload" in inbound)) {
      if (inbound.type === "ready") return;
      // The server could not tell which request this is about, so neither can this client.
      const reason = `the server could not read a message of this client: ${inbound.message} (${inbound.code})`;
      const error = transportError(reason, { code: "parse_error" });
      for (const scope of [...this.#scopes.values()]) scope.unread(error);
      return;
    }
    const scope = this.#scopes.get(keyOf(inbound.scopeKind, inbound.scopeId));
    if (scope === undefined || !scope.accepts(inbound.sequence)) return;
    const whole = this.#reassembly.add(inbound);
    if (whole !== undefined) scope.deliver(whole, frame.length);
  }

  /** End every scope; used for a lost transport, a broken protocol and `close`. Only the first call counts. */
  fail(error: MakaiStreamError): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    for (const scope of [...this.#scopes.values()]) scope.lose(error);
    this.ends.failed();
  }

  /** Send an envelope; returns how many sequence numbers it took. Throws for what no server would read. */
  write(envelope: Envelope): number {
    if (this.#failure !== undefined) return 0;
    const frame = encodeRequest(envelope);
    const parts = fitsInFrame(frame, this.limits)
      ? [frame]
      : splitEnvelope(envelope, this.limits).map((part) => encodeEnvelope(part));
    try {
      parts.forEach((part) => this.ends.write(part));
    } catch (error) {
      this.fail(transportError("the connection does not take messages any more", { cause: error }));
    }
    return parts.length;
  }

  forget(scope: Scope): void {
    this.#scopes.delete(keyOf(scope.kind, scope.id));
  }
}

/** A session and a tool server may have the same id. */
function keyOf(kind: ScopeKind, id: string): string {
  return `${kind} ${id}`;
}
