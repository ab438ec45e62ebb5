// The server's REST side. In: what the page wants. Out: typed answers, or an ApiError that says what went wrong in
// words for a person. The cookie carries the authorisation; nothing here knows the token after it was traded.
import { carriedJson, carriedText } from "./carried";
import type { PermissionMode, SandboxLevel, TranscriptItem, Usage } from "./protocol";

export type Scope = "observe" | "prompt" | "approve" | "admin";

export interface Info {
  version: string;
  default_model_ref: string | null;
  default_cwd: string;
  default_sandbox?: SandboxLevel;
  default_mode?: PermissionMode;
  home_has_models: boolean;
  demo: boolean;
  /** What the token of this page allows, its name, and the only session that it opens, if it is one. */
  scope: Scope;
  token: string;
  session_id: string | null;
}

export interface SessionRow {
  session_id: string;
  title: string;
  model_ref: string;
  mode: PermissionMode;
  harness: string;
  cwd: string | null;
  status: string;
  created_ms: number;
  updated_ms: number;
  events: number;
  usage: Usage | null;
  pending_approvals: number;
  damaged: boolean | string | null;
}

export interface NewSession {
  model_ref?: string;
  mode?: PermissionMode;
  sandbox?: SandboxLevel;
  cwd?: string;
  title?: string;
  harness?: string;
  demo?: boolean;
}

export interface PendingApproval {
  session_id: string;
  call_id: string;
  title: string;
  tool_key: string;
  event_id: number;
  ts: string | number;
}

export interface Model {
  model_ref: string;
  model_id: string;
  display_name: string;
  provider_id: string;
  auth_status: string;
  lifecycle: string;
  capabilities: string[];
  context_window?: number;
}

/** An agent that can run a session; `native` is makai's own. */
export interface Harness {
  name: string;
  title: string;
  available: boolean;
  /** How to install it; empty when that is not known. */
  install: string;
  /** What it can and cannot do, in words; both empty when that is not known. */
  can: string[];
  cannot: string[];
}

export interface Account {
  name: string;
  auth_status: string;
  is_default: boolean;
  label: string;
}

export interface Provider {
  id: string;
  name: string;
  auth_status: string;
  last_error: string;
  accounts: Account[];
  source: string;
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string | null = null,
  ) {
    super(message);
  }
}

const DEADLINE_MS = 30_000;

async function ask<Answer>(method: string, path: string, body?: unknown, token?: string): Promise<Answer> {
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      credentials: "same-origin",
      signal: AbortSignal.timeout(DEADLINE_MS),
      headers: {
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
      },
      ...(body === undefined ? {} : { body: carriedJson(body) }),
    });
  } catch {
    throw new ApiError(0, "unreachable", "The server does not answer.", "Is `makai serve` still running?");
  }
  if (!response.ok) throw await refusal(response);
  if (response.status === 204) return undefined as Answer;
  return (await response.json()) as Answer;
}

async function refusal(response: Response): Promise<ApiError> {
  try {
    const { error } = (await response.json()) as { error: { code: string; message: string; hint?: string } };
    return new ApiError(response.status, error.code, error.message, error.hint ?? null);
  } catch {
    return new ApiError(response.status, `http_${response.status}`, `The server answered ${response.status}.`);
  }
}

/** What an undo or a redo of file changes would do. */
export interface RestorePlan {
  text: string;
  plan_id: string;
  files: { path: string; kind: "create" | "change" | "remove" | "keep"; added?: number; removed?: number; refusal?: string }[];
  notes?: string[];
}

const id = (text: string): string => encodeURIComponent(carriedText(text));

export const api = {
  cookie: (token: string) => ask<void>("POST", "/api/cookie", {}, token),
  info: () => ask<Info>("GET", "/api/info"),
  sessions: (q: string, before: number | null = null, limit = 100) =>
    ask<{ sessions: SessionRow[]; next_before: number | null }>(
      "GET",
      `/api/sessions?limit=${limit}${q ? `&q=${id(q)}` : ""}${before === null ? "" : `&before=${before}`}`,
    ),
  session: (sessionId: string) => ask<SessionRow>("GET", `/api/sessions/${id(sessionId)}`),
  create: (wanted: NewSession) => ask<{ session_id: string }>("POST", "/api/sessions", wanted),
  remove: (sessionId: string) => ask<void>("DELETE", `/api/sessions/${id(sessionId)}`),
  fork: (sessionId: string, at?: number) =>
    ask<{ session_id: string }>("POST", `/api/sessions/${id(sessionId)}/fork`, at === undefined ? {} : { at }),
  restorePlan: (sessionId: string, direction: "undo" | "redo") =>
    ask<RestorePlan>("GET", `/api/sessions/${id(sessionId)}/restore?direction=${direction}`),
  exportAddress: (sessionId: string, format: "md" | "jsonl") => `/api/sessions/${id(sessionId)}/export?format=${format}`,
  older: (sessionId: string, before: number, limit = 200) =>
    ask<{ items: TranscriptItem[]; before: number | null }>(
      "GET",
      `/api/sessions/${id(sessionId)}/transcript?before=${before}&limit=${limit}`,
    ),
  approvals: () => ask<{ pending: PendingApproval[] }>("GET", "/api/approvals"),
  models: () => ask<{ models: Model[] }>("GET", "/api/models"),
  harnesses: () => ask<{ harnesses: Harness[] }>("GET", "/api/harnesses"),
  providers: () => ask<{ providers: Provider[] }>("GET", "/api/auth/providers"),
  login: (provider_id: string) => ask<{ flow_id: string }>("POST", "/api/auth/login", { provider_id }),
  answer: (flowId: string, prompt_id: string, answer: string) =>
    ask<{ accepted: boolean }>("POST", `/api/auth/flows/${id(flowId)}/answer`, { prompt_id, answer }),
  cancelLogin: (flowId: string) => ask<{ cancelled: boolean }>("POST", `/api/auth/flows/${id(flowId)}/cancel`, {}),
  logout: (provider_id: string, account?: string) =>
    ask<{ logged_out: boolean }>("POST", "/api/auth/logout", account === undefined ? { provider_id } : { provider_id, account }),
  loginEvents: (flowId: string) => new EventSource(`/api/auth/flows/${id(flowId)}/events`),
};
