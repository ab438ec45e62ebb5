// Frames in, view out: the page's only idea of what is true comes from here. Pure: `fold(view, frames)` is a new view.
// Frames that are already contained are skipped (a replay may repeat them), unknown ones are ignored.
import type {
  ApprovalDecision,
  AssistantTextItem,
  ErrorFrame,
  FunctionCallOutputItem,
  Notice,
  ReasoningItem,
  RunState,
  ServerMessage,
  SessionDetails,
  Snapshot,
  StopReason,
  ToolCallItem,
  TranscriptItem,
  UserTextItem,
} from "../protocol";
import type { Approval, FailureItem, Item, NoticeItem, PlanItem, TextItem, ToolItem, UserItem } from "./items";
import { append, chunked, findLast, mapLast, replace, trimmed, without, type Chunks } from "./transcript";
import { emptyView, type SessionView } from "./view";

/** How much of a running tool's output is kept for display. */
const MAX_PROGRESS = 100_000;
const RECENT_CHUNKS = 6;
const CUT_SHORT: Partial<Record<StopReason, string>> = {
  max_tokens: "The answer was cut off at a token limit.",
  max_turns: "Stopped at a limit of turns or time.",
  refusal: "The model declined to answer.",
};
const BROKEN: ReadonlySet<StopReason> = new Set<StopReason>(["error", "aborted"]);

type Stamp = { event_id?: number; ts?: string };
type WithItem = Extract<TranscriptItem, { type: ServerMessage["type"] }>;

export function fold(view: SessionView, frames: readonly ServerMessage[]): SessionView {
  let next = view;
  for (const frame of joined(frames, view.lastEventId)) next = apply(next, frame);
  const fewer = next.chunks === view.chunks ? null : trimmed(next.chunks);
  return fewer ? { ...next, chunks: fewer, before: fewer[0]?.items[0]?.eventId ?? next.before } : next;
}

/** Older items, as /transcript gives them, in front of what is there. */
export function prepend(view: SessionView, items: readonly TranscriptItem[], before: number | null): SessionView {
  const page = items.reduce(addListed, { ...emptyView(view.sessionId), loaded: true });
  const older = mapLast(page.chunks, Infinity, (item) => closedText(item));
  // A result whose call was on the older page stood alone so far: now it joins its call.
  const answered = view.chunks[0]?.items[0]?.kind === "user" ? withAnswer(older) : older;
  let chunks: Chunks = [...answered, ...view.chunks];
  for (const item of view.chunks[0]?.items ?? []) {
    if (item.kind !== "tool" || item.name !== "") continue;
    const call = findLast(older, (one): one is ToolItem => one.kind === "tool" && one.callId === item.callId);
    if (call) chunks = replace(without(chunks, item.key), { ...item, ...callPart(call), key: call.key });
  }
  return { ...view, chunks, before, lastChangeId: Math.max(view.lastChangeId, page.lastChangeId) };
}

/**
 * Without what is contained already, and with deltas of one block that follow each other as one: a replay of 100,000
 * costs as much as a few.
 */
function joined(frames: readonly ServerMessage[], contained: number): ServerMessage[] {
  const found: ServerMessage[] = [];
  let seen = contained;
  for (const frame of frames) {
    const eventId = "event_id" in frame ? frame.event_id : undefined;
    if (frame.type === "snapshot") seen = frame.event_id;
    else if (eventId !== undefined && eventId <= seen) continue;
    else if (eventId !== undefined) seen = eventId;
    const last = found.at(-1);
    if (
      (frame.type === "assistant_text_delta" || frame.type === "reasoning_delta") &&
      last?.type === frame.type &&
      last.content_index === frame.content_index
    )
      found[found.length - 1] = { ...last, text: last.text + frame.text, event_id: frame.event_id };
    else found.push(frame);
  }
  return found;
}

function apply(view: SessionView, frame: ServerMessage): SessionView {
  if (frame.type === "snapshot") return fromSnapshot(view, frame);
  if (frame.type === "session_details") return withDetails(view, frame);
  const eventId = "event_id" in frame ? frame.event_id : undefined;
  if (eventId === undefined) return view;
  return { ...applyEvent(view, frame), lastEventId: eventId };
}

function applyEvent(view: SessionView, frame: ServerMessage): SessionView {
  switch (frame.type) {
    case "run_status":
      return withRun(view, frame.run_state);
    case "turn_done":
    case "run_ended":
      return withEnd(settled(view), frame);
    case "assistant_text_delta":
      return grown(view, "text", frame.content_index ?? 0, frame.text, frame);
    case "reasoning_delta":
      return grown(view, "reasoning", frame.content_index ?? 0, frame.text, frame);
    case "input_accepted": {
      const { input_id, text, delivery, client_msg_id, images } = frame;
      const waiting = {
        ...{ input_id, text, delivery },
        ...(client_msg_id === undefined ? {} : { client_msg_id }),
        ...(images === undefined ? {} : { images }),
      };
      return { ...view, waiting: [...view.waiting, waiting], taken: withTaken(view, client_msg_id) };
    }
    case "input_withdrawn":
      return { ...view, waiting: view.waiting.filter((one) => one.input_id !== frame.input_id) };
    case "title_changed":
      return { ...view, title: frame.title };
    case "model_changed":
      return { ...view, modelRef: frame.model_ref };
    case "agent_changed":
      return { ...view, harness: frame.harness, modelRef: frame.model_ref };
    case "mode_changed":
      return { ...view, mode: frame.mode };
    case "terms_changed":
      return { ...view, sandbox: frame.sandbox, effort: frame.reasoning_effort ?? "" };
    case "session_archived":
      return { ...view, archived: frame.archived };
    case "usage":
      return {
        ...view,
        usage: frame.total,
        contextTokens: frame.context_tokens ?? view.contextTokens,
        contextWindow: frame.context_window ?? view.contextWindow,
      };
    case "session_closed":
      return { ...settled(view), closed: true };
    case "turn_started":
      return ended(view, closedText);
    case "turn_ended":
      return ended(view, BROKEN.has(frame.stop_reason) ? brokenText : closedText);
    case "user_text":
    case "assistant_text":
    case "reasoning":
    case "tool_call":
    case "function_call_output":
    case "approval_pending":
    case "approval_decision":
    case "tool_started":
    case "tool_progress":
    case "plan":
    case "notice":
    case "compacted":
    case "error":
      return addItem(view, frame as WithItem);
    default:
      return view;
  }
}

/** An item of a transcript. There every text stands alone: one that was broken off is not continued by the next. */
function addListed(view: SessionView, item: TranscriptItem): SessionView {
  const kind = item.type === "assistant_text" ? "text" : item.type === "reasoning" ? "reasoning" : null;
  if (kind === null || !("content_index" in item)) return addItem(view, item);
  const open = findLast(view.chunks, isOpenText(kind, item.content_index ?? 0), 20);
  return addItem(open ? { ...view, chunks: replace(view.chunks, closedText(open)) } : view, item);
}

/** What may also stand in a transcript. */
function addItem(view: SessionView, item: TranscriptItem): SessionView {
  switch (item.type) {
    case "user_text":
      return withUserText(view, item);
    case "assistant_text":
      return whole(view, "text", item);
    case "reasoning":
      return whole(view, "reasoning", item);
    case "tool_call":
      return added(view, toolItem(item));
    case "function_call_output":
      return withOutput(view, item);
    case "approval_pending": {
      const { call_id: callId, tool_key: toolKey, args_json: argsJson, event_id: eventId } = item;
      const approval: Approval = {
        callId,
        toolKey,
        argsJson,
        eventId,
        title: item.title ?? "",
        diffs: item.diffs ?? [],
        digest: item.digest ?? null,
        deadline: item.deadline ?? null,
        grant: item.grant ?? "",
        grants: item.grants ?? [],
        agentWider: item.agent_wider ?? "",
        confinement: item.confinement ?? {},
      };
      const others = view.approvals.filter((one) => one.callId !== callId);
      const next = { ...view, approvals: [...others, approval] };
      return withTool(next, callId, (tool) => ({ ...tool, status: "awaiting" }));
    }
    case "approval_decision":
      return withDecision(view, item);
    case "tool_started":
      return withTool(view, item.call_id, (tool) => ({ ...tool, status: "running", startedAt: item.ts ?? null }));
    case "tool_progress":
      return withTool(view, item.call_id, (tool) => ({ ...tool, progress: (tool.progress + item.text).slice(-MAX_PROGRESS) }));
    case "plan":
      return withPlan(view, { ...base(item), kind: "plan", entries: item.entries });
    case "notice":
      return withNotice(view, item);
    case "compacted":
      // It says what the notice before it announced.
      return added(withoutLast(view, (one) => one.kind === "notice" && one.code === "compacting"), {
        ...base(item),
        kind: "compacted",
        summary: item.summary,
      });
    case "error":
      return withError(view, item);
    default:
      return view;
  }
}

function fromSnapshot(view: SessionView, frame: Snapshot): SessionView {
  const start: SessionView = {
    ...emptyView(frame.session_state.session_id),
    title: view.title,
    modelRef: view.modelRef,
    ...{ mode: view.mode, sandbox: view.sandbox, effort: view.effort },
    ...{ harness: view.harness, cwd: view.cwd, archived: view.archived },
    forkedFrom: view.forkedFrom,
    usage: view.usage,
    contextTokens: view.contextTokens,
    contextWindow: view.contextWindow,
    waiting: view.waiting,
    taken: view.taken,
  };
  const filled = frame.transcript.reduce(addListed, start);
  const items = filled.chunks.flatMap((chunk) => chunk.items);
  // What was broken off in an earlier run grows no more.
  const lastOpen = items.findLastIndex((item) => item.kind === "user");
  const closed = items.map((item, at) => (at < lastOpen ? closedText(item) : item));
  const next = { ...filled, chunks: chunked(closed), loaded: true, before: frame.before ?? null };
  const running = frame.run_state ? withRun(next, frame.run_state) : settled(next);
  return { ...running, lastEventId: frame.event_id };
}

function withDetails(view: SessionView, frame: SessionDetails): SessionView {
  const taken = new Set(view.taken);
  for (const { client_msg_id } of frame.waiting) if (client_msg_id !== undefined) taken.add(client_msg_id);
  return {
    ...view,
    title: frame.title,
    modelRef: frame.model_ref,
    mode: frame.mode,
    sandbox: frame.sandbox,
    effort: frame.reasoning_effort ?? "",
    archived: frame.archived ?? false,
    harness: frame.harness,
    cwd: frame.cwd ?? "",
    closed: frame.closed,
    forkedFrom: frame.forked_from ?? "",
    waiting: frame.waiting,
    usage: frame.usage ?? null,
    contextTokens: frame.context_tokens ?? null,
    contextWindow: frame.context_window ?? null,
    taken,
  };
}

function withRun(view: SessionView, state: RunState): SessionView {
  if (state.status === "finished" || state.status === "error" || state.status === "idle") return settled(view);
  const open = new Set(state.pending_approvals.map((brief) => brief.call_id));
  const known = new Set(view.approvals.map((approval) => approval.callId));
  // The document's brief is enough to decide; what makai.1 adds comes with `approval_pending`.
  const briefs = state.pending_approvals
    .filter((brief) => !known.has(brief.call_id))
    .map((brief) => ({
      callId: brief.call_id,
      toolKey: brief.tool_key,
      argsJson: JSON.stringify(brief.args),
      title: "",
      diffs: [],
      digest: null,
      deadline: null,
      grant: "",
      grants: [],
      agentWider: "",
      confinement: {},
      eventId: 0,
    }));
  return {
    ...view,
    run: { runId: state.run_id, status: state.status, startedAt: state.started_at },
    approvals: [...view.approvals.filter((approval) => open.has(approval.callId)), ...briefs],
  };
}

/** No run is active: nothing streams, waits or runs any more. */
function settled(view: SessionView): SessionView {
  const chunks = mapLast(view.chunks, RECENT_CHUNKS, (item) => {
    if (item.kind === "tool" && ["called", "awaiting", "running"].includes(item.status))
      return { ...item, status: "interrupted" as const };
    return closedText(item);
  });
  return { ...view, run: null, approvals: [], chunks: withAnswer(chunks) };
}

/** The last words before the end of the list are an answer, and stay one. */
function withAnswer(chunks: Chunks): Chunks {
  const last = findLast(chunks, (item): item is TextItem | UserItem => item.kind === "text" || item.kind === "user", 200);
  return last?.kind === "text" && !last.isFinal ? replace(chunks, { ...last, isFinal: true }) : chunks;
}

/** Only an end that cuts an answer short is worth a line. */
function withEnd(view: SessionView, frame: Extract<ServerMessage, { type: "turn_done" | "run_ended" }>): SessionView {
  const words = frame.stop_reason && CUT_SHORT[frame.stop_reason];
  if (!words) return view;
  // The notice before it says the same, and which limit it was.
  const last = view.chunks.at(-1)?.items.at(-1);
  const limit = last?.kind === "notice" && last.code.startsWith("limit_") ? last.message : null;
  const before = limit === null ? view : withoutLast(view, () => true);
  return added(before, failure(frame, "warning", (frame.stop_reason ?? "").toUpperCase(), limit ?? words));
}

function ended(view: SessionView, how: (item: Item) => Item): SessionView {
  return { ...view, chunks: mapLast(view.chunks, RECENT_CHUNKS, how) };
}

function closedText(item: Item): Item {
  if (item.kind === "notice" && item.until !== null) return { ...item, until: null };
  return (item.kind === "text" || item.kind === "reasoning") && item.streaming ? { ...item, streaming: false } : item;
}

/** A turn broke off: what still grew in it stays incomplete. */
function brokenText(item: Item): Item {
  return (item.kind === "text" || item.kind === "reasoning") && item.streaming
    ? { ...item, streaming: false, brokenOff: true }
    : closedText(item);
}

function withUserText(view: SessionView, item: UserTextItem): SessionView {
  const user: UserItem = { ...base(item), kind: "user", text: item.text, images: item.images ?? [] };
  return {
    ...added({ ...view, chunks: withAnswer(view.chunks) }, user),
    waiting: view.waiting.filter((one) => one.input_id !== item.input_id),
    taken: withTaken(view, item.client_msg_id),
  };
}

function withTaken(view: SessionView, clientMsgId: string | undefined): ReadonlySet<string> {
  return clientMsgId === undefined ? view.taken : new Set([...view.taken, clientMsgId].slice(-200));
}

function isOpenText(kind: TextItem["kind"], contentIndex: number): (item: Item) => item is TextItem {
  return (item): item is TextItem => item.kind === kind && item.streaming && item.contentIndex === contentIndex;
}

function grown(view: SessionView, kind: TextItem["kind"], contentIndex: number, text: string, stamp: Stamp): SessionView {
  const open = findLast(view.chunks, isOpenText(kind, contentIndex), 20);
  if (open) return { ...view, chunks: replace(view.chunks, { ...open, text: open.text + text }) };
  return added(view, { ...base(stamp), kind, text, contentIndex, streaming: true });
}

function whole(view: SessionView, kind: TextItem["kind"], item: AssistantTextItem | ReasoningItem): SessionView {
  const { text, content_index: contentIndex = 0, whole: isWhole = true, broken_off: brokenOff = false } = item;
  const said = { text, streaming: !isWhole && !brokenOff, ...(brokenOff ? { brokenOff } : {}) };
  const open = findLast(view.chunks, isOpenText(kind, contentIndex), 20);
  if (open) return { ...view, chunks: replace(view.chunks, { ...open, ...said }) };
  return added(view, { ...base(item), kind, contentIndex, ...said });
}

function toolItem(item: ToolCallItem): ToolItem {
  return {
    ...base(item),
    kind: "tool",
    callId: item.call_id,
    name: item.name,
    title: item.title ?? "",
    toolKind: item.kind ?? "other",
    args: item.args,
    argumentsError: item.arguments_error ?? null,
    locations: item.locations ?? [],
    status: "called",
    startedAt: null,
    endedAt: null,
    progress: "",
    output: null,
    images: [],
    diffs: [],
    exitCode: null,
    omittedBytes: 0,
    decision: null,
  };
}

function callPart(call: ToolItem): Partial<ToolItem> {
  const { name, title, toolKind, args, argumentsError, locations, eventId, ts, decision } = call;
  return { name, title, toolKind, args, argumentsError, locations, eventId, ts, decision };
}

function withTool(view: SessionView, callId: string, change: (tool: ToolItem) => ToolItem): SessionView {
  const tool = findLast(view.chunks, (item): item is ToolItem => item.kind === "tool" && item.callId === callId);
  return tool ? { ...view, chunks: replace(view.chunks, change(tool)) } : view;
}

function withOutput(view: SessionView, item: FunctionCallOutputItem): SessionView {
  const known = findLast(view.chunks, (one): one is ToolItem => one.kind === "tool" && one.callId === item.call_id);
  const tool = known ?? { ...toolItem({ ...item, type: "tool_call", name: "", args: {} }), key: `o${item.event_id}` };
  const images = item.result.content.flatMap((part) =>
    part.type === "image" ? [{ data: part.data, mime_type: part.mimeType }] : [],
  );
  const failed = item.is_error ?? item.result.isError;
  const status = item.interrupted ? "interrupted" : tool.status === "denied" ? "denied" : failed ? "failed" : "done";
  const finished: ToolItem = {
    ...tool,
    status,
    endedAt: item.ts ?? null,
    progress: "",
    // What was cut off has no output of its own; what was seen of it stays.
    output: item.interrupted && tool.progress ? `${tool.progress.trimEnd()}\n${item.output}` : item.output,
    images,
    diffs: item.diffs ?? [],
    exitCode: item.exit_code ?? null,
    omittedBytes: item.omitted_bytes ?? 0,
  };
  const approvals = view.approvals.filter((approval) => approval.callId !== item.call_id);
  const lastChangeId = finished.diffs.length ? Math.max(view.lastChangeId, item.event_id ?? 0) : view.lastChangeId;
  const next = { ...view, approvals, lastChangeId };
  return known ? { ...next, chunks: replace(next.chunks, finished) } : added(next, finished);
}

function withDecision(view: SessionView, frame: ApprovalDecision): SessionView {
  const approved = frame.decision === "approve";
  const { by = "", reason = "", scope = "once", grant = "", token = "" } = frame;
  const next = { ...view, approvals: view.approvals.filter((one) => one.callId !== frame.call_id) };
  return withTool(next, frame.call_id, (tool) => ({
    ...tool,
    status: approved ? "called" : "denied",
    decision: { approved, by, reason, scope, grant, token },
  }));
}

/** One check list per run, where it last changed: close to what is being done. */
function withPlan(view: SessionView, plan: PlanItem): SessionView {
  const last = findLast(
    view.chunks,
    (item): item is PlanItem | UserItem => item.kind === "plan" || item.kind === "user",
  );
  return added(last?.kind === "plan" ? { ...view, chunks: without(view.chunks, last.key) } : view, plan);
}

function withError(view: SessionView, frame: ErrorFrame): SessionView {
  const aborted = frame.code === "ABORTED";
  const { hint = null, retry_after_ms: waitMs } = frame.details ?? {};
  const said = failure(frame, aborted ? "info" : "error", frame.code, aborted ? "Stopped." : frame.message);
  // What was tried before it failed is over: the error says the same for good. That the words above it are not all is
  // clear from it too.
  const last = view.chunks.at(-1)?.items.at(-1);
  const cut = last?.kind === "text" && last.brokenOff ? { ...view, chunks: replace(view.chunks, { ...last, brokenOff: false }) } : view;
  return added(withoutLast(cut, (one) => one.kind === "notice" && one.noticeId !== ""), {
    ...said,
    hint: typeof hint === "string" ? hint : null,
    until: typeof waitMs === "number" ? Date.parse(frame.ts ?? "") + waitMs : null,
  });
}

function failure(stamp: Stamp & { run_id?: string }, level: FailureItem["level"], code: string, message: string): FailureItem {
  return { ...base(stamp), kind: "failure", level, code, message, hint: null, runId: stamp.run_id ?? "", until: null };
}

/** Without the newest item, if it is such a one. */
function withoutLast(view: SessionView, fits: (item: Item) => boolean): SessionView {
  const last = view.chunks.at(-1)?.items.at(-1);
  return last && fits(last) ? { ...view, chunks: without(view.chunks, last.key) } : view;
}

function withNotice(view: SessionView, frame: Notice): SessionView {
  const { notice_id: noticeId = "", wait_ms: waitMs } = frame;
  const until = waitMs === undefined ? null : Date.parse(frame.ts ?? "") + waitMs;
  const item = { ...notice(frame, frame.level, frame.code, frame.message), noticeId, until };
  const fits = (one: Item): one is NoticeItem => one.kind === "notice" && one.noticeId === noticeId;
  const earlier = noticeId ? findLast(view.chunks, fits, 200) : null;
  return earlier ? { ...view, chunks: replace(view.chunks, { ...item, key: earlier.key }) } : added(view, item);
}

function notice(stamp: Stamp, level: NoticeItem["level"], code: string, message: string): NoticeItem {
  return { ...base(stamp), kind: "notice", level, code, message, hint: null, noticeId: "", until: null };
}

function added(view: SessionView, item: Item): SessionView {
  return { ...view, chunks: append(view.chunks, item) };
}

let unnumbered = 0;

function base(stamp: Stamp): { key: string; eventId: number; ts: string | null } {
  const eventId = stamp.event_id ?? 0;
  return { key: eventId ? `e${eventId}` : `u${++unnumbered}`, eventId, ts: stamp.ts ?? null };
}
