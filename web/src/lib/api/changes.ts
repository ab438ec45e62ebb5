// What the page asks about the files that a session changed: their differences, and what an undo or a redo would do.
import type { FileDiff } from "../protocol";
import { addressPart, ask } from "./http";

export type RestoreDirection = "undo" | "redo";

/** Which changes an undo or a redo is about. */
export interface RestoreChoice {
  /** How many messages with file changes, from the last one back; 1 when it is not given. */
  count?: number;
  /** The event of a message: everything since then, in place of `count`. */
  to?: number;
  /** Only these files. */
  paths?: readonly string[];
}

export interface FileRestorePlan {
  path: string;
  kind: "create" | "change" | "remove" | "keep";
  added?: number;
  removed?: number;
  /** Why it cannot be restored. */
  refusal?: string;
}

/** What an undo or a redo of file changes would do. */
export interface RestorePlan {
  message: number;
  /** The beginning of the message. */
  text: string;
  plan_id: string;
  files: FileRestorePlan[];
  notes?: string[];
  diffs?: FileDiff[];
}

/** What fits into an address, with room for the rest of it. */
const MAX_ADDRESS = 7000;

export const changesApi = {
  diff: (sessionId: string) => ask<{ files: FileDiff[] }>("GET", `/api/sessions/${addressPart(sessionId)}/diff`),
  plan: (sessionId: string, direction: RestoreDirection, choice: RestoreChoice, withDiffs: boolean) => {
    const address = `/api/sessions/${addressPart(sessionId)}/restore?${restoreQuery(direction, choice)}${withDiffs ? "&diffs=1" : ""}`;
    if (address.length > MAX_ADDRESS) return Promise.reject(new Error("These are too many single files. Choose fewer, or all of them."));
    return ask<RestorePlan>("GET", address);
  },
};

export function restoreQuery(direction: RestoreDirection, { count, to, paths = [] }: RestoreChoice): string {
  return [
    `direction=${direction}`,
    ...(to === undefined ? [] : [`to=${to}`]),
    ...(count === undefined ? [] : [`count=${count}`]),
    ...paths.map((path) => `path=${addressPart(path)}`),
  ].join("&");
}
