/**
 * `client.agent`: runs with tools and turns, in sessions that outlive them.
 *
 * A failure after the server accepted the run is its terminal `error` event; refusals, a needed login, an abort and a
 * lost connection are thrown: one failure surfaces once. Leaving a run stops it; leaving a session that is only followed
 * does not. After a lost connection the session continues, and `attach` follows it again.
 */

import { mayAct, messageOf, sessionIdOf, startsOf, toolsOf } from "./agent_requests.js";
import { AgentView, type Heard, RunView } from "./agent_view.js";
import { usageFrom } from "./answer.js";
import type { AuthRetry } from "./auth_retry.js";
import { Callbacks } from "./callbacks.js";
import type { Connection } from "./connection.js";
import { newId } from "./envelope.js";
import { abortedError, MakaiStreamError, refused } from "./errors.js";
import type { Infer, OutputOptions, Schema } from "./schema.js";
import { SessionLinks } from "./session_link.js";
import { Limits, TypedOutput } from "./typed_output.js";
import type {
  AgentFollower,
  AgentRunRequest,
  AgentRunResponse,
  AgentSessionInfo,
  AgentStream,
  AgentStreamEvent,
  AttachOptions,
  MakaiAgentApi,
} from "./types.js";
import type { AgentRestoreResult, FileChange, RestoreOptions } from "./undo_types.js";

/** Events after which a second attempt repeats nothing that the caller has. */
const NO_CONTENT: ReadonlySet<string> = new Set(["agent_start", "turn_start", "turn_end", "message_start"]);

export class AgentClient implements MakaiAgentApi {
  readonly #links: SessionLinks;

  constructor(
    connection: Connection,
    private readonly retry: AuthRetry,
  ) {
    this.#links = new SessionLinks(connection);
  }

  run<const S extends Schema>(request: AgentRunRequest & OutputOptions<S>): Promise<AgentRunResponse & { output: Infer<S> }>;
  run(request: AgentRunRequest): Promise<AgentRunResponse>;
  async run(given: AgentRunRequest & Partial<OutputOptions<Schema>>): Promise<AgentRunResponse> {
    const { output, output_repairs, ...request } = given;
    const limits = new Limits(request.options);
    const ask = async (asked: AgentRunRequest): Promise<AgentRunResponse> => {
      const run = new Run(this.#links, this.retry, asked);
      for await (const { event } of run.events()) if (event.type === "turn_start") limits.turns += 1;
      return run.outcome();
    };
    if (output === undefined) return ask(request);
    const typed = new TypedOutput(output, output_repairs);
    return typed.answer(typed.asked(request, mayAct(request)), ask, (asked, response, correction) => {
      const options = response.stop_reason === "max_turns" ? undefined : limits.left(response.usage);
      if (options === undefined || response.session_id === undefined) return undefined;
      const { json_schema } = asked.options ?? {};
      const more = { ...(json_schema !== undefined && { json_schema }), session_id: response.session_id };
      return { ...asked, messages: [correction], options: { ...options, ...more } };
    });
  }

  stream(request: AgentRunRequest): AgentStream {
    if ("output" in request) throw refused("a stream has no output: use run");
    return new Stream(new Run(this.#links, this.retry, request));
  }

  attach(session_id: string, options: AttachOptions = {}): AgentFollower {
    return new Follower(this.#links, sessionId(session_id), options);
  }

  async stop(session_id: string, { reason }: { reason?: string } = {}): Promise<void> {
    const payload = reason === undefined ? {} : { reason };
    await this.#links.link(sessionId(session_id)).ask("agent_stop", payload, "agent_stopped");
  }

  async status(session_id: string): Promise<AgentSessionInfo> {
    const { payload } = await this.#links.link(sessionId(session_id)).ask("agent_status", {}, "session_info");
    return { ...payload, usage: usageFrom(payload["usage"]) ?? { input: 0, output: 0 } } as AgentSessionInfo;
  }

  undo(session_id: string, options: RestoreOptions = {}): Promise<AgentRestoreResult> {
    return this.#restore(session_id, "undo", options);
  }

  redo(session_id: string, options: RestoreOptions = {}): Promise<AgentRestoreResult> {
    return this.#restore(session_id, "redo", options);
  }

  async diff(session_id: string): Promise<FileChange[]> {
    const { payload } = await this.#links.link(sessionId(session_id)).ask("agent_diff", {}, "diff_result");
    return payload["files"] as FileChange[];
  }

  async #restore(session_id: string, direction: "undo" | "redo", options: RestoreOptions): Promise<AgentRestoreResult> {
    const { count, to, paths, plan_id, preview } = options;
    const asked = { direction, count, to, paths, plan_id, preview };
    const { payload } = await this.#links.link(sessionId(session_id)).ask("agent_restore", asked, "restore_result");
    return payload as unknown as AgentRestoreResult;
  }
}

/** One run, with its second attempt after a login. */
class Run {
  readonly sessionId: string;
  #view: RunView | undefined;
  #started = false;
  /** An attempt began or found the session; it may have failed before anything was heard of it. */
  #hasSession = false;
  #content = false;

  constructor(
    private readonly links: SessionLinks,
    private readonly retry: AuthRetry,
    private readonly request: AgentRunRequest,
  ) {
    const named = request.options?.session_id;
    this.sessionId = named == null ? newId() : sessionId(named);
  }

  get response(): AgentRunResponse | undefined {
    return this.#view?.response;
  }

  /** The answer of a run that is over; throws its failure. */
  outcome(): AgentRunResponse {
    if (this.#view?.error !== undefined) throw this.#view.error;
    if (this.#view?.response !== undefined) return this.#view.response;
    throw new MakaiStreamError("the run ended without a result", { kind: "unknown" });
  }

  async *events(): AsyncGenerator<Heard> {
    try {
      return yield* this.#attempt();
    } catch (error) {
      // A second attempt would repeat what the caller has already got.
      if (this.#content) throw error;
      await this.retry.loginFor(error, this.request);
    }
    yield* this.#attempt();
  }

  async *#attempt(): AsyncGenerator<Heard> {
    const { signal, tools, on_permission_request } = this.request;
    if (signal?.aborted) throw abortedError(signal.reason);
    const link = this.links.link(this.sessionId);
    const view = new RunView(link, new Callbacks(tools, on_permission_request), this.sessionId);
    this.#view = view;
    const aborted = abortOf(signal, (error) => view.fail(error, true));
    try {
      const isNew = this.request.options?.session_id == null && !this.#hasSession;
      await aborted.or(link.attach(view, startsOf(this.request, isNew)));
      this.#hasSession = true;
      await aborted.or(link.say(messageOf(this.request), (messageId) => view.said(messageId)));
      for (let heard = await view.next(); heard !== undefined; heard = await view.next()) {
        const again = this.#started && heard.event.type === "agent_start";
        this.#started ||= heard.event.type === "agent_start";
        this.#content ||= !NO_CONTENT.has(heard.event.type);
        if (!again) yield heard;
      }
    } finally {
      aborted.forget();
      view.abort();
    }
  }
}

class Stream implements AgentStream {
  event_id: number | undefined;
  response: AgentRunResponse | undefined;
  readonly #events: AsyncGenerator<AgentStreamEvent>;

  constructor(private readonly run: Run) {
    this.#events = this.#deliver();
  }

  get session_id(): string {
    return this.run.sessionId;
  }

  [Symbol.asyncIterator](): AsyncIterator<AgentStreamEvent> {
    return this.#events;
  }

  async *#deliver(): AsyncGenerator<AgentStreamEvent> {
    for await (const { event, eventId } of this.run.events()) {
      this.event_id = eventId ?? this.event_id;
      if (event.type === "agent_end") this.response = this.run.response;
      yield event;
    }
  }
}

class Follower implements AgentFollower {
  event_id: number | undefined;
  readonly #events: AsyncGenerator<AgentStreamEvent>;

  constructor(
    private readonly links: SessionLinks,
    readonly session_id: string,
    private readonly options: AttachOptions,
  ) {
    this.event_id = options.after_event_id;
    this.#events = this.#deliver();
  }

  [Symbol.asyncIterator](): AsyncIterator<AgentStreamEvent> {
    return this.#events;
  }

  async *#deliver(): AsyncGenerator<AgentStreamEvent> {
    const { after_event_id, tools, on_permission_request, signal } = this.options;
    if (signal?.aborted) throw abortedError(signal.reason);
    const link = this.links.link(this.session_id);
    const view = new AgentView(link, new Callbacks(tools, on_permission_request), this.session_id);
    const aborted = abortOf(signal, (error) => view.fail(error));
    try {
      await aborted.or(link.attach(view, [{ resume: true, after_event_id, tools: toolsOf(tools) }]));
      for (let heard = await view.next(); heard !== undefined; heard = await view.next()) {
        this.event_id = heard.eventId ?? this.event_id;
        yield heard.event;
      }
    } finally {
      aborted.forget();
      view.leave();
    }
  }
}

interface Abort {
  /** What the promise gives, unless the signal is aborted first. */
  or<T>(promise: Promise<T>): Promise<T>;
  forget(): void;
}

/** Listens to a caller's signal, if there is one. */
function abortOf(signal: AbortSignal | undefined, onAbort: (error: MakaiStreamError) => void): Abort {
  if (signal === undefined) return { or: (promise) => promise, forget: () => undefined };
  let listener = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => {
    listener = () => {
      const error = abortedError(signal.reason);
      onAbort(error);
      reject(error);
    };
  });
  aborted.catch(() => undefined); // reported where the caller waits for something else
  signal.addEventListener("abort", listener, { once: true });
  return {
    or: (promise) => Promise.race([promise, aborted]),
    forget: () => signal.removeEventListener("abort", listener),
  };
}

/** A session's id as the wire wants it. */
function sessionId(id: string): string {
  const spelled = sessionIdOf(id);
  if (spelled !== undefined) return spelled;
  throw refused("a session id has 1 to 256 characters");
}
