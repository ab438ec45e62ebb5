// Numbers and times for people.
import { decodedPart } from "./carried";
import type { PermissionMode, SandboxLevel, Usage } from "./protocol";
import type { DecisionMade } from "./store/items";

export const MODE_NAMES: Record<PermissionMode, string> = {
  ask: "Ask",
  accept_edits: "Accept edits",
  plan: "Plan only",
  never_ask: "Never ask",
};

export const MODE_HINTS: Record<PermissionMode, string> = {
  ask: "Asks before edits and commands",
  accept_edits: "Edits files without asking; asks before commands",
  plan: "Reads and plans; changes nothing",
  never_ask: "Asks nothing; the sandbox protects your files",
};

export const SANDBOX_NAMES: Record<SandboxLevel, string> = {
  "workspace-write": "Folder only",
  "read-only": "Read only",
  "full-access": "No sandbox",
};

export const SANDBOX_HINTS: Record<SandboxLevel, string> = {
  "workspace-write": "Commands write only in this folder and have no network",
  "read-only": "Commands change no file and have no network",
  "full-access": "No sandbox: a command can read, change and send everything that you can",
};

export function tokens(count: number): string {
  if (count < 1000) return String(count);
  if (count < 100_000) return `${(count / 1000).toFixed(1).replace(/\.0$/, "")}k`;
  return count < 1_000_000 ? `${Math.round(count / 1000)}k` : `${(count / 1_000_000).toFixed(1)}M`;
}

export function dollars(amount: number): string {
  if (amount === 0) return "$0";
  return amount < 0.01 ? `$${amount.toFixed(4)}` : `$${amount.toFixed(2)}`;
}

export function usageTitle(usage: Usage): string {
  const parts = [`${usage.input.toLocaleString("en")} tokens in`, `${usage.output.toLocaleString("en")} out`];
  if (usage.cache_read) parts.push(`${usage.cache_read.toLocaleString("en")} read from cache`);
  if (usage.cache_write) parts.push(`${usage.cache_write.toLocaleString("en")} written to cache`);
  if (usage.reasoning) parts.push(`${usage.reasoning.toLocaleString("en")} of the output were reasoning`);
  parts.push(usage.cost_usd == null ? "price unknown" : dollars(usage.cost_usd));
  return parts.join(", ");
}

export function duration(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return seconds % 60 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  return minutes % 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes / 60} h`;
}

const CLIENTS: Record<string, string> = {
  page: "in the browser",
  terminal: "in the terminal",
  run: "in the terminal",
  makai: "through a program",
  minicodex: "through a program",
};

/** Who decided about a call, and how far the decision reaches. */
export function decisionText({ approved, by, reason, scope, grant, token }: DecisionMade): string {
  const where = CLIENTS[by.replace(/-\d+$/, "")];
  const done = approved ? "approved" : "denied";
  const AUTOMATIC: Record<string, string> = {
    rule: approved ? "Allowed by a permission rule" : "Denied by a permission rule",
    mode: approved ? "Allowed by the permission mode" : "Denied by the permission mode",
    deadline: "Expired without a decision",
  };
  // A stored token is name/id: then it need not be the reader who decided.
  const name = token.includes("/") ? token.slice(0, token.lastIndexOf("/")) : "";
  const who = where ? `${name || "You"} ${done} this ${where}` : (AUTOMATIC[by] ?? (approved ? "Approved" : "Denied"));
  const reach = !grant || scope === "once" ? "" : ` (${grant}, ${scope === "always" ? "always" : "for this session"})`;
  return who + reach + (reason ? `: ${reason}` : "");
}

export function ago(then: number, now: number): string {
  const minutes = Math.floor((now - then) / 60_000);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h`;
  if (minutes < 7 * 24 * 60) return `${Math.floor(minutes / 1440)} d`;
  return new Date(then).toLocaleDateString(undefined, { month: "short", day: "numeric" });
}

/** A time that is left, rounded to its largest unit. */
export function left(ms: number): string {
  const minutes = Math.max(1, Math.round(ms / 60_000));
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.round(minutes / 60)} h`;
  return `${Math.round(minutes / 1440)} days`;
}

export function bytes(count: number): string {
  if (count < 1024) return `${count} bytes`;
  return count < 1024 * 1024 ? `${(count / 1024).toFixed(1)} KB` : `${(count / 1024 / 1024).toFixed(1)} MB`;
}

export function clock(ts: string | null): string {
  const time = ts === null ? null : new Date(ts);
  return time && !Number.isNaN(time.getTime())
    ? time.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" })
    : "";
}

const EFFORT_NAMES: Record<string, string> = {
  "": "Thinks as usual",
  off: "Does not think",
  minimal: "Thinks least",
  low: "Thinks little",
  medium: "Thinks some",
  high: "Thinks hard",
  xhigh: "Thinks hardest",
};

/** The usual efforts with their names, and the one that is set. */
export function effortChoices(current: string): [string, string][] {
  const usual = ["", "low", "medium", "high"];
  const shown = Object.keys(EFFORT_NAMES).filter((one) => one === current || usual.includes(one));
  return shown.map((one) => [one, EFFORT_NAMES[one] ?? one]);
}

/** "a, b and c". */
export function listed(words: string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** The model's own name in a model_ref, `provider/api@name` with the name percent-encoded. */
export function shortModel(modelRef: string): string {
  return decodedPart(modelRef.slice(modelRef.indexOf("@") + 1));
}
