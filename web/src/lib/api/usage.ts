// What was used, per day, model, agent and folder.
import { ask } from "./http";

export interface UsageRow {
  /** In the reader's own time zone, as 2026-11-17. */
  day: string;
  model_ref: string;
  harness: string;
  cwd: string | null;
  runs: number;
  input: number;
  output: number;
  cache_read: number;
  cache_write: number;
  /** null when the price of the model is not known. */
  cost_usd: number | null;
}

export interface Usage {
  rows: UsageRow[];
  /** False while the server is still reading older sessions. */
  complete: boolean;
}

export const usageApi = {
  read: (days: number) =>
    ask<Usage>("GET", `/api/usage?days=${days}&tz_minutes=${-new Date().getTimezoneOffset()}`),
};
