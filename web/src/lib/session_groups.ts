// The list of sessions as lines to draw: filtered, grouped by day or by folder, folded, and cut to what is on the screen.
// Pure. A line has a fixed height, so that a list of 10,000 sessions needs no measuring.
import type { SessionRow } from "./api";

export type Grouping = "day" | "folder";
export type Filter = "all" | "waiting" | "running" | "archived" | `agent:${string}`;

export interface Group {
  key: string;
  label: string;
  /** The full path of a folder; empty for days. */
  title: string;
  rows: readonly SessionRow[];
}

export type Line =
  | { kind: "heading"; key: string; group: Group; folded: boolean }
  | { kind: "runs"; key: string; rows: readonly SessionRow[]; open: boolean }
  | { kind: "row"; key: string; row: SessionRow; inset: boolean };

export const RUNNING: ReadonlySet<string> = new Set(["starting", "running", "aborting", "awaiting_approval"]);

export const isWaiting = (row: SessionRow): boolean => row.pending_approvals > 0 || row.status === "awaiting_approval";

/** The agent that runs a session, as the filter names it. */
export const agentOf = (row: SessionRow): string => row.harness || "native";

export function fits(row: SessionRow, filter: Filter): boolean {
  switch (filter) {
    case "all":
    case "archived":
      return true;
    case "waiting":
      return isWaiting(row);
    case "running":
      return RUNNING.has(row.status);
    default:
      return agentOf(row) === filter.slice("agent:".length);
  }
}

/** The agents that these sessions have, in the order of their names. */
export function agentsOf(rows: readonly SessionRow[]): string[] {
  return [...new Set(rows.map(agentOf))].sort();
}

/** When the local day began that a moment belongs to, or one so many days before. */
export function dayStart(now: number, daysBefore = 0): number {
  const day = new Date(now);
  day.setHours(0, 0, 0, 0);
  day.setDate(day.getDate() - daysBefore);
  return day.getTime();
}

function byDay(rows: readonly SessionRow[], now: number): Group[] {
  const days: [string, string, number][] = [
    ["today", "Today", dayStart(now)],
    ["yesterday", "Yesterday", dayStart(now, 1)],
    ["week", "Last 7 days", dayStart(now, 6)],
    ["older", "Older", -Infinity],
  ];
  const found = new Map<string, SessionRow[]>(days.map(([key]) => [key, []]));
  for (const row of rows) {
    const [key] = days.find(([, , since]) => row.updated_ms >= since) ?? ["older"];
    found.get(key)?.push(row);
  }
  return days.map(([key, label]) => ({ key: `day:${key}`, label, title: "", rows: found.get(key) ?? [] }));
}

const parts = (path: string): string[] => path.split(/[\\/]+/).filter(Boolean);

/** For each folder its last part, with the one above it where two folders would have the same name. */
export function shortNames(paths: readonly string[]): Map<string, string> {
  const counts = new Map<string, number>();
  for (const path of new Set(paths)) {
    const name = parts(path).at(-1) ?? path;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return new Map(
    paths.map((path) => {
      const name = parts(path).at(-1) ?? path;
      return [path, (counts.get(name) ?? 0) > 1 ? parts(path).slice(-2).join("/") : name];
    }),
  );
}

function byFolder(rows: readonly SessionRow[]): Group[] {
  const found = new Map<string, SessionRow[]>();
  for (const row of rows) {
    const folder = row.cwd ?? "";
    const rowsOf = found.get(folder);
    if (rowsOf) rowsOf.push(row);
    else found.set(folder, [row]);
  }
  const names = shortNames([...found.keys()].filter(Boolean));
  return [...found].map(([path, rowsOf]) => ({
    key: `folder:${path}`,
    label: names.get(path) ?? "No folder",
    title: path,
    rows: rowsOf,
  }));
}

/** Groups that have a session, the newest first. `now` says which day is today. */
export function grouped(rows: readonly SessionRow[], grouping: Grouping, now: number): Group[] {
  const newestFirst = [...rows].sort((one, other) => other.updated_ms - one.updated_ms);
  const groups = grouping === "day" ? byDay(newestFirst, now) : byFolder(newestFirst);
  return groups.filter((group) => group.rows.length);
}

/**
 * The lines of the groups. Finished sessions of `makai run` are one line per group, unless there is only one. `toggled`
 * holds the keys of headings that are folded and of run lines that are open; `open` is the session that is shown.
 */
export function linesOf(groups: readonly Group[], toggled: ReadonlySet<string>, open: string | null): Line[] {
  const lines: Line[] = [];
  for (const group of groups) {
    const folded = toggled.has(group.key);
    lines.push({ kind: "heading", key: group.key, group, folded });
    if (!folded) lines.push(...rowLines(group, toggled, open));
  }
  return lines;
}

function rowLines(group: Group, toggled: ReadonlySet<string>, open: string | null): Line[] {
  const key = `runs:${group.key}`;
  const areOpen = toggled.has(key);
  const isRun = (row: SessionRow): boolean =>
    row.made_by === "run" && !RUNNING.has(row.status) && !isWaiting(row) && (areOpen || row.session_id !== open);
  const runs = group.rows.filter(isRun);
  const together = runs.length > 1;
  const line = (row: SessionRow, inset: boolean): Line => ({ kind: "row", key: row.session_id, row, inset });
  return group.rows.flatMap((row): Line[] => {
    if (!together || !isRun(row)) return [line(row, false)];
    if (row !== runs[0]) return [];
    return [{ kind: "runs", key, rows: runs, open: areOpen }, ...(areOpen ? runs.map((one) => line(one, true)) : [])];
  });
}

// ------------------------------------------------------------ the part on the screen

/** Where each line begins, and after the last one where all end. */
export function offsetsOf(lines: readonly Line[], heights: Record<Line["kind"], number>): number[] {
  const offsets = [0];
  let top = 0;
  for (const line of lines) offsets.push((top += heights[line.kind]));
  return offsets;
}

/** The first line that ends below `y`. */
export function lineAt(offsets: readonly number[], y: number): number {
  let from = 0;
  let to = Math.max(0, offsets.length - 2);
  while (from < to) {
    const middle = (from + to) >> 1;
    if ((offsets[middle + 1] ?? 0) > y) to = middle;
    else from = middle + 1;
  }
  return from;
}

/**
 * By how much to scroll so that what the reader looks at stays where it is, after the list changed. The middle of all
 * shifts counts: one session that moved to the top must not take the reader along.
 */
export function shiftOf(
  seen: readonly { key: string; top: number }[],
  lines: readonly Line[],
  offsets: readonly number[],
): number {
  const wanted = new Set(seen.map(({ key }) => key));
  const tops = new Map<string, number>();
  lines.forEach((line, at) => {
    if (wanted.has(line.key)) tops.set(line.key, offsets[at] ?? 0);
  });
  const shifts = seen
    .flatMap(({ key, top }) => {
      const now = tops.get(key);
      return now === undefined ? [] : [now - top];
    })
    .sort((one, other) => one - other);
  return shifts[shifts.length >> 1] ?? 0;
}

/** The ids of the sessions from one line to another, both included, whichever is first. */
export function idsBetween(lines: readonly Line[], from: string, to: string): string[] {
  const ends = [lines.findIndex(({ key }) => key === from), lines.findIndex(({ key }) => key === to)];
  if (ends.includes(-1)) return lines.some(({ key }) => key === to) ? [to] : [];
  return lines
    .slice(Math.min(...ends), Math.max(...ends) + 1)
    .flatMap((line) => (line.kind === "row" ? [line.row.session_id] : []));
}
