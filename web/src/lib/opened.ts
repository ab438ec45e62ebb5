// What a command is given beyond the session's sandbox, in the words of the terminal (src/makai/core/confinement.py).
import type { Confinement, FileDiff } from "./protocol";

/** Arguments with which a model asks for more than the sandbox; what they open is shown instead. */
const ASKS = new Set(["network", "git", "write_folders", "no_sandbox"]);

/** One line each; empty when it is nothing. */
export function openedLines({ network = [], git, git_folders = [], folders = [], unsandboxed, terminal, terminal_sandbox, agent, agent_terminals }: Confinement): string[] {
  if (agent) {
    const place = `in the process of ${agent}, outside of makai's sandbox`;
    return [agent_terminals ? `${place}, unless it uses a terminal of makai` : place];
  }
  if (terminal_sandbox) return [`in a terminal of your editor, in its own sandbox (${terminal_sandbox})`];
  if (terminal) return ["in a terminal of your editor, without the sandbox: it can read and change everything that you can"];
  if (unsandboxed) return ["without the sandbox: it can read and change everything that you can"];
  const lines: string[] = [];
  if (network.includes("*")) lines.push("with network to every address");
  else if (network.length) lines.push(`with network to ${network.join(", ")}`);
  if (git) {
    const where = git_folders.length ? ` in ${git_folders.join(", ")}` : "";
    lines.push(`may write the git repository${where} and check out files, but not change hooks or configuration`);
  }
  return [...lines, ...folders.map((folder) => `may write ${folder}`)];
}

/** The arguments of a command beside itself, as name and JSON. */
export function otherArguments(args: Record<string, unknown>, opens: boolean): [string, string][] {
  return Object.entries(args)
    .filter(([name]) => name !== "command" && !(opens && ASKS.has(name)))
    .map(([name, value]) => [name === "reason" ? "the model's reason" : name, JSON.stringify(value)]);
}

const PATHS = new Set(["path", "file_path", "filepath", "abs_path", "absolute_path", "notebook_path"]);
const OLD_TEXTS = new Set(["old_text", "oldtext", "old_string", "oldstring", "old_str"]);
const NEW_TEXTS = new Set(["content", "new_text", "newtext", "new_string", "newstring", "new_str", "new_source"]);
const MAX_SOUGHT = 50;

/** The arguments that the diffs do not show, as name and JSON; the terminal chooses the same (src/makai/core/approval_text.py). */
export function argumentsBeside(diffs: FileDiff[], args: Record<string, unknown>): [string, string][] {
  const all = Object.entries(args);
  const others = all.length > MAX_SOUGHT ? all : all.filter(([name, value]) => !isInDiffs(name.toLowerCase(), value, diffs));
  return others.map(([name, value]) => [name, JSON.stringify(value)]);
}

function isInDiffs(name: string, value: unknown, diffs: FileDiff[]): boolean {
  if (typeof value === "string") {
    const meant = value.replace(/^(\.\/+)+/, "");
    if (PATHS.has(name)) return diffs.some((diff) => diff.path === meant || diff.path.endsWith(`/${meant}`));
    if (OLD_TEXTS.has(name)) return diffs.some((diff) => (diff.old_text ?? "").includes(value));
    return NEW_TEXTS.has(name) && diffs.some((diff) => diff.new_text.includes(value));
  }
  if (name === "replace_all") return value === false;
  return name === "edits" && Array.isArray(value) && value.length <= MAX_SOUGHT && value.every((edit: unknown) => isShownEdit(edit, diffs));
}

function isShownEdit(edit: unknown, diffs: FileDiff[]): boolean {
  if (typeof edit !== "object" || edit === null || Array.isArray(edit)) return false;
  return argumentsBeside(diffs, edit as Record<string, unknown>).length === 0;
}
