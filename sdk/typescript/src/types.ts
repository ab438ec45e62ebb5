/**
 * The public vocabulary of the SDK: document 000 §3, spelled as the document spells it.
 *
 * In: nothing. Out: types only, no code. It must not know envelopes or transports.
 * Ours only ever adds optional fields to the document's shapes: how to reach a server (`MakaiClientOptions`),
 * `signal` on requests, `response` on a provider stream, and on messages which model made them.
 */

import type { WebSocketConstructor } from "./transports/websocket.js";

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
}

export interface UsageSummary {
  input: number;
  output: number;
  cache_read?: number;
  cache_write?: number;
}

/** What an agent run and a provider call both take; document 000 §3 keeps the two names apart. */
export interface AgentRunRequest {
  model_ref: string;
  messages: ChatMessage[];
  tools?: ToolDefinition[];
  options?: RunOptions;
  /** Aborts the request here and on the server. */
  signal?: AbortSignal;
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
}

export type AgentRunResponse = CompletionResponse;
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

export interface MakaiAgentApi {
  run(request: AgentRunRequest): Promise<AgentRunResponse>;
  stream(request: AgentRunRequest): AsyncIterable<AgentStreamEvent>;
}

export interface MakaiProviderApi {
  complete(request: ProviderCompleteRequest): Promise<ProviderCompleteResponse>;
  stream(request: ProviderCompleteRequest): ProviderStream;
}

export interface MakaiClient {
  auth: MakaiAuthApi;
  models: MakaiModelsApi;
  agent: MakaiAgentApi;
  provider: MakaiProviderApi;
  close(): Promise<void>;
}

export interface MakaiClientOptions {
  auth?: {
    /** For all requests that do not say otherwise in `RunOptions`. */
    auth_retry_policy?: AuthRetryPolicy;
    /** Used by `auth.login` and by the login of "auto_once". */
    handlers?: AuthFlowHandlers;
  };
  /** A running server, `ws://host:port/v1/makai`. Without it a `makai` process is started (Node only). */
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
