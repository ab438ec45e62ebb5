// What the view of a session says about file changes, for the list of changed files and for undo.
import type { FileDiff } from "./protocol";
import type { Item, ToolItem, UserItem } from "./store/items";
import type { Chunks } from "./store/transcript";

export interface ChangingMessage {
  eventId: number;
  text: string;
}

const MAX_MESSAGES = 50;
const MAX_LOOKED_AT = 400;
const RESTORED = new Set(["files_restored", "files_not_restored"]);

/** Messages after which tools changed files, the newest first: what an undo can go back to. */
export function changingMessages(chunks: Chunks): ChangingMessage[] {
  const found: ChangingMessage[] = [];
  let changed = false;
  for (const item of newestFirst(chunks, Infinity)) {
    if (item.kind === "tool" && item.diffs.length) changed = true;
    if (item.kind !== "user" || !changed) continue;
    if (item.eventId) found.push({ eventId: item.eventId, text: firstLine(item) });
    changed = false;
    if (found.length === MAX_MESSAGES) break;
  }
  return found;
}

/** Stands for the last change of files, or undo of one; another value says that files may be others now. */
export function lastChange(chunks: Chunks): string {
  for (const item of newestFirst(chunks, MAX_LOOKED_AT)) {
    if (item.kind === "tool" && item.diffs.length) return `${item.key} ${item.status}`;
    if (item.kind === "notice" && RESTORED.has(item.code)) return item.key;
  }
  return "";
}

/** Commands of a run that print now, and the one that was chosen. */
export function commands(chunks: Chunks, chosen: string): ToolItem[] {
  const found: ToolItem[] = [];
  for (const item of newestFirst(chunks, Infinity))
    if (item.kind === "tool" && isCommand(item) && (item.callId === chosen || item.status === "running")) found.push(item);
  return found.reverse();
}

/** The command that a key opens: the newest one that runs, else the newest one. */
export function newestCommand(chunks: Chunks): ToolItem | null {
  let newest: ToolItem | null = null;
  for (const item of newestFirst(chunks, MAX_LOOKED_AT)) {
    if (item.kind !== "tool" || !isCommand(item)) continue;
    if (item.status === "running") return item;
    if (newest === null && item.output !== null) newest = item;
  }
  return newest;
}

export function isCommand(item: ToolItem): boolean {
  return item.toolKind === "execute" || typeof item.args["command"] === "string";
}

/** The files with the objects of before where nothing changed: what is drawn of them stays. */
export function kept(before: readonly FileDiff[], after: readonly FileDiff[]): FileDiff[] {
  const known = new Map(before.map((file) => [file.path, file]));
  return after.map((file) => {
    const old = known.get(file.path);
    return old && old.old_text === file.old_text && old.new_text === file.new_text ? old : file;
  });
}

/** A path below the session's folder without it. */
export function shortPath(path: string, folder: string): string {
  return folder && path.startsWith(`${folder}/`) ? path.slice(folder.length + 1) : path;
}

function firstLine(item: UserItem): string {
  return item.text.trim().split("\n", 1)[0] ?? "";
}

function* newestFirst(chunks: Chunks, most: number): Generator<Item> {
  let left = most;
  for (let at = chunks.length - 1; at >= 0; at--) {
    const items = chunks[at]?.items ?? [];
    for (let inner = items.length - 1; inner >= 0; inner--) {
      if (left-- <= 0) return;
      yield items[inner] as Item;
    }
  }
}
