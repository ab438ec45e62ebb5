// What changed between two looks at the sessions that a person wants to hear of while the page is not in sight. Pure.
import type { PendingApproval, SessionRow } from "./api";

export type NoticeKind = "approval" | "finished" | "failed";

export interface Notice {
  kind: NoticeKind;
  sessionId: string;
  title: string;
  body: string;
  /** The same for the same event, so that it is shown once. */
  tag: string;
}

export interface Look {
  rows: readonly Pick<SessionRow, "session_id" | "title" | "status" | "updated_ms">[];
  pending: readonly PendingApproval[];
}

const RUNNING = new Set(["starting", "running", "aborting", "awaiting_approval"]);

export function noticesOf(before: Look, after: Look): Notice[] {
  const known = new Set(before.pending.map((one) => `${one.session_id} ${one.call_id}`));
  const titles = new Map(after.rows.map((row) => [row.session_id, row.title || "Untitled"]));
  const asked: Notice[] = after.pending
    .filter((one) => !known.has(`${one.session_id} ${one.call_id}`))
    .map((one) => ({
      kind: "approval",
      sessionId: one.session_id,
      title: `${titles.get(one.session_id) ?? "A session"} waits for you`,
      body: one.title || one.tool_key,
      tag: `approval ${one.session_id} ${one.call_id}`,
    }));
  const was = new Map(before.rows.map((row) => [row.session_id, row.status]));
  const ended: Notice[] = after.rows
    .filter((row) => RUNNING.has(was.get(row.session_id) ?? "") && !RUNNING.has(row.status))
    .map((row) => {
      const failed = row.status === "error";
      return {
        kind: failed ? "failed" : "finished",
        sessionId: row.session_id,
        title: row.title || "Untitled",
        body: failed ? "The run failed. Open it to see why." : "The run has ended.",
        tag: `end ${row.session_id} ${row.updated_ms}`,
      };
    });
  return [...asked, ...ended];
}
