/**
 * `client.tools`: serves tools under an id, for every session that names it, also those of other clients.
 *
 * In: tools and the functions that execute them; envelopes in the scope of the server. Out: registration, the start,
 * output and answer of each call.
 */

import { toolsOf } from "./agent_requests.js";
import { resultOf } from "./callbacks.js";
import type { Connection, Scope, ScopeListener } from "./connection.js";
import { type Envelope, isObject, type Payload, sanitize } from "./envelope.js";
import { type MakaiStreamError, refused, transportError } from "./errors.js";
import { type Failure, refusal } from "./exchange.js";
import type { MakaiToolsApi, ServedToolCall, ServeOptions, ToolServer } from "./tool_types.js";
import type { AgentTool, AgentToolResult } from "./types.js";

/** Opening the sessions of a MAKAI_HOME may mean waiting for another process to let go of them. */
const ANSWER_MS = 60_000;
const MAX_PARALLEL = 16;

export class ToolsClient implements MakaiToolsApi {
  readonly #open = new Set<string>();

  constructor(private readonly connection: Connection) {}

  async serve(server_id: string, options: ServeOptions): Promise<ToolServer> {
    if (this.#open.has(server_id)) throw refused(`this client serves "${server_id}" already`);
    const missing = options.tools.filter(({ execute }) => execute === undefined && options.execute === undefined);
    if (missing.length > 0) throw refused(`no function executes the tools ${missing.map(({ name }) => name).join(", ")}`);
    if (this.connection.failure !== undefined) throw this.connection.failure;
    this.#open.add(server_id);
    const served = new ServedTools(this.connection, server_id, options, () => this.#open.delete(server_id));
    await served.register();
    return served;
  }
}

class ServedTools implements ToolServer, ScopeListener {
  tool_names: readonly string[] = [];
  readonly closed: Promise<void>;
  readonly #scope: Scope;
  readonly #tools: ReadonlyMap<string, AgentTool>;
  readonly #executing = new Map<string, AbortController>();
  readonly #queue: (() => void)[] = [];
  #running = 0;
  #over = false;
  /** The message id of the request that `#answer` waits for. */
  #asked = "";
  #answer: { resolve(envelope: Envelope): void; reject(error: Failure): void } | undefined;
  #ended: { resolve(): void; reject(error: Failure): void } | undefined;

  constructor(
    connection: Connection,
    readonly server_id: string,
    private readonly options: ServeOptions,
    private readonly onEnd: () => void,
  ) {
    this.#tools = new Map(options.tools.map((tool) => [tool.name, tool]));
    this.closed = new Promise((resolve, reject) => (this.#ended = { resolve, reject }));
    this.closed.catch(() => undefined); // a caller that does not wait for it need not handle it
    this.#scope = connection.open("server_id", this, server_id);
  }

  async register(): Promise<void> {
    const { timeout_ms, tools } = this.options;
    try {
      const { payload } = await this.#ask("tool_register", { tools: toolsOf(tools), timeout_ms });
      this.tool_names = Array.isArray(payload["tools"]) ? payload["tools"].map(String) : [];
    } catch (error) {
      this.#end();
      throw error;
    }
  }

  async close(): Promise<void> {
    if (this.#over) return;
    try {
      await this.#ask("tool_unregister", {});
    } finally {
      this.#end();
    }
  }

  received(envelope: Envelope): void {
    const { type, payload, inReplyTo } = envelope;
    const answer = inReplyTo !== undefined && inReplyTo === this.#asked ? this.#answer : undefined;
    if (type === "tool_registered" || type === "tool_unregistered") answer?.resolve(envelope);
    else if (type === "nack") answer?.reject(refusal(payload));
    else if (type === "tool_request") this.#begin(payload);
    else if (type === "tool_cancel") this.#executing.get(String(payload["execution_id"]))?.abort();
  }

  unread(error: MakaiStreamError): void {
    this.#answer?.reject(error);
  }

  lost(error: MakaiStreamError): void {
    this.#answer?.reject(error);
    this.#end(error.kind === "aborted" ? undefined : error);
  }

  #ask(type: string, payload: Payload): Promise<Envelope> {
    return new Promise<Envelope>((resolve, reject) => {
      const late = transportError(`the server did not answer a ${type} within ${ANSWER_MS / 1000} s`);
      const timer = setTimeout(() => this.#answer?.reject(late), ANSWER_MS);
      const settle = <T>(then: (value: T) => void) => (value: T): void => {
        clearTimeout(timer);
        this.#answer = undefined;
        then(value);
      };
      this.#answer = { resolve: settle(resolve), reject: settle(reject) };
      try {
        this.#asked = this.#scope.send(type, payload);
      } catch (error) {
        this.#answer.reject(error as Failure);
      }
    });
  }

  #begin(request: Payload): void {
    const controller = new AbortController();
    this.#executing.set(String(request["execution_id"]), controller);
    this.#queue.push(() => void this.#execute(request, controller.signal));
    this.#next();
  }

  #next(): void {
    while (this.#running < (this.options.max_parallel ?? MAX_PARALLEL)) {
      const start = this.#queue.shift();
      if (start === undefined) return;
      this.#running += 1;
      start();
    }
  }

  async #execute(request: Payload, signal: AbortSignal): Promise<void> {
    const execution_id = String(request["execution_id"]);
    try {
      if (!signal.aborted) {
        this.#post("tool_execution_start", { execution_id });
        const result = await this.#result(request, signal);
        if (!signal.aborted) this.#respond(execution_id, result);
      }
    } finally {
      this.#executing.delete(execution_id);
      this.#running -= 1;
      this.#next();
    }
  }

  #respond(execution_id: string, result: AgentToolResult): void {
    try {
      this.#post("tool_response", sanitize({ execution_id, ...result }));
    } catch (error) {
      // The run waits for an answer, so it gets one.
      const content = `the result of the tool cannot be sent: ${error instanceof Error ? error.message : "no reason"}`;
      this.#post("tool_response", sanitize({ execution_id, content, is_error: true }));
    }
  }

  async #result(request: Payload, signal: AbortSignal): Promise<AgentToolResult> {
    const { execution_id, tool_name, tool_call_id, session_id, run_id } = request as Record<string, string>;
    const call: ServedToolCall = {
      name: String(tool_name),
      arguments: isObject(request["arguments"]) ? request["arguments"] : {},
      session_id: String(session_id),
      run_id: String(run_id),
      tool_call_id: String(tool_call_id),
      signal,
      progress: (text) => {
        if (!signal.aborted) this.#post("tool_execution_update", sanitize({ execution_id, text }));
      },
    };
    try {
      const own = this.#tools.get(call.name)?.execute;
      if (own !== undefined) return resultOf(await own(call.arguments, { tool_call_id: call.tool_call_id, signal }));
      return resultOf(await this.options.execute?.(call));
    } catch (error) {
      return { content: String(error), is_error: true };
    }
  }

  #post(type: string, payload: Payload): void {
    if (!this.#over) this.#scope.send(type, payload);
  }

  #end(error?: MakaiStreamError): void {
    if (this.#over) return;
    this.#over = true;
    this.#queue.length = 0;
    for (const controller of this.#executing.values()) controller.abort();
    this.#scope.release();
    this.onEnd();
    if (error === undefined) this.#ended?.resolve();
    else this.#ended?.reject(error);
  }
}
