/**
 * The types of `client.tools`: tools that a program serves to sessions of others.
 */

import type { AgentTool } from "./types.js";

/** One call of a served tool. */
export interface ServedToolCall {
  /** As the tool was declared, without the id of its server. */
  name: string;
  arguments: Record<string, any>;
  session_id: string;
  run_id: string;
  tool_call_id: string;
  /** Aborted when the answer is no longer wanted. */
  signal: AbortSignal;
  /** Shows output to the people who watch, while the tool runs; models do not get it. */
  progress(text: string): void;
}

export interface ServeOptions {
  tools: AgentTool[];
  /** Carries out the tools that have no function of their own, and answers as the `execute` of an `AgentTool` does. */
  execute?: (call: ServedToolCall) => unknown;
  /** How long a call may wait to be begun, and then for its answer. Default: 300,000. */
  timeout_ms?: number;
  /** How many calls run at the same time; others wait. Default: 16. */
  max_parallel?: number;
}

/** Tools that this client serves, until `close` or the end of the connection. */
export interface ToolServer {
  readonly server_id: string;
  /** The names that models see: `server_id__name`. */
  readonly tool_names: readonly string[];
  /** Fulfilled when the server was closed; rejected when its connection is lost. */
  readonly closed: Promise<void>;
  /** Calls that are being executed fail in their sessions. May be repeated. */
  close(): Promise<void>;
}

export interface MakaiToolsApi {
  /** Serve tools to every session that names this id in its `tool_servers`, also to those of other clients. */
  serve(server_id: string, options: ServeOptions): Promise<ToolServer>;
}
