// What a transcript shows: one item per thing a reader sees. A tool call, its approval and its result are one item.
import type { Confinement, FileDiff, FilePlace, OfferedGrant, PastedImage, PlanEntry } from "../protocol";

interface Base {
  /** Stable for as long as the item is shown. */
  key: string;
  /** The event it began with; 0 where the server did not say. */
  eventId: number;
  ts: string | null;
}

export interface UserItem extends Base {
  kind: "user";
  text: string;
  images: PastedImage[];
}

/** Words of the model. `streaming`: more may come. `brokenOff`: no more will come, and the text is incomplete. */
export interface TextItem extends Base {
  kind: "text" | "reasoning";
  text: string;
  contentIndex: number;
  streaming: boolean;
  brokenOff?: boolean;
  /** The last words before the next message: what people call the answer. */
  isFinal?: boolean;
}

export type ToolStatus = "called" | "awaiting" | "running" | "done" | "failed" | "denied" | "interrupted";

export interface DecisionMade {
  approved: boolean;
  by: string;
  reason: string;
  scope: string;
  grant: string;
  token: string;
}

export interface ToolItem extends Base {
  kind: "tool";
  callId: string;
  name: string;
  title: string;
  toolKind: string;
  args: Record<string, unknown>;
  argumentsError: string | null;
  locations: FilePlace[];
  status: ToolStatus;
  /** When it began to run, which may be long after it was called, and when it ended; null where that is not known. */
  startedAt: string | null;
  endedAt: string | null;
  /** What it has printed while it runs, the newest part. */
  progress: string;
  output: string | null;
  images: PastedImage[];
  diffs: FileDiff[];
  exitCode: number | null;
  omittedBytes: number;
  decision: DecisionMade | null;
}

export interface PlanItem extends Base {
  kind: "plan";
  entries: PlanEntry[];
}

export interface NoticeItem extends Base {
  kind: "notice";
  level: "info" | "warning" | "error";
  code: string;
  message: string;
  hint: string | null;
  /** The notice of the same id that comes later takes its place. */
  noticeId: string;
  /** When the wait that it is about ends, in milliseconds; null when nothing is waited for. */
  until: number | null;
}

/** A run ended without a whole answer: it failed, was stopped, or met a limit. */
export interface FailureItem extends Base {
  kind: "failure";
  level: "info" | "warning" | "error";
  code: string;
  message: string;
  hint: string | null;
  /** Empty where the server did not say. */
  runId: string;
  /** When the provider takes requests again, in milliseconds; null when it did not say. */
  until: number | null;
}

export interface CompactedItem extends Base {
  kind: "compacted";
  summary: string;
}

export type Item = UserItem | TextItem | ToolItem | PlanItem | NoticeItem | FailureItem | CompactedItem;

/** A call a person has to decide on. */
export interface Approval {
  callId: string;
  toolKey: string;
  argsJson: string;
  title: string;
  diffs: FileDiff[];
  digest: string | null;
  deadline: string | null;
  /** The rule a wider scope sets by default; empty: it can only be decided for this once. */
  grant: string;
  /** The rules that a wider scope may choose from, the narrowest first. */
  grants: OfferedGrant[];
  /** What another agent calls its own wider permission; empty when it offers none. */
  agentWider: string;
  /** What the call is given beyond the session's sandbox when it is approved. */
  confinement: Confinement;
  eventId: number;
}
