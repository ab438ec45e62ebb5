/**
 * The interface that the specification prints: what every Makai SDK for TypeScript offers.
 *
 * `document_interface.test.ts` holds ours against it. Without its comments, and with `declare` where classes
 * and functions have no body. It must not import anything of ours.
 */

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
export type StopReason = "end_turn" | "max_tokens" | "tool_use" | "stop_sequence" | "max_turns" | string;

export interface ProviderAuthInfo {
  id: ProviderId;
  name: string;
  auth_status: AuthStatus;
  last_error?: string;
}

export type MakaiAuthEvent =
  | {
      type: "auth_url";
      flow_id: string;
      provider_id: ProviderId;
      url: string;
      instructions?: string;
    }
  | {
      type: "prompt";
      flow_id: string;
      prompt_id: string;
      provider_id: ProviderId;
      message: string;
      allow_empty: boolean;
    }
  | {
      type: "progress";
      flow_id: string;
      provider_id: ProviderId;
      message: string;
    }
  | {
      type: "success";
      flow_id: string;
      provider_id: ProviderId;
    }
  | {
      type: "error";
      flow_id: string;
      provider_id: ProviderId;
      code?: string;
      message: string;
    };

export interface AuthFlowHandlers {
  onEvent?: (event: MakaiAuthEvent) => void;
  onPrompt?: (prompt: Extract<MakaiAuthEvent, { type: "prompt" }>) => Promise<string> | string;
}

export interface ModelDescriptor {
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

export interface ChatMessage {
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

export interface AgentRunRequest {
  model_ref: string;
  messages: ChatMessage[];
  tools?: ToolDefinition[];
  options?: RunOptions;
}

export interface CompletionResponse {
  message: {
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

export interface ProviderCompleteRequest {
  model_ref: string;
  messages: ChatMessage[];
  tools?: ToolDefinition[];
  options?: RunOptions;
}

export type ProviderCompleteResponse = CompletionResponse;

export interface MakaiAuthApi {
  listProviders(): Promise<ProviderAuthInfo[]>;
  login(providerId: ProviderId, handlers?: AuthFlowHandlers): Promise<{ status: "success" }>;
}

export declare class MakaiAuthError extends Error {
  code?: string;
  kind: "provider_error" | "cancelled" | "transport_error" | "unknown";
}

export declare class MakaiStreamError extends Error {
  code?: string;
  kind: "provider_error" | "transport_error" | "aborted" | "unknown";
}

export interface MakaiModelsApi {
  list(request?: ListModelsRequest): Promise<ListModelsResponse>;
  resolve(request: ResolveModelRequest): Promise<ResolveModelResponse>;
}

export interface MakaiClientOptions {
  auth?: {
    auth_retry_policy?: AuthRetryPolicy;
    handlers?: AuthFlowHandlers;
  };
}

export interface MakaiAgentApi {
  run(request: AgentRunRequest): Promise<AgentRunResponse>;
  stream(request: AgentRunRequest): AsyncIterable<AgentStreamEvent>;
}

export interface MakaiProviderApi {
  complete(request: ProviderCompleteRequest): Promise<ProviderCompleteResponse>;
  stream(request: ProviderCompleteRequest): AsyncIterable<ProviderStreamEvent>;
}

export interface MakaiClient {
  auth: MakaiAuthApi;
  models: MakaiModelsApi;
  agent: MakaiAgentApi;
  provider: MakaiProviderApi;
  close(): Promise<void>;
}

export declare function createMakaiClient(options?: MakaiClientOptions): Promise<MakaiClient>;
