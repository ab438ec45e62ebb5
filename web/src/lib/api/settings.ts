// What the settings ask of the server: defaults, instructions, permissions, trusted folders, tokens and MCP servers.
import type { Scope } from "../api";
import { addressPart, ask } from "./http";

export type SettingName = "agent" | "model" | "mode" | "sandbox" | "effort";
export type Source = "flag" | "environment" | "project" | "user" | "default";

export interface Setting {
  name: SettingName;
  /** What counts for a new session in the server's folder; null is the default of the catalog or of the model. */
  value: string | null;
  source: Source;
  /** What the user's own file says. */
  written: string | null;
  default: string | null;
  choices: string[];
}

export interface Instructions {
  path: string;
  text: string;
  version: string;
  max_bytes: number;
  is_cut: boolean;
}

export interface AllSettings {
  path: string;
  folder: string;
  settings: Setting[];
  ignored: string[];
  problem: { message: string; hint: string } | null;
  instructions: Instructions;
}

export interface SettingsChange {
  values?: Partial<Record<SettingName, string>>;
  reset?: SettingName[];
  instructions?: string;
  instructions_version?: string;
}

export interface SavedGrant {
  folder: string;
  rule: string;
  allow: boolean;
  session_id: string;
  ts: number;
  by: string;
}

export interface FolderTrust {
  folder: string;
  trusted: boolean;
  /** Project files that changed since they were trusted. */
  changed: { path: string }[];
  /** All that the project files set and start, in exact lines. */
  wanted: string[];
  digests: Record<string, string>;
}

export interface Token {
  token_id: string;
  name: string;
  scope: Scope;
  created_ms: number;
  expires_ms: number;
  session_id: string | null;
  used_ms: number | null;
  revoked_ms: number | null;
}

export interface NewToken {
  name: string;
  scope: Scope;
  lasts_s: number;
  session?: string;
}

export interface McpServer {
  name: string;
  scope: "user" | "project";
  address: string;
  enabled: boolean;
  /** Empty until it was tested. */
  state: string;
  problem: string;
  tools: string[];
  log: string;
  tested_ms: number | null;
}

export interface McpServers {
  servers: McpServer[];
  path: string;
  folder: string;
}

export interface NewMcpServer {
  name: string;
  command?: string[];
  url?: string;
  env?: Record<string, string>;
  headers?: Record<string, string>;
  network?: boolean;
  git?: boolean;
}

export const settingsApi = {
  read: () => ask<AllSettings>("GET", "/api/settings"),
  change: (change: SettingsChange) => ask<AllSettings>("PATCH", "/api/settings", change),
  grants: () => ask<{ grants: SavedGrant[] }>("GET", "/api/grants"),
  revokeGrant: (folder: string, rule: string) => ask<{ revoked: boolean }>("POST", "/api/grants/revoke", { folder, rule }),
  folders: () => ask<{ folders: { folder: string; trusted: boolean }[]; here: string }>("GET", "/api/trust"),
  trustOf: (folder: string) => ask<FolderTrust>("GET", `/api/trust/folder?path=${addressPart(folder)}`),
  setTrust: (folder: string, trusted: boolean, shown: Record<string, string> = {}) =>
    ask<{ done: boolean }>("POST", "/api/trust", { folder, trusted, shown }),
  tokens: () => ask<{ tokens: Token[]; current: string }>("GET", "/api/tokens"),
  createToken: (wanted: NewToken) => ask<Token & { secret: string }>("POST", "/api/tokens", wanted),
  revokeToken: (tokenId: string) => ask<void>("DELETE", `/api/tokens/${addressPart(tokenId)}`, {}),
  servers: () => ask<McpServers>("GET", "/api/mcp"),
  addServer: (wanted: NewMcpServer) => ask<McpServers>("POST", "/api/mcp", wanted),
  removeServer: (name: string, scope: McpServer["scope"]) => ask<McpServers>("POST", "/api/mcp/remove", { name, scope }),
  testServer: (name: string, scope: McpServer["scope"]) => ask<McpServers>("POST", "/api/mcp/test", { name, scope }),
};
