// Everything the page knows about one session, and what follows from it. Only the fold changes it.
import type { PermissionMode, RunStatus, SandboxLevel, Usage, WaitingInput } from "../protocol";
import type { Approval, ToolItem } from "./items";
import { findLast, type Chunks } from "./transcript";

export interface Run {
  runId: string;
  status: RunStatus;
  startedAt: string;
}

export interface SessionView {
  sessionId: string;
  /** Whether a snapshot has been seen: before that, nothing is known. */
  loaded: boolean;
  title: string;
  modelRef: string;
  mode: PermissionMode;
  sandbox: SandboxLevel;
  /** How much the model reasons; empty: as it does by itself. */
  effort: string;
  archived: boolean;
  harness: string;
  cwd: string;
  closed: boolean;
  /** The session from which this one was branched; empty when it is none. */
  forkedFrom: string;
  chunks: Chunks;
  /** Where older items end that are not here; null when all are. */
  before: number | null;
  /** The cursor: the last event that is contained. */
  lastEventId: number;
  run: Run | null;
  approvals: readonly Approval[];
  waiting: readonly WaitingInput[];
  /** The newest call that changed files, by its event: what was said before it can be undone. */
  lastChangeId: number;
  usage: Usage | null;
  contextTokens: number | null;
  contextWindow: number | null;
  /** `client_msg_id`s the server has taken: what is in here need not be sent again. */
  taken: ReadonlySet<string>;
}

export function emptyView(sessionId: string): SessionView {
  return {
    sessionId,
    loaded: false,
    title: "",
    modelRef: "",
    mode: "ask",
    sandbox: "workspace-write",
    effort: "",
    archived: false,
    harness: "",
    cwd: "",
    closed: false,
    forkedFrom: "",
    chunks: [],
    before: null,
    lastEventId: 0,
    run: null,
    approvals: [],
    waiting: [],
    lastChangeId: 0,
    usage: null,
    contextTokens: null,
    contextWindow: null,
    taken: new Set(),
  };
}

/** Whether a run is active: a message sent now would wait. */
export function isBusy(view: SessionView): boolean {
  return view.run !== null;
}

/** What is going on, in words, without claims about what cannot be known. */
export function activity(view: SessionView): string {
  switch (view.run?.status) {
    case undefined:
      return "";
    case "starting":
      return "Starting";
    case "awaiting_approval":
      return "Waiting for your approval";
    case "aborting":
      return "Stopping";
    default:
  }
  const tool = findLast(view.chunks, (item): item is ToolItem => item.kind === "tool", 30);
  if (tool?.status === "running") return `Running ${tool.name}`;
  const last = view.chunks.at(-1)?.items.at(-1);
  if (last?.kind === "text" && last.streaming) return "Answering";
  if (last?.kind === "reasoning" && last.streaming) return "Thinking";
  return "Waiting for the model";
}
