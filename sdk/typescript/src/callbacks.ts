/**
 * The caller's own functions in an agent's run: its tools, and its decisions about permissions.
 */

import { isObject, type Payload, sanitize } from "./envelope.js";
import type { AgentTool, AgentToolResult, PermissionDecision, PermissionHandler, PermissionRequest } from "./types.js";

/** Sends an envelope in the session; does nothing when the session has been let go of. */
export type Post = (type: string, payload: Payload) => void;

interface Call {
  readonly runId: string;
  readonly controller: AbortController;
}

export class Callbacks {
  readonly #tools: ReadonlyMap<string, AgentTool>;
  readonly #executing = new Map<string, Call>();
  readonly #asking = new Map<string, Call>();

  constructor(
    tools: readonly AgentTool[] = [],
    private readonly handler?: PermissionHandler,
  ) {
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]));
  }

  /** Carry out a tool and send what it answered. */
  execute(call: Payload, post: Post): void {
    const tool_call_id = String(call["tool_call_id"]);
    const signal = begin(this.#executing, tool_call_id, call);
    void this.#result(call, tool_call_id, signal).then((result) => {
      if (signal.aborted) return;
      this.#executing.delete(tool_call_id);
      try {
        post("tool_result", sanitize({ tool_call_id, ...result }));
      } catch (error) {
        // The run waits for an answer, so it gets one.
        const content = `the result of the tool cannot be sent: ${error instanceof Error ? error.message : "no reason"}`;
        post("tool_result", sanitize({ tool_call_id, content, is_error: true }));
      }
    });
  }

  /** Have the caller decide; without a handler others do. */
  ask(request: Payload, post: Post): void {
    const tool_call_id = String(request["tool_call_id"]);
    if (this.handler === undefined || this.#asking.has(tool_call_id)) return;
    const signal = begin(this.#asking, tool_call_id, request);
    void decide(this.handler, request as unknown as PermissionRequest, signal).then((decision) => {
      if (signal.aborted) return;
      this.#asking.delete(tool_call_id);
      if (decision !== undefined) post("permission_response", sanitize(response(request, tool_call_id, decision)));
    });
  }

  /** Abort a call whose result is no longer wanted. */
  callIsOver(toolCallId: unknown): void {
    end(this.#executing, toolCallId);
  }

  /** Stop asking: the request was decided. */
  isDecided(toolCallId: unknown): void {
    end(this.#asking, toolCallId);
  }

  /** A run has ended, or without an id: the caller has left. */
  runIsOver(runId?: unknown): void {
    for (const calls of [this.#executing, this.#asking]) {
      for (const [id, call] of [...calls]) if (runId === undefined || call.runId === runId) end(calls, id);
    }
  }

  async #result(call: Payload, tool_call_id: string, signal: AbortSignal): Promise<AgentToolResult> {
    const name = String(call["tool_name"]);
    try {
      const execute = this.#tools.get(name)?.execute;
      if (execute === undefined) throw new Error(`this client has no function for the tool "${name}"`);
      const args = isObject(call["arguments"]) ? call["arguments"] : {};
      return resultOf(await execute(args, { tool_call_id, signal }));
    } catch (error) {
      return { content: String(error), is_error: true };
    }
  }
}

/** A function's answer as the result that the model gets. */
export function resultOf(answer: unknown): AgentToolResult {
  if (typeof answer === "string") return { content: answer };
  if (answer === undefined || answer === null) return { content: "" };
  if (isTextParts(answer)) return { content: answer };
  if (isObject(answer) && (typeof answer["content"] === "string" || isTextParts(answer["content"]))) {
    const { content, is_error, details_json } = answer as unknown as AgentToolResult;
    return { content, ...(is_error === true && { is_error }), ...(details_json !== undefined && { details_json }) };
  }
  return { content: JSON.stringify(answer) ?? String(answer) };
}

function isTextParts(value: unknown): value is { type: "text"; text: string }[] {
  return Array.isArray(value) && value.length > 0 && value.every((part) => isObject(part) && part["type"] === "text");
}

async function decide(
  handler: PermissionHandler,
  request: PermissionRequest,
  signal: AbortSignal,
): Promise<PermissionDecision | undefined> {
  try {
    const decision = await handler(request, { signal });
    if (decision === undefined || decision.decision === "allow" || decision.decision === "deny") return decision;
    throw new TypeError(`on_permission_request answered ${JSON.stringify(decision)}`);
  } catch (error) {
    return { decision: "deny", reason: `the permission handler failed: ${String(error)}` };
  }
}

function response(request: Payload, tool_call_id: string, decision: PermissionDecision): Payload {
  if (decision.decision === "deny") {
    return { tool_call_id, decision: "deny", ...(decision.reason !== undefined && { reason: decision.reason }) };
  }
  // Without a `grant` there is no rule that could outlive this call, and a wider scope would be refused.
  const scope = request["grant"] ? (decision.scope ?? "once") : "once";
  const grant = scope !== "once" && decision.grant ? { grant: decision.grant } : {};
  return { tool_call_id, decision: "approve", scope, digest: request["digest"], ...grant };
}

function begin(calls: Map<string, Call>, id: string, payload: Payload): AbortSignal {
  const controller = new AbortController();
  calls.set(id, { runId: String(payload["run_id"]), controller });
  return controller.signal;
}

function end(calls: Map<string, Call>, id: unknown): void {
  const call = calls.get(String(id));
  calls.delete(String(id));
  call?.controller.abort();
}
