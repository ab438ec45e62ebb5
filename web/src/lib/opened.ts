// What a command is given beyond the session's sandbox, in the words of the terminal (src/makai/core/confinement.py).
import type { Confinement } from "./protocol";

/** Arguments with which a model asks for more than the sandbox; what they open is shown instead. */
const ASKS = new Set(["network", "git", "write_folders", "no_sandbox"]);

/** One line each; empty when it is nothing. */
export function openedLines({ network = [], git, git_folders = [], folders = [], unsandboxed }: Confinement): string[] {
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
