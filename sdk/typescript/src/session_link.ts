/**
 * One session on this connection: the scope it is talked about in, and who listens.
 *
 * In: requests about the session; envelopes in its scope. Out: answers to those requests, and everything else to the
 * one view that is attached.
 *
 * The server counts a session's envelopes from `agent_start` to `agent_stopped`, and for a question outside that from
 * the question to its answer. So a scope is begun for one of the two, and nothing is sent in it after what ends it; the
 * next one waits for that end.
 */

import { stringOr, warningsFrom } from "./answer.js";
import type { Connection, Scope, ScopeListener } from "./connection.js";
import type { Envelope, Payload } from "./envelope.js";
import { failureFromCode, MakaiStreamError, transportError } from "./errors.js";
import { type Failure, failureDetails, refusal } from "./exchange.js";

/** Opening the sessions of a MAKAI_HOME may mean waiting for another process to let go of them. */
const ANSWER_MS = 60_000;

/** Who hears what happens in a session. */
export interface Attached {
  /** An envelope that answers no request of this client. */
  take(envelope: Envelope, size: number): void;
  /** The server has let go of the session: its `agent_stopped`. */
  released(envelope: Envelope): void;
  /** The connection is lost. */
  lost(error: MakaiStreamError): void;
}

interface Waiting {
  readonly until: string;
  readonly accepted: ((messageId: string) => void) | undefined;
  resolve(envelope: Envelope): void;
  reject(error: Failure): void;
}

/** The sessions that this client uses or asks about. */
export class SessionLinks {
  readonly #links = new Map<string, SessionLink>();

  constructor(private readonly connection: Connection) {}

  link(sessionId: string): SessionLink {
    let link = this.#links.get(sessionId);
    if (link === undefined) {
      const made = new SessionLink(this.connection, sessionId, () => {
        if (this.#links.get(sessionId) === made) this.#links.delete(sessionId);
      });
      link = made;
      this.#links.set(sessionId, link);
    }
    return link;
  }
}

export class SessionLink implements ScopeListener {
  #scope: Scope | undefined;
  readonly #requests = new Map<string, Waiting>();
  /** Whom the session is promised to. */
  #user: Attached | undefined;
  /** The same, once its `agent_start` is on its way. */
  #view: Attached | undefined;
  #attached = false;
  #stopping = false;
  /** The words on their way, by message id. */
  #saying = "";
  /** The session took words of ours, so its active run is ours. */
  #said = false;
  #abort = false;
  #uses = 0;
  #turn: Promise<unknown> = Promise.resolve();
  #over: (() => void)[] = [];

  constructor(
    private readonly connection: Connection,
    private readonly sessionId: string,
    private readonly unused: () => void,
  ) {}

  /** Attach by the first of these starts whose session exists, or that begins one. */
  async attach(view: Attached, starts: readonly Payload[]): Promise<void> {
    if (this.#user !== undefined) {
      throw new MakaiStreamError("this client is using the session already", { kind: "unknown", code: "agent_busy" });
    }
    this.#user = view;
    try {
      await this.#inTurn(() => this.#start(view, starts));
    } catch (error) {
      this.leave(view);
      throw error;
    }
  }

  /** Ask something about the session, attached or not, and wait for an answer of this type. */
  ask(type: string, payload: Payload, until: string): Promise<Envelope> {
    return this.#inTurn(async () => {
      if (this.#stopping || !this.#attached) await this.#begin();
      if (type !== "agent_stop") return this.#send(type, payload, until);
      this.#stopping = true;
      try {
        return await this.#send(type, payload, until);
      } catch (error) {
        this.#stopping = false; // the session is as it was
        throw error;
      }
    });
  }

  /** Say something to the attached session; `accepted` is called before anything that arrives later is delivered. */
  async say(payload: Payload, accepted: (messageId: string) => void): Promise<void> {
    if (this.#stopping || !this.#attached) {
      throw new MakaiStreamError("the session was stopped", { kind: "aborted", code: "aborted" });
    }
    await this.#send("agent_message", payload, "ack", (messageId) => {
      this.#said = true;
      accepted(messageId);
    });
  }

  /** Send something to the session without waiting for an answer, while it is attached. */
  post(type: string, payload: Payload): void {
    if (this.#attached && !this.#stopping) this.#scope?.send(type, payload);
  }

  /** The view hears no more; with `abort` the run that its words started is stopped. May be repeated. */
  leave(view: Attached, abort = false): void {
    if (this.#user !== view) return;
    this.#user = this.#view = undefined;
    this.#abort = abort;
    this.#letGo();
    this.#forgetIfUnused();
  }

  received(envelope: Envelope, size: number): void {
    const { type, inReplyTo = "" } = envelope;
    if (type === "agent_started") this.#attached = true;
    const request = this.#requests.get(inReplyTo);
    if (request !== undefined) this.#answer(envelope, inReplyTo, request);
    else if (type !== "ack" && type !== "nack" && type !== "agent_stopped") this.#view?.take(envelope, size);
    if (type === "agent_stopped") {
      this.#attached = false;
      this.#detached()?.released(envelope);
    }
    // Who wanted the session may have left before it was known what to stop.
    if (this.#attached && this.#view === undefined) this.#letGo();
    if (!this.#attached && this.#requests.size === 0) this.#end();
  }

  unread(error: MakaiStreamError): void {
    const requests = [...this.#requests.values()];
    this.#requests.clear();
    if (!this.#attached) this.#end();
    requests.forEach((request) => request.reject(error));
  }

  lost(error: MakaiStreamError): void {
    const requests = [...this.#requests.values()];
    this.#requests.clear();
    this.#attached = false;
    const view = this.#detached();
    this.#end();
    requests.forEach((request) => request.reject(error));
    view?.lost(error);
  }

  #answer(envelope: Envelope, messageId: string, request: Waiting): void {
    const { type, payload } = envelope;
    const failure = type === "nack" ? refusal(payload) : type === "agent_error" ? runFailure(payload) : undefined;
    if (failure === undefined && type !== request.until) return;
    this.#requests.delete(messageId);
    if (failure !== undefined) return request.reject(failure);
    request.accepted?.(messageId);
    request.resolve(envelope);
  }

  async #start(view: Attached, starts: readonly Payload[]): Promise<void> {
    for (const start of starts) {
      await this.#begin();
      if (this.#user !== view) throw leftError();
      this.#view = view;
      try {
        await this.#send("agent_start", start, "agent_started");
        return;
      } catch (error) {
        const missing = error instanceof MakaiStreamError && error.code === "session_not_found";
        if (!missing || start === starts.at(-1)) throw error;
      }
    }
  }

  /** A new scope, once the one before it is over. */
  async #begin(): Promise<void> {
    if (this.#scope !== undefined) await this.#rest();
    this.#stopping = this.#said = this.#abort = false;
    if (this.connection.failure !== undefined) throw this.connection.failure;
    this.#scope = this.connection.open("session_id", this, this.sessionId);
  }

  #rest(): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(lateError()), ANSWER_MS);
      this.#over.push(() => (clearTimeout(timer), resolve()));
    });
  }

  #send(type: string, payload: Payload, until: string, accepted?: (messageId: string) => void): Promise<Envelope> {
    const scope = this.#scope;
    if (scope === undefined) throw leftError();
    return new Promise((resolve, reject) => {
      let messageId: string;
      try {
        messageId = scope.send(type, payload);
      } catch (error) {
        if (!this.#attached && this.#requests.size === 0) this.#end(); // nothing was sent that could end the scope
        throw error;
      }
      if (this.connection.failure !== undefined) return reject(this.connection.failure);
      if (type === "agent_message") this.#saying = messageId;
      const timer = setTimeout(() => reject(lateError()), ANSWER_MS);
      this.#requests.set(messageId, {
        until,
        accepted,
        resolve: (envelope) => (clearTimeout(timer), resolve(envelope)),
        reject: (error) => (clearTimeout(timer), reject(error)),
      });
    });
  }

  /** Stop only a run of this client: until its message is answered, the active run may be another client's. */
  #letGo(): void {
    if (!this.#attached || this.#stopping || this.#requests.has(this.#saying)) return;
    this.#scope?.send("agent_stop", { detach: !(this.#abort && this.#said) });
    this.#stopping = true;
  }

  /** The view that was attached; another one may be waiting for the session already. */
  #detached(): Attached | undefined {
    const view = this.#view;
    this.#view = undefined;
    if (this.#user === view) this.#user = undefined;
    return view;
  }

  #end(): void {
    this.#scope?.release();
    this.#scope = undefined;
    const waiting = this.#over;
    this.#over = [];
    waiting.forEach((resolve) => resolve());
    this.#forgetIfUnused();
  }

  /** One after the other, while the session is not attached: its envelopes are counted. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    this.#uses += 1;
    const result = this.#turn.then(work, work).finally(() => {
      this.#uses -= 1;
      this.#forgetIfUnused();
    });
    this.#turn = result.catch(() => undefined);
    return result;
  }

  #forgetIfUnused(): void {
    if (this.#uses === 0 && this.#scope === undefined && this.#user === undefined) this.unused();
  }
}

/** The error an `agent_error` stands for. */
export function runFailure(payload: Payload): Failure {
  const code = payload["code"];
  const message = stringOr(payload["message"], "the run failed");
  const details = { ...failureDetails(payload), ...warningsFrom(payload) };
  return failureFromCode(typeof code === "string" ? code : undefined, message, details);
}

function leftError(): MakaiStreamError {
  return new MakaiStreamError("the session was let go of", { kind: "aborted", code: "aborted" });
}

function lateError(): MakaiStreamError {
  return transportError("the server did not answer about the session in time");
}
