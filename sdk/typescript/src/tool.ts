/**
 * `tool`: a function of the program as a tool, with a schema that checks its arguments before it runs and gives their type.
 *
 * In: a schema and a function. Out: an `AgentTool` for agents, tool servers and `provider.call_tools`.
 */

import { resultOf } from "./callbacks.js";
import { sanitize } from "./envelope.js";
import { abortedError, refused } from "./errors.js";
import { type Checked, type Infer, readSchema, type ReadSchema, type Schema, type SchemaObject } from "./schema.js";
import type {
  AgentTool,
  AgentToolResult,
  ChatMessage,
  CompletionResponse,
  ToolCallContentPart,
  ToolCallContext,
} from "./types.js";

/** What every vendor accepts as the name of a tool. */
const NAME = /^[A-Za-z0-9_-]{1,64}$/;
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** Tools whose function checks its arguments itself. */
const CHECKING = new WeakSet<AgentTool>();

/** The arguments that a schema describes; a schema whose type is not known in advance gives an object of anything. */
export type ToolArguments<S> = Infer<S> extends object ? Infer<S> : Record<string, any>;

export interface ToolOptions<S extends Schema> {
  /** Letters, digits, "_" and "-", at most 64. */
  name: string;
  description: string;
  /** A schema of zod 3 or 4, of another library that follows Standard Schema, or a JSON Schema. None: no arguments. */
  parameters?: S;
  /** Answers as the `execute` of an `AgentTool` does. */
  run(args: ToolArguments<S>, context: ToolCallContext): unknown;
  /** After so long the call fails and `signal` is aborted. Default: no limit but that of the run. */
  timeout_ms?: number;
  /** "ask": a person decides each call of an agent that no rule allows. Default: "allow". */
  permission?: "allow" | "ask";
  /** It changes nothing, so it may also be called in plan mode when it asks. */
  read_only?: boolean;
}

/** A function as a tool. Throws `MakaiStreamError` with the code "invalid_request" when it cannot be one. */
export function tool<const S extends Schema = { type: "object"; properties: {} }>(options: ToolOptions<S>): AgentTool {
  const { name, description, parameters, run, timeout_ms, permission, read_only } = options;
  if (typeof name !== "string" || !NAME.test(name)) throw refused(`"${name}" is no name of a tool: letters, digits, "_" and "-", at most 64`);
  if (typeof description !== "string") throw refused(`${name} has no description`);
  if (typeof run !== "function") throw refused(`${name} has no function: give one as \`run\``);
  if (timeout_ms !== undefined && !(timeout_ms > 0 && timeout_ms <= MAX_TIMEOUT_MS)) throw refused(`${name}: timeout_ms is more than 0`);
  const schema = readSchema(parameters ?? ({ type: "object", properties: {} } satisfies SchemaObject), `the schema of ${name}`);
  if (!describesObject(schema.json)) throw refused(`the parameters of ${name} are not an object`);
  const made: AgentTool = {
    name,
    description,
    parameters_schema_json: JSON.stringify(schema.json),
    ...(permission !== undefined && { permission }),
    ...(read_only !== undefined && { read_only }),
    execute: async (args, context) => {
      const checked = await schema.check(args);
      if (!checked.ok) return misfits(name, checked.problems);
      return within(timeout_ms, name, context, (inner) => run(checked.value as ToolArguments<S>, inner));
    },
  };
  CHECKING.add(made);
  return made;
}

/** Carries out the tool calls of an answer, all at once, as messages for the next request. */
export async function callTools(
  response: CompletionResponse,
  tools: readonly AgentTool[],
  signal: AbortSignal = new AbortController().signal,
): Promise<ChatMessage[]> {
  const { content } = response.message;
  const calls = typeof content === "string" ? [] : content.filter((part) => part.type === "tool_call");
  const aborted = rejection(signal);
  try {
    return await Promise.race([Promise.all(calls.map((call) => messageOf(call, tools, signal))), aborted.promise]);
  } finally {
    aborted.forget();
  }
}

async function messageOf(call: ToolCallContentPart, tools: readonly AgentTool[], signal: AbortSignal): Promise<ChatMessage> {
  const { tool_call_id, name } = call;
  const result = await resultOfCall(call, tools, signal);
  return sanitize({ role: "tool", content: [{ type: "tool_result", tool_call_id, tool_name: name, ...result }] });
}

async function resultOfCall(call: ToolCallContentPart, tools: readonly AgentTool[], signal: AbortSignal): Promise<AgentToolResult> {
  const { tool_call_id, name, arguments_json } = call;
  try {
    const own = tools.find((one) => one.name === name);
    if (own?.execute === undefined) throw new Error(`there is no function for the tool "${name}"`);
    const args = parsed(arguments_json);
    const checked = args.ok && !CHECKING.has(own) ? await readDefinition(own).check(args.value) : args;
    if (!checked.ok) return misfits(name, checked.problems);
    return resultOf(await own.execute(checked.value as Record<string, unknown>, { tool_call_id, signal }));
  } catch (error) {
    return { content: String(error), is_error: true };
  }
}

function parsed(arguments_json: string): Checked {
  try {
    // Some vendors send no text for no arguments.
    return { ok: true, value: arguments_json === "" ? {} : JSON.parse(arguments_json) };
  } catch (error) {
    return { ok: false, problems: [`they are not JSON: ${String(error)}`] };
  }
}

function readDefinition({ name, parameters_schema_json }: AgentTool): ReadSchema {
  return readSchema(JSON.parse(parameters_schema_json) as SchemaObject, `the schema of ${name}`);
}

function misfits(name: string, problems: readonly string[]): AgentToolResult {
  return { content: `The arguments do not fit ${name}:${problems.map((problem) => `\n- ${problem}`).join("")}`, is_error: true };
}

/** Runs a function with a signal that is aborted with the caller's, and after `timeout_ms`. */
async function within(
  timeout_ms: number | undefined,
  name: string,
  context: ToolCallContext,
  run: (context: ToolCallContext) => unknown,
): Promise<unknown> {
  if (timeout_ms === undefined) return run(context);
  const controller = new AbortController();
  const follow = (): void => controller.abort(context.signal.reason);
  if (context.signal.aborted) follow();
  context.signal.addEventListener("abort", follow, { once: true });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<AgentToolResult>((resolve) => {
    timer = setTimeout(() => {
      const content = `${name} had no answer within ${timeout_ms / 1000} s.`;
      resolve({ content, is_error: true });
      controller.abort(new Error(content));
    }, timeout_ms);
  });
  try {
    return await Promise.race([run({ ...context, signal: controller.signal }), late]);
  } finally {
    clearTimeout(timer);
    context.signal.removeEventListener("abort", follow);
  }
}

function rejection(signal: AbortSignal): { promise: Promise<never>; forget(): void } {
  let listener = (): void => undefined;
  const promise = new Promise<never>((_, reject) => {
    listener = () => reject(abortedError(signal.reason));
    if (signal.aborted) listener();
  });
  promise.catch(() => undefined); // reported where the results are waited for
  signal.addEventListener("abort", listener, { once: true });
  return { promise, forget: () => signal.removeEventListener("abort", listener) };
}

/** An object, or alternatives that are all objects, such as a union of zod objects. */
function describesObject(schema: SchemaObject): boolean {
  const parts = (schema["anyOf"] ?? schema["oneOf"]) as SchemaObject[] | undefined;
  if (schema["type"] === undefined && Array.isArray(parts)) return parts.every(describesObject);
  return schema["type"] === "object" || (schema["type"] === undefined && !("const" in schema) && !("enum" in schema));
}
