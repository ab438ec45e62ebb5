// What was used, added up for the charts and the table, and as a file for a spreadsheet.
import type { UsageRow } from "./api/usage";

export type GroupBy = "day" | "model_ref" | "harness" | "cwd";

export interface Total {
  key: string;
  runs: number;
  input: number;
  output: number;
  cacheRead: number;
  cacheWrite: number;
  /** Of the runs whose price is known. */
  cost: number;
  /** How many runs have no known price: the cost is at least what it says. */
  unpriced: number;
}

const nothing = (key: string): Total => ({ key, runs: 0, input: 0, output: 0, cacheRead: 0, cacheWrite: 0, cost: 0, unpriced: 0 });

function add(total: Total, row: UsageRow): void {
  total.runs += row.runs;
  total.input += row.input;
  total.output += row.output;
  total.cacheRead += row.cache_read;
  total.cacheWrite += row.cache_write;
  total.cost += row.cost_usd ?? 0;
  if (row.cost_usd === null) total.unpriced += row.runs;
}

export function totalOf(rows: readonly UsageRow[]): Total {
  const total = nothing("");
  for (const row of rows) add(total, row);
  return total;
}

/** Every token that was sent or received. */
export const tokensOf = (total: Total): number => total.input + total.output + total.cacheRead + total.cacheWrite;

/** The totals by a field, the largest first; days in their order. */
export function totalsBy(rows: readonly UsageRow[], by: GroupBy): Total[] {
  const found = new Map<string, Total>();
  for (const row of rows) {
    const key = row[by] ?? "";
    const total = found.get(key) ?? nothing(key);
    found.set(key, total);
    add(total, row);
  }
  const totals = [...found.values()];
  if (by === "day") return totals.sort((one, other) => (one.key < other.key ? -1 : 1));
  return totals.sort((one, other) => other.cost - one.cost || tokensOf(other) - tokensOf(one) || (one.key < other.key ? -1 : 1));
}

/** One total for each of the last days up to `today` (2026-11-17), also for those on which nothing happened. */
export function lastDays(rows: readonly UsageRow[], days: number, today: string): Total[] {
  const known = new Map(totalsBy(rows, "day").map((total) => [total.key, total]));
  const end = Date.parse(`${today}T00:00:00Z`);
  return Array.from({ length: days }, (_, at) => {
    const day = new Date(end - (days - 1 - at) * 86_400_000).toISOString().slice(0, 10);
    return known.get(day) ?? nothing(day);
  });
}

/** Today where the reader is. */
export function localDay(now: Date): string {
  return new Date(now.getTime() - now.getTimezoneOffset() * 60_000).toISOString().slice(0, 10);
}

const COLUMNS = ["day", "model_ref", "harness", "cwd", "runs", "input", "output", "cache_read", "cache_write", "cost_usd"] as const;

/** All rows as CSV; a price that is not known is an empty cell. */
export function csvOf(rows: readonly UsageRow[]): string {
  const lines = rows.map((row) => COLUMNS.map((column) => cell(row[column])).join(","));
  return [COLUMNS.join(","), ...lines, ""].join("\r\n");
}

function cell(value: string | number | null): string {
  if (typeof value === "number") return String(value);
  // A spreadsheet would calculate what begins like a formula.
  const text = /^[=+\-@\t\r]/.test(value ?? "") ? `'${value}` : (value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
