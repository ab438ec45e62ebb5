/**
 * A session as one caller hears it: its events in order, and the end of the caller's own run.
 *
 * In: envelopes of the session as they arrive. Out: `AgentStreamEvent`s as they are asked for, and calls of the
 * caller's own functions. A run has exactly one terminal event, the last; it waits for the run's settlement, which
 * says more about the same end.
 */

import { stringOr, usageFrom, warningsFrom } from "./answer.js";
import type { Callbacks } from "./callbacks.js";
import { type Envelope, isObject, type Payload } from "./envelope.js";
import { MakaiAuthError, MakaiStreamError, transportError } from "./errors.js";
import { type Failure, MAX_QUEUED_CHARACTERS } from "./exchange.js";
import { type Attached, runFailure, type SessionLink } from "./session_link.js";
import type { AgentRunResponse, AgentStreamEvent, ContentPart } from "./types.js";

/** An event, and the cursor it leaves the caller at. */
export interface Heard {
  readonly event: AgentStreamEvent;
  readonly eventId: number | undefined;
}

/** The fields of each event; what a later version adds is not for callers of this one. */
const FIELDS: Readonly<Record<string, readonly string[]>> = {
  agent_start: ["session_id"],
  agent_end: ["stop_reason", "usage"],
  turn_start: [],
  turn_end: ["stop_reason"],
  message_start: ["provider_id", "api", "model_id"],
  message_end: ["usage", "stop_reason"],
  text_delta: ["delta"],
  thinking_delta: ["delta"],
  tool_call: ["name", "arguments_json", "tool_call_id"],
  tool_execution_start: ["tool_call_id", "tool_name"],
  tool_execution_end: ["tool_call_id", "is_error"],
  error: ["message", "code"],
};

/** What one caller hears. For one reader at a time. */
export class AgentView implements Attached {
  #events: { heard: Heard; size: number }[] = [];
  /** Where the queue begins: `shift` on a long array costs its length. */
  #head = 0;
  #held = 0;
  #terminal: Heard | undefined;
  #wake: (() => void) | undefined;
  #failure: Failure | undefined;
  #over = false;

  constructor(
    protected readonly link: SessionLink,
    protected readonly callbacks: Callbacks,
    readonly sessionId: string,
  ) {}

  /** The next event, or undefined after the last one. Throws what is no event: a needed login, a lost connection. */
  async next(): Promise<Heard | undefined> {
    for (;;) {
      const first = this.#events[this.#head];
      if (first !== undefined) {
        this.#head += 1;
        this.#held -= first.size;
        if (this.#head === this.#events.length) this.#empty();
        return first.heard;
      }
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#over) return undefined;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  /** Stop listening; the session continues. May be repeated. */
  leave(): void {
    this.finish(false);
  }

  /** End with a failure of our own, forgetting what is queued. */
  fail(error: Failure, abort = false): void {
    if (this.#over) return;
    this.#empty();
    this.#failure = error;
    this.finish(abort);
  }

  take(envelope: Envelope, size: number): void {
    if (this.#over) return;
    const { type, payload } = envelope;
    const post = this.link.post.bind(this.link);
    switch (type) {
      case "agent_event":
        return this.#takeEvent(payload, size);
      case "agent_result":
      case "agent_error":
        this.callbacks.runIsOver(payload["run_id"] ?? "");
        return this.settle(envelope);
      case "tool_execute":
        return this.callbacks.execute(payload, post);
      case "permission_request":
        return this.callbacks.ask(payload, post);
      case "permission_settled":
        return this.callbacks.isDecided(payload["tool_call_id"]);
    }
  }

  released(envelope: Envelope): void {
    if (this.#over) return;
    if (envelope.inReplyTo === undefined) {
      const reason = stringOr(envelope.payload["reason"], "the session is gone");
      this.#failure = new MakaiStreamError(reason, { kind: "unknown", code: "session_closed" });
    }
    this.finish(false);
  }

  lost(error: MakaiStreamError): void {
    if (this.#over) return;
    const hint = `The session ${this.sessionId} continues: client.agent.attach follows it.`;
    this.#failure =
      error.kind === "transport_error"
        ? transportError(`${error.message}. ${hint}`, { code: error.code, hint, cause: error })
        : error;
    this.finish(false);
  }

  /** Whether the caller receives this event. */
  protected isForUs(_type: string, _runId: unknown): boolean {
    return true;
  }

  /** A run has ended: its terminal event can be told. */
  protected settle({ type, payload }: Envelope): void {
    const terminal = this.#terminal;
    this.#terminal = undefined;
    if (type === "agent_error") {
      const { message, code } = runFailure(payload);
      const event: AgentStreamEvent = { type: "error", message, ...(code !== undefined && { code }) };
      this.#put({ event, eventId: terminal?.eventId }, 0);
    } else if (terminal !== undefined) this.#put(terminal, 0);
  }

  /** Nothing more is heard; what is here can still be read. */
  protected finish(abort: boolean): void {
    if (this.#over) return;
    this.#over = true;
    this.callbacks.runIsOver();
    this.link.leave(this, abort);
    this.#notify();
  }

  #takeEvent(payload: Payload, size: number): void {
    const { event, run_id, event_id } = payload;
    if (!isObject(event) || typeof event["type"] !== "string") {
      const message = "the server broke the protocol: a malformed agent_event";
      return this.fail(transportError(message, { code: "parse_error" }));
    }
    const { type } = event;
    const fields = FIELDS[type];
    if (fields === undefined) return; // of a later version
    if (type === "tool_execution_end") this.callbacks.callIsOver(event["tool_call_id"]);
    if (!this.isForUs(type, run_id)) return;
    const known = fields.flatMap((name) => (event[name] === undefined ? [] : [[name, event[name]]]));
    const heard: Heard = {
      event: { type, ...Object.fromEntries(known) } as AgentStreamEvent,
      eventId: typeof event_id === "number" ? event_id : undefined,
    };
    if (type === "agent_end" || type === "error") this.#terminal = heard;
    else this.#put(heard, size);
  }

  #put(heard: Heard, size: number): void {
    this.#events.push({ heard, size });
    this.#held += size;
    if (this.#held > MAX_QUEUED_CHARACTERS) {
      this.fail(transportError("the events were not read while they arrived", { code: "overloaded" }));
    } else this.#notify();
  }

  #empty(): void {
    this.#events = [];
    this.#head = 0;
    this.#held = 0;
  }

  #notify(): void {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  }
}

/** The run that a message of the caller's started. It is over when the run is. */
export class RunView extends AgentView {
  response: AgentRunResponse | undefined;
  /** Why the run did not succeed; its terminal event says the same. */
  error: Failure | undefined;
  #runId: unknown;
  #messageId: string | undefined;

  /** The session has taken the caller's words under this id. What comes next is their run. */
  said(messageId: string): void {
    this.#messageId = messageId;
  }

  /** The caller wants no more: stop the run. May be repeated. */
  abort(): void {
    this.finish(true);
  }

  /** Runs of other clients may still be heard of before our words are taken. */
  protected override isForUs(type: string, runId: unknown): boolean {
    if (this.#runId === undefined && this.#messageId !== undefined && type === "agent_start") this.#runId = runId;
    return runId === this.#runId;
  }

  protected override settle(envelope: Envelope): void {
    if (this.#messageId === undefined || envelope.inReplyTo !== this.#messageId) return;
    if (envelope.type === "agent_error") {
      this.error = runFailure(envelope.payload);
      // A needed login is the caller's turn to act: thrown, with the provider's id.
      if (this.error instanceof MakaiAuthError) return this.fail(this.error);
    } else this.response = responseOf(envelope.payload, this.sessionId);
    super.settle(envelope);
    this.finish(false);
  }
}

function responseOf(result: Payload, session_id: string): AgentRunResponse {
  const { message, stop_reason, run_id } = result;
  const usage = usageFrom(result["usage"]);
  const provider = stringOr(result["provider_id"], "");
  const api = stringOr(result["api"], "");
  const model = stringOr(result["model_id"], "");
  const content = isObject(message) && Array.isArray(message["content"]) ? (message["content"] as ContentPart[]) : [];
  return {
    message: { role: "assistant", content, provider, api, model },
    ...(usage && { usage }),
    provider_id: provider,
    api,
    model_id: model,
    ...(typeof stop_reason === "string" && { stop_reason }),
    session_id,
    ...(typeof run_id === "string" && { run_id }),
    ...warningsFrom(result),
  };
}
