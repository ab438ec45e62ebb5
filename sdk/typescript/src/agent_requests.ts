/**
 * What callers of `client.agent` write -> the payloads that carry it out.
 *
 * In: an `AgentRunRequest`. Out: `agent_start` and `agent_message`. Pure.
 */

import type { Payload } from "./envelope.js";
import type { AgentRunRequest, AgentTool, ChatMessage, ToolDefinition } from "./types.js";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const MAX_SESSION_ID_LENGTH = 256;

/** A session's id as the wire wants it, or undefined when it is none. */
export function sessionIdOf(id: string): string | undefined {
  const length = [...id].length;
  if (length === 0 || length > MAX_SESSION_ID_LENGTH) return undefined;
  return UUID.test(id) ? id.toLowerCase() : id;
}

/** How to begin: a session that is not certain to be new is continued, and begun when it does not exist. */
export function startsOf(request: AgentRunRequest, isNew: boolean): Payload[] {
  const { model_ref, agent, tool_servers, builtin_tools, cwd, mode, sandbox, title, approval_s } = request;
  const start: Payload = {
    model_ref: model_ref === "" ? undefined : model_ref,
    agent,
    system_prompt: split(request).system,
    tools: toolsOf(request.tools),
    tool_servers,
    builtin_tools,
    cwd,
    mode,
    sandbox,
    title,
    approval_s,
  };
  return isNew ? [start] : [{ ...start, resume: true }, start];
}

/** What is said to the agent, and how its run is to go. */
export function messageOf(request: AgentRunRequest): Payload {
  const { auth_retry_policy: _policy, session_id: _session, ...options } = request.options ?? {};
  return { messages: split(request).messages, options };
}

/** Whether a run may do something else than answer in words. */
export function mayAct({ agent, tools, builtin_tools, tool_servers, options }: AgentRunRequest): boolean {
  const offered = (tools?.length ?? 0) > 0 || (tool_servers?.length ?? 0) > 0 || builtin_tools === true;
  return offered || agent !== undefined || options?.session_id != null;
}

/** The tools as the model sees them. */
export function toolsOf(tools: readonly AgentTool[] | undefined): ToolDefinition[] | undefined {
  return tools?.map(({ name, description, parameters_schema_json, permission, read_only }) => ({
    name,
    description,
    parameters_schema_json,
    ...(permission !== undefined && { permission }),
    ...(read_only !== undefined && { read_only }),
  }));
}

/** Instructions and conversation: the protocol takes them apart, `messages` holds both. */
function split({ messages, system_prompt }: AgentRunRequest): { system: string | undefined; messages: ChatMessage[] } {
  const other = messages.findIndex(({ role }) => role !== "system" && role !== "developer");
  const count = other < 0 ? messages.length : other;
  if (system_prompt !== undefined || count === 0) return { system: system_prompt, messages };
  return { system: messages.slice(0, count).map(textOf).join("\n\n"), messages: messages.slice(count) };
}

function textOf({ content }: ChatMessage): string {
  if (typeof content === "string") return content;
  return content.map((part) => (part.type === "text" ? part.text : "")).join("");
}
