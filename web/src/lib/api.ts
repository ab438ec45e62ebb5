// What the page asks of the server about sessions, models and logins, with typed answers. Other subjects have a file of
// their own below api/.
import { addressPart, ask } from "./api/http";
import type { ArchivedFilter } from "./api/search";
import type { PermissionMode, SandboxLevel, TranscriptItem, Usage } from "./protocol";

export type Scope = "observe" | "prompt" | "approve" | "admin";

export type ReasoningEffort = "off" | "minimal" | "low" | "medium" | "high" | "xhigh";

export interface Info {
  version: string;
  default_model_ref: string | null;
  default_cwd: string;
  default_sandbox?: SandboxLevel;
  default_mode?: PermissionMode;
  /** The agent of new sessions; `native` is makai's own. */
  default_agent?: string;
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
  archived: boolean;
  /** "run" for a session that `makai run` began; empty for all others. */
  made_by: string;
}

export interface NewSession {
  model_ref?: string;
  mode?: PermissionMode;
  sandbox?: SandboxLevel;
  cwd?: string;
  title?: string;
  harness?: string;
  reasoning_effort?: ReasoningEffort;
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
  /** Prices: `price_input_usd_per_mtok` and the like, where they are known. */
  metadata?: Record<string, string>;
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

/** Where a branch of a session ends: at its end, or before a message; and the model that it uses. */
export interface BranchPoint {
  at?: number;
  before?: number;
  model_ref?: string;
}

export const api = {
  cookie: (token: string) => ask<void>("POST", "/api/cookie", {}, token),
  info: () => ask<Info>("GET", "/api/info"),
  sessions: (archived: ArchivedFilter, before: number | null, limit: number) =>
    ask<{ sessions: SessionRow[]; next_before: number | null }>(
      "GET",
      `/api/sessions?limit=${limit}&archived=${archived}${before === null ? "" : `&before=${before}`}`,
    ),
  session: (sessionId: string) => ask<SessionRow>("GET", `/api/sessions/${addressPart(sessionId)}`),
  create: (wanted: NewSession) => ask<{ session_id: string }>("POST", "/api/sessions", wanted),
  /** Null: as the model does by itself. */
  setEffort: (sessionId: string, effort: ReasoningEffort | null) =>
    ask<void>("POST", `/api/sessions/${addressPart(sessionId)}/effort`, { effort }),
  remove: (sessionId: string) => ask<void>("DELETE", `/api/sessions/${addressPart(sessionId)}`),
  fork: (sessionId: string, point: BranchPoint = {}) =>
    ask<{ session_id: string }>("POST", `/api/sessions/${addressPart(sessionId)}/fork`, point),
  exportAddress: (sessionId: string, format: "md" | "jsonl") => `/api/sessions/${addressPart(sessionId)}/export?format=${format}`,
  older: (sessionId: string, before: number, limit = 200) =>
    ask<{ items: TranscriptItem[]; before: number | null }>(
      "GET",
      `/api/sessions/${addressPart(sessionId)}/transcript?before=${before}&limit=${limit}`,
    ),
  approvals: () => ask<{ pending: PendingApproval[] }>("GET", "/api/approvals"),
  models: () => ask<{ models: Model[] }>("GET", "/api/models"),
  harnesses: () => ask<{ harnesses: Harness[] }>("GET", "/api/harnesses"),
  providers: () => ask<{ providers: Provider[] }>("GET", "/api/auth/providers"),
  login: (provider_id: string) => ask<{ flow_id: string }>("POST", "/api/auth/login", { provider_id }),
  answer: (flowId: string, prompt_id: string, answer: string) =>
    ask<{ accepted: boolean }>("POST", `/api/auth/flows/${addressPart(flowId)}/answer`, { prompt_id, answer }),
  cancelLogin: (flowId: string) => ask<{ cancelled: boolean }>("POST", `/api/auth/flows/${addressPart(flowId)}/cancel`, {}),
  logout: (provider_id: string, account?: string) =>
    ask<{ logged_out: boolean }>("POST", "/api/auth/logout", account === undefined ? { provider_id } : { provider_id, account }),
  loginEvents: (flowId: string) => new EventSource(`/api/auth/flows/${addressPart(flowId)}/events`),
};
