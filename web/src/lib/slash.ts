// Slash commands: those that the page carries out itself, which ones a text may mean, and how a line is read. Pure.
export interface Command {
  name: string;
  /** What it takes, for the reader; in brackets when it may be left out. */
  argument: string;
  description: string;
}

interface PageCommand extends Command {
  /** Whether it makes sense before there is a session. */
  home: boolean;
  /** The server replaces it by a message. */
  sends?: boolean;
}

export const PAGE_COMMANDS: readonly PageCommand[] = [
  { name: "model", argument: "", description: "choose the model, from the next message on", home: true },
  { name: "mode", argument: "[MODE]", description: "change the permission mode: ask, accept_edits, plan or never_ask", home: false },
  { name: "steer", argument: "TEXT", description: "send the agent a message while it works", home: false },
  { name: "compact", argument: "", description: "replace the conversation so far by a summary", home: false },
  { name: "new", argument: "", description: "begin a new session", home: false },
  { name: "fork", argument: "", description: "branch: continue in a copy of this session", home: false },
  { name: "undo", argument: "", description: "restore files to before your last message", home: false },
  { name: "redo", argument: "", description: "bring back what was undone", home: false },
  { name: "title", argument: "[TEXT]", description: "change the title of the session", home: false },
  { name: "export", argument: "[md|jsonl]", description: "download the session: md to read, jsonl for all events", home: false },
  { name: "copy", argument: "", description: "copy the last answer to the clipboard", home: false },
  { name: "diff", argument: "", description: "show the files that the session changed", home: false },
  { name: "context", argument: "", description: "show how full the model's context is", home: false },
  { name: "cost", argument: "", description: "show tokens and costs", home: true },
  { name: "mcp", argument: "", description: "show MCP servers and their tools", home: true },
  { name: "trust", argument: "", description: "show the folders that you trust", home: true },
  { name: "folder", argument: "", description: "choose the folder to work in", home: true },
  { name: "agent", argument: "", description: "choose the agent", home: true },
  { name: "init", argument: "[HINTS]", description: "let the agent write AGENTS.md about this project", home: true, sends: true },
  { name: "review", argument: "[HINTS]", description: "let the agent review your uncommitted changes", home: true, sends: true },
  { name: "login", argument: "", description: "log in to a provider, or paste an API key", home: true },
  { name: "help", argument: "", description: "show the keys of this page", home: true },
];
const ONLY_HOME = new Set(["folder", "agent"]);

/** The commands of the page here, then those of the user and of servers. Of two with one name the page's counts. */
export function offered(isHome: boolean, custom: readonly Command[]): Command[] {
  const own = PAGE_COMMANDS.filter((one) => (isHome ? one.home : !ONLY_HOME.has(one.name)));
  const taken = new Set(own.map((one) => one.name));
  return [...own, ...custom.filter((one) => !taken.has(one.name))];
}

/** The name and the argument; null for a message, such as one that begins with a path. */
export function parseCommand(text: string): { name: string; argument: string } | null {
  const found = /^\/([^\s/]+)(?:\s+([\s\S]*))?$/.exec(text.trim());
  return found ? { name: (found[1] ?? "").toLowerCase(), argument: (found[2] ?? "").trim() } : null;
}

/** Whether the page carries it out; others are replaced by a message on the server. */
export const isOfThePage = (name: string): boolean => PAGE_COMMANDS.some((one) => one.name === name && !one.sends);

/** The name that is being typed: the field holds nothing else before the cursor. */
export function nameBeingTyped(before: string): string | null {
  return /^\/([^\s/]*)$/.exec(before)?.[1]?.toLowerCase() ?? null;
}

/** The commands that a beginning may mean: whose name it begins, then those that have its letters in order. */
export function matching(begun: string, commands: readonly Command[]): Command[] {
  const first = commands.filter((one) => one.name.startsWith(begun));
  const letters = (name: string): boolean => {
    let at = 0;
    for (const letter of name) if (letter === begun[at]) at++;
    return at === begun.length;
  };
  return [...first, ...commands.filter((one) => !one.name.startsWith(begun) && letters(one.name))];
}

/** Whether it can be sent without an argument. */
export const isComplete = (command: Command): boolean => command.argument === "" || command.argument.startsWith("[") || command.argument.endsWith("(optional)");
