/**
 * The public vocabulary of the SDK.
 *
 * In: nothing. Out: types only, no code. Ours only ever adds optional fields to the document's shapes: how to reach
 * a server (`MakaiClientOptions`), `signal` on requests, `response` on a stream, on messages which model made them;
 * and for agents `execute` on tools, permissions, limits, and what a session works with.
 */

import type { Infer, OutputOptions, Schema } from "./schema.js";
import type { MakaiToolsApi } from "./tool_types.js";
import type { WebSocketConstructor } from "./transports/websocket.js";
import type { FileChange, MakaiUndoApi } from "./undo_types.js";

export type ProviderId = string;

export type ApiId =
  | "anthropic-messages"
  | "openai-completions"
  | "openai-responses"
  | "azure-openai-responses"
  | "google-generative-ai"
  | "google-gemini-cli"
  | "ollama"
  | string;

export type AuthStatus =
  "authenticated" | "login_required" | "expired" | "refreshing" | "login_in_progress" | "failed" | "unknown";

export type ModelLifecycle = "stable" | "preview" | "deprecated";

export type ModelCapability =
  "chat" | "streaming" | "tools" | "vision" | "reasoning" | "prompt_cache" | "audio_input" | "audio_output";

export type ModelSource = "dynamic" | "static_fallback";

export type AuthRetryPolicy = "manual" | "auto_once";

/** Known values are standardized; a value this SDK does not know is passed through. */
export type StopReason = "end_turn" | "max_tokens" | "tool_use" | "stop_sequence" | "max_turns" | string;

export interface ProviderAuthInfo {
  id: ProviderId;
  name: string;
  auth_status: AuthStatus;
  last_error?: string;
}

export type MakaiAuthEvent =
  | { type: "auth_url"; flow_id: string; provider_id: ProviderId; url: string; instructions?: string }
  | {
      type: "prompt";
      flow_id: string;
      prompt_id: string;
      provider_id: ProviderId;
      message: string;
      allow_empty: boolean;
    }
  | { type: "progress"; flow_id: string; provider_id: ProviderId; message: string }
  | { type: "success"; flow_id: string; provider_id: ProviderId }
  | { type: "error"; flow_id: string; provider_id: ProviderId; code?: string; message: string };

export interface AuthFlowHandlers {
  onEvent?: (event: MakaiAuthEvent) => void;
  onPrompt?: (prompt: Extract<MakaiAuthEvent, { type: "prompt" }>) => Promise<string> | string;
}

export interface ModelDescriptor {
  /** Opaque, stable, issued by the server: keep it, send it back, do not take it apart. */
  model_ref: string;
  model_id: string;
  display_name: string;
  provider_id: ProviderId;
  api: ApiId;
  base_url?: string;
  auth_status: AuthStatus;
  lifecycle: ModelLifecycle;
  capabilities: ModelCapability[];
  source: ModelSource;
  context_window?: number;
  max_output_tokens?: number;
  reasoning_default?: "off" | "minimal" | "low" | "medium" | "high" | "xhigh";
  metadata?: Record<string, string>;
}

export interface ListModelsRequest {
  provider_id?: ProviderId;
  api?: ApiId;
  /** Exact match. */
  model_id?: string;
  include_deprecated?: boolean;
  include_login_required?: boolean;
}

export interface ListModelsResponse {
  models: ModelDescriptor[];
  fetched_at_ms: number;
  cache_max_age_ms: number;
}

export interface ResolveModelRequest {
  provider_id: ProviderId;
  api?: ApiId;
  model_id: string;
}

export interface ResolveModelResponse {
  model: ModelDescriptor;
}

export type TextContentPart = {
  type: "text";
  text: string;
  text_signature?: string;
};

export type ThinkingContentPart = {
  type: "thinking";
  thinking: string;
  thinking_signature?: string;
};

export type ImageContentPart = {
  type: "image";
  /** base64 */
  data: string;
  mime_type: string;
};

export type ToolCallContentPart = {
  type: "tool_call";
  tool_call_id: string;
  name: string;
  arguments_json: string;
};

export type ToolResultContentPart = {
  type: "tool_result";
  tool_call_id: string;
  tool_name: string;
  content: string | TextContentPart[];
  is_error?: boolean;
  details_json?: string;
};

export type ContentPart =
  TextContentPart | ThinkingContentPart | ImageContentPart | ToolCallContentPart | ToolResultContentPart;

/** Which model made an assistant message. Its signatures are only ever sent back to that model. */
export interface MessageOrigin {
  provider?: ProviderId;
  api?: ApiId;
  model?: string;
}

export interface ChatMessage extends MessageOrigin {
  role: "system" | "developer" | "user" | "assistant" | "tool";
  content: string | ContentPart[];
  name?: string;
  tool_call_id?: string;
}

export interface ToolDefinition {
  name: string;
  description: string;
  parameters_schema_json: string;
}

export interface RunOptions {
  temperature?: number;
  max_tokens?: number;
  reasoning_effort?: "off" | "minimal" | "low" | "medium" | "high" | "xhigh";
  /** Wins over the client's `auth.auth_retry_policy`; without either it is "manual". */
  auth_retry_policy?: AuthRetryPolicy;
  session_id?: string;
  metadata?: Record<string, string>;
  top_p?: number;
  stop?: string[];
  /** Whether the model may, must or must not call a tool; `name` only with mode "tool". */
  tool_choice?: { mode: "auto" | "none" | "required" | "tool"; name?: string };
  /** The answer must be JSON of this schema (JSON text), where the API can promise that. */
  json_schema?: string;
  cache_retention?: "none" | "short" | "long";
  /** Which of the user's logins to use; the provider's default one when not given. */
  account?: string;
}

export interface UsageSummary {
  input: number;
  output: number;
  cache_read?: number;
  cache_write?: number;
}

/** What a tool answers, where a plain value does not say enough. */
export interface AgentToolResult {
  content: string | TextContentPart[];
  /** The model learns that the tool failed; the run continues. */
  is_error?: boolean;
  details_json?: string;
}

export interface ToolCallContext {
  tool_call_id: string;
  /** Aborted when the answer is no longer wanted. */
  signal: AbortSignal;
}

/** A tool that this client offers to the model and carries out itself. `execute` answers with text, an
 * `AgentToolResult`, or any other value, which is sent as JSON. The model gets what it throws as an error. */
export interface AgentTool extends ToolDefinition {
  execute?: (args: Record<string, any>, context: ToolCallContext) => unknown;
  /** "ask": a person decides each call of an agent that no rule allows. Default: "allow". */
  permission?: "allow" | "ask";
  /** It changes nothing, so it may also be called in plan mode when it asks. */
  read_only?: boolean;
}

/** Servers also accept the former name of "never_ask", "full_access"; they never send it. */
export type PermissionMode = "ask" | "accept_edits" | "plan" | "never_ask";
export type SandboxLevel = "read-only" | "workspace-write" | "full-access";

/** What a command may do beyond the sandbox of its session; by default nothing. */
export interface Confinement {
  /** Hosts such as `example.org` or `*.example.com:8443`; `*` alone stands for every address. */
  network?: string[];
  /** Write the repository, except for its hooks and its configuration. */
  git?: boolean;
  git_folders?: string[];
  /** Further folders that may be written. */
  folders?: string[];
  unsandboxed?: boolean;
  /** It runs in a terminal of the session's editor, which has `terminal_sandbox` if its editor says so. */
  terminal?: boolean;
  terminal_sandbox?: string;
  /** The external agent in whose process it runs, unless `agent_terminals` and the agent uses one of makai. */
  agent?: string;
  agent_terminals?: boolean;
}

/** A rule that a decision for more than one call may set. */
export interface OfferedGrant {
  rule: string;
  /** What the rule covers, for people. */
  label: string;
  /** It can be set for the session, but not for always. */
  session_only?: boolean;
}

/** A call of a tool that has to be allowed. */
export interface PermissionRequest {
  tool_call_id: string;
  tool_name: string;
  arguments: Record<string, unknown>;
  run_id: string;
  /** Names exactly these arguments; an answer counts for no others. */
  digest: string;
  title?: string;
  /** What the call would change; a new file has no `old_text`. */
  diffs?: FileChange[];
  /** When the question is answered "no" without anybody, as Unix time. */
  deadline_ms?: number;
  /** The rule that "session" or "always" sets by default; without it a decision counts once. */
  grant?: string;
  /** The rules that such a decision may choose from, the narrowest first. */
  grants?: OfferedGrant[];
  /** What the call is given beyond the session's sandbox when it is allowed. */
  confinement?: Confinement;
}

export type PermissionDecision =
  | { decision: "allow"; scope?: "once" | "session" | "always"; grant?: string }
  | { decision: "deny"; reason?: string };

/** Decides whether a call may run. `undefined` leaves it to other clients until the deadline; what is thrown is a
 * denial. The signal is aborted when it was decided elsewhere. */
export type PermissionHandler = (
  request: PermissionRequest,
  context: { signal: AbortSignal },
) => PermissionDecision | undefined | Promise<PermissionDecision | undefined>;

/** `session_id` names the session to continue; one that does not exist is begun under that id (a UUID). */
export interface AgentRunOptions extends RunOptions {
  max_turns?: number;
  max_output_tokens?: number;
  /** Refused for a model whose price is unknown, unless `allow_unknown_price`. */
  max_usd?: number;
  allow_unknown_price?: boolean;
  max_seconds?: number;
  /** Permission rules for this run, such as `Bash(git log:*)`. */
  allow?: string[];
  deny?: string[];
}

/** One agent run. What follows `signal` describes the session, whose first run sets it. */
export interface AgentRunRequest {
  /** With `agent`, one of that agent's models, or "" for the one that it chooses. */
  model_ref: string;
  /** Another agent than makai's own, for a new session: its name, such as "gemini", or "acp:" and a command line. */
  agent?: string;
  /** What follows the last assistant message is said to the agent; the session remembers the rest itself. */
  messages: ChatMessage[];
  /** Not given: an existing session keeps its tools; the client that declared those carries them out. */
  tools?: AgentTool[];
  /** Ids of programs that serve tools (`client.tools.serve`). Not given: an existing session keeps those it has. */
  tool_servers?: string[];
  options?: AgentRunOptions;
  /** Without it the decision is left to other clients of the session, until the deadline. */
  on_permission_request?: PermissionHandler;
  /** Stops the run. */
  signal?: AbortSignal;
  /** Instead of makai's own instructions. A system message at the head of `messages` means the same. */
  system_prompt?: string;
  /** Files, shell, search, fetch, plan and MCP, carried out by the server beneath `cwd`. */
  builtin_tools?: boolean;
  cwd?: string;
  /** Default: "ask". */
  mode?: PermissionMode;
  sandbox?: SandboxLevel;
  title?: string;
  /** How long a permission request may wait for an answer. */
  approval_s?: number;
}

export interface ProviderCompleteRequest {
  model_ref: string;
  messages: ChatMessage[];
  tools?: ToolDefinition[];
  options?: RunOptions;
  /** Aborts the request here and on the server. */
  signal?: AbortSignal;
}

export interface CompletionResponse {
  message: MessageOrigin & {
    role: "assistant";
    content: string | ContentPart[];
  };
  usage?: UsageSummary;
  provider_id: ProviderId;
  api: ApiId;
  model_id: string;
  stop_reason?: StopReason;
  /** What you should know about this answer, such as which options the vendor does not take. */
  warnings?: string[];
}

/** The newest answer of a run, with the usage of all its turns. */
export type AgentRunResponse = CompletionResponse & {
  /** What to continue: `options: { session_id }`. */
  session_id?: string;
  run_id?: string;
};
export type ProviderCompleteResponse = CompletionResponse;

export type ProviderStreamEvent =
  | { type: "message_start"; provider_id?: ProviderId; api?: ApiId; model_id?: string }
  | { type: "text_delta"; delta: string }
  | { type: "thinking_delta"; delta: string }
  | { type: "tool_call"; name: string; arguments_json: string; tool_call_id: string }
  | { type: "message_end"; usage?: UsageSummary; stop_reason?: StopReason }
  | { type: "error"; message: string; code?: string };

export type AgentStreamEvent =
  | ProviderStreamEvent
  | { type: "agent_start"; session_id?: string }
  | { type: "agent_end"; stop_reason?: StopReason; usage?: UsageSummary }
  | { type: "turn_start" }
  | { type: "turn_end"; stop_reason?: StopReason }
  | { type: "tool_execution_start"; tool_call_id: string; tool_name: string }
  | { type: "tool_execution_end"; tool_call_id: string; is_error?: boolean };

/** The events of one run. It can be iterated once; iterating starts the run, and leaving the loop stops it. */
export interface AgentStream extends AsyncIterable<AgentStreamEvent> {
  /** The session of the run, known before it begins. */
  readonly session_id: string;
  /** Where `attach` can go on after what was delivered, when the connection is lost. */
  readonly event_id: number | undefined;
  /** There once `agent_end` was delivered. */
  readonly response: AgentRunResponse | undefined;
}

/** What happens in a session, run after run. It can be iterated once; leaving it leaves the session as it is. */
export interface AgentFollower extends AsyncIterable<AgentStreamEvent> {
  readonly session_id: string;
  /** Where another `attach` can go on after what was delivered. */
  readonly event_id: number | undefined;
}

export interface AttachOptions {
  /** Events above this one follow; without it those of the active run, or from now on. */
  after_event_id?: number;
  /** They replace those that were declared for the session, and this client carries them out. */
  tools?: AgentTool[];
  on_permission_request?: PermissionHandler;
  signal?: AbortSignal;
}

export interface AgentSessionInfo {
  session_id: string;
  status: "idle" | "running" | "waiting_for_tool" | "waiting_for_permission" | "stopping" | "closed" | string;
  model_ref: string;
  mode: PermissionMode | string;
  /** The newest event: `attach(session_id, { after_event_id })` follows what comes after it. */
  event_id: number;
  created_at: number;
  updated_at: number;
  usage: UsageSummary;
  pending_permissions: string[];
  title?: string;
  cwd?: string;
  run_id?: string;
  /** Its id for REST, `/ws` and `makai sessions`, where that is not `session_id`: of a session you named yourself. */
  log_id?: string;
}

/** The events of one answer. It can be iterated once; the request is sent when iteration begins. */
export interface ProviderStream extends AsyncIterable<ProviderStreamEvent> {
  /**
   * The whole answer, there once `message_end` was delivered. Unlike the events it holds the vendor's signatures, so
   * `response.message` is what to append to `messages` for the next turn.
   */
  readonly response: ProviderCompleteResponse | undefined;
}

export interface MakaiAuthApi {
  listProviders(): Promise<ProviderAuthInfo[]>;
  /** Each handler is looked up in `handlers` first, then in the client's `auth.handlers`. */
  login(
    providerId: ProviderId,
    handlers?: AuthFlowHandlers,
    options?: { signal?: AbortSignal },
  ): Promise<{ status: "success" }>;
}

export interface MakaiModelsApi {
  list(request?: ListModelsRequest): Promise<ListModelsResponse>;
  resolve(request: ResolveModelRequest): Promise<ResolveModelResponse>;
}

export interface MakaiAgentApi extends MakaiUndoApi {
  run<const S extends Schema>(request: AgentRunRequest & OutputOptions<S>): Promise<AgentRunResponse & { output: Infer<S> }>;
  run(request: AgentRunRequest): Promise<AgentRunResponse>;
  stream(request: AgentRunRequest): AgentStream;
  /** Follow a session and all its runs, also those of other clients, until the loop is left. */
  attach(session_id: string, options?: AttachOptions): AgentFollower;
  /** Stop the active run of a session, also one of another client; nothing happens when there is none. */
  stop(session_id: string, options?: { reason?: string }): Promise<void>;
  status(session_id: string): Promise<AgentSessionInfo>;
}

export interface MakaiProviderApi {
  /** `output` is for answers in words: an agent is for a typed answer after calls of tools. */
  complete<const S extends Schema>(
    request: ProviderCompleteRequest & OutputOptions<S>,
  ): Promise<ProviderCompleteResponse & { output: Infer<S> }>;
  complete(request: ProviderCompleteRequest): Promise<ProviderCompleteResponse>;
  stream(request: ProviderCompleteRequest): ProviderStream;
  /**
   * Carry out the tool calls of an answer, all at once: ask again with `[...messages, response.message, ...results]`.
   * Arguments are checked first, and what fails is a result too. No permission is asked for here.
   */
  call_tools(
    response: CompletionResponse,
    tools: readonly AgentTool[],
    options?: { signal?: AbortSignal },
  ): Promise<ChatMessage[]>;
}

export interface MakaiClient {
  auth: MakaiAuthApi;
  models: MakaiModelsApi;
  agent: MakaiAgentApi;
  provider: MakaiProviderApi;
  tools: MakaiToolsApi;
  close(): Promise<void>;
}

export interface MakaiClientOptions {
  auth?: {
    /** For all requests that do not say otherwise in `RunOptions`. */
    auth_retry_policy?: AuthRetryPolicy;
    /** Used by `auth.login` and by the login of "auto_once". */
    handlers?: AuthFlowHandlers;
  };
  /** A running server, `ws://host:port`; a missing path is /v1/makai. Without it a `makai` process is started (Node only). */
  url?: string;
  /** The server's token, with `url`. */
  token?: string;
  /** The program to start without `url`. Default: the environment's MAKAI_COMMAND, else "makai". */
  command?: string;
  /** Its arguments. Default: `["--stdio"]`. */
  args?: readonly string[];
  /** Added to the environment of the program. */
  env?: Readonly<Record<string, string | undefined>>;
  /** The working directory of the program. */
  cwd?: string;
  /** The WebSocket to use with `url`. Default: the global one, else (Node 20) a small one of our own. */
  WebSocket?: WebSocketConstructor;
}
