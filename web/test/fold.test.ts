import { req } from "./req";
import { describe, expect, test } from "vitest";
import { cpuMs } from "./cpu";
import type { RunState, RunStatus, ServerMessage, Snapshot, TranscriptItem } from "../src/lib/protocol";
import { fold, prepend } from "../src/lib/store/fold";
import type { Item, ToolItem } from "../src/lib/store/items";
import { MAX_ITEMS } from "../src/lib/store/transcript";
import { activity, emptyView, isBusy, type SessionView } from "../src/lib/store/view";

const runState = (status: RunStatus, pending: RunState["pending_approvals"] = []): RunState => ({
  run_id: "run-1",
  status,
  started_at: "2026-01-01T00:00:00.000Z",
  finished_at: null,
  pending_approvals: pending,
  last_event_id: null,
});

const snapshot = (transcript: TranscriptItem[], event_id: number, more: Partial<Snapshot> = {}): Snapshot => ({
  type: "snapshot",
  v: "1.0.0",
  session_state: {
    session_id: "s",
    version: "1.0.0",
    capabilities: [],
    last_event_id: event_id,
    active_run_id: null,
    run_counter: 0,
  },
  run_state: null,
  transcript,
  event_id,
  ...more,
});

const items = (view: SessionView): Item[] => view.chunks.flatMap((chunk) => chunk.items);
const started = (...frames: ServerMessage[]): SessionView => fold(emptyView("s"), [snapshot([], 0), ...frames]);
const status = (event_id: number, run: RunStatus): ServerMessage => ({ type: "run_status", event_id, run_state: runState(run) });
const delta = (event_id: number, text: string, content_index = 0): ServerMessage => ({
  type: "assistant_text_delta", event_id, text, content_index,
});
const output = (event_id: number, call_id: string, more: object = {}): TranscriptItem & { event_id: number } => ({
  type: "function_call_output", event_id, call_id, output: "ok", result: { content: [], isError: false }, ...more,
});
const call = (event_id: number, call_id: string): TranscriptItem & { event_id: number } => ({
  type: "tool_call", event_id, call_id, name: "shell", args: { command: "ls" }, kind: "execute", title: "ls",
});

describe("a run", () => {
  test.each([
    ["finished", [status(5, "finished")]],
    ["error", [status(5, "error")]],
    ["aborted", [status(5, "aborting"), status(6, "finished"), { type: "turn_done", event_id: 7 }]],
  ] as [string, ServerMessage[]][])(`moves from idle over its statuses to %s and is idle again ${req("MC-UI-001")}`, (_, end) => {
    let view = started();
    const seen = [view.run?.status ?? "idle"];
    for (const frame of [status(1, "starting"), status(2, "running"), status(3, "awaiting_approval"), status(4, "running")]) {
      view = fold(view, [frame]);
      seen.push(view.run?.status ?? "idle");
    }
    expect(seen).toEqual(["idle", "starting", "running", "awaiting_approval", "running"]);
    expect([isBusy(view), isBusy(fold(view, end))]).toEqual([true, false]);
  });

  test(`streams words, replaces them by the whole text, and ends ${req("MC-UI-001")}`, () => {
    let view = started(
      status(1, "starting"),
      { type: "user_text", event_id: 2, text: "hi", client_msg_id: "m1", input_id: "i1" },
      status(3, "running"),
    );
    expect([isBusy(view), activity(view)]).toEqual([true, "Waiting for the model"]);
    view = fold(view, [delta(4, "Hel"), delta(5, "lo")]);
    expect(items(view).at(-1)).toMatchObject({ kind: "text", text: "Hello", streaming: true });
    expect(activity(view)).toBe("Answering");
    view = fold(view, [{ type: "assistant_text", event_id: 6, text: "Hello.", content_index: 0 }, status(7, "finished")]);
    expect(items(view).map((item) => item.kind)).toEqual(["user", "text"]);
    expect(items(view).at(-1)).toMatchObject({ text: "Hello.", streaming: false });
    expect([view.run, view.lastEventId, view.taken.has("m1")]).toEqual([null, 7, true]);
  });

  test.each([
    ["run_status finished", status(9, "finished")],
    ["turn_done", { type: "turn_done", event_id: 9 }],
    ["run_ended", { type: "run_ended", event_id: 9, stop_reason: "end_turn", usage: { input: 1, output: 1 } }],
  ] as [string, ServerMessage][])(`returns to idle on %s, and a later one of these is harmless ${req("MC-UI-002")}`, (_, end) => {
    let view = started(status(1, "running"), delta(2, "half"), call(3, "c"), end);
    expect([view.run, view.approvals]).toEqual([null, []]);
    expect(items(view)[0]).toMatchObject({ streaming: false });
    expect(items(view)[1]).toMatchObject({ status: "interrupted" });
    const before = items(view).length;
    view = fold(view, [status(10, "finished"), { type: "turn_done", event_id: 11 }]);
    expect(view.run).toBeNull();
    expect(items(view)).toHaveLength(before);
  });

  test("shows an abort as stopped, and a failure with its hint", () => {
    const view = started(
      { type: "error", event_id: 1, code: "ABORTED", message: "x" },
      { type: "error", event_id: 2, code: "RATE_LIMITED", message: "Too fast.", details: { hint: "Wait." } },
    );
    expect(items(view)).toMatchObject([
      { level: "info", message: "Stopped." },
      { level: "error", message: "Too fast.", hint: "Wait." },
    ]);
  });

  test("shows the waits for another attempt as one line that changes, and none after the run", () => {
    const ts = "2026-11-17T00:00:00Z";
    const wait = (id: number, message: string, ms?: number): ServerMessage => ({
      ...{ type: "notice", event_id: id, ts, level: "info", code: "rate_limited", message, notice_id: "wait-1" },
      ...(ms === undefined ? {} : { wait_ms: ms }),
    });
    const first = started(wait(1, "Attempt 2 follows.", 4000));
    const until = Date.parse(ts) + 4000;
    expect(items(first)).toMatchObject([{ message: "Attempt 2 follows.", until }]);
    const second = fold(first, [wait(2, "Attempt 3 follows.", 8000)]);
    expect(items(second)).toMatchObject([{ key: "e1", message: "Attempt 3 follows.", until: until + 4000 }]);
    expect(items(fold(second, [wait(3, "Attempt 3 was answered.")]))).toMatchObject([
      { key: "e1", message: "Attempt 3 was answered.", until: null },
    ]);
    expect(items(fold(second, [status(3, "finished")]))).toMatchObject([{ message: "Attempt 3 follows.", until: null }]);
  });

  test("says why an answer was cut short", () => {
    const view = started(delta(1, "half"), { type: "turn_done", event_id: 2, stop_reason: "max_tokens" });
    expect(items(view).at(-1)).toMatchObject({ kind: "failure", level: "warning", code: "MAX_TOKENS" });
  });

  test("keeps words apart that belong to different blocks", () => {
    const view = started(delta(1, "a", 0), delta(2, "b", 1), delta(3, "c", 0), {
      type: "reasoning_delta", event_id: 4, text: "r", content_index: 0,
    });
    expect(items(view).map((item) => "text" in item && item.text)).toEqual(["ac", "b", "r"]);
  });
});

describe("replay", () => {
  test("takes every event once, whatever is repeated", () => {
    const frames = [delta(1, "a"), delta(2, "b"), delta(3, "c")];
    let view = started(...frames);
    view = fold(view, [...frames, delta(3, "c"), delta(4, "d")]);
    expect(items(view)[0]).toMatchObject({ text: "abcd" });
    expect(view.lastEventId).toBe(4);
  });

  test("in pieces of any size gives the same as at once", () => {
    const frames: ServerMessage[] = [
      status(1, "starting"), { type: "user_text", event_id: 2, text: "go", input_id: "i" }, status(3, "running"),
      delta(4, "x"), delta(5, "y"), { type: "assistant_text", event_id: 6, text: "xy", content_index: 0 },
      call(7, "c1") as ServerMessage, { type: "tool_started", event_id: 8, call_id: "c1" },
      { type: "tool_progress", event_id: 9, call_id: "c1", text: "..." }, output(10, "c1") as ServerMessage,
      { type: "plan", event_id: 11, entries: [] }, status(12, "finished"),
    ];
    const whole = started(...frames);
    for (const size of [1, 2, 5]) {
      let view = started();
      for (let at = 0; at < frames.length; at += size) view = fold(view, frames.slice(at, at + size));
      expect(items(view).map(({ key: _key, eventId: _id, ...rest }) => rest)).toEqual(
        items(whole).map(({ key: _key, eventId: _id, ...rest }) => rest),
      );
      expect(view.lastEventId).toBe(whole.lastEventId);
    }
  });

  test("of 100,000 deltas is one item, quickly", () => {
    const start = cpuMs();
    const view = started(...Array.from({ length: 100_000 }, (_, at) => delta(at + 1, "word ")));
    expect(items(view)).toHaveLength(1);
    expect(cpuMs() - start).toBeLessThan(2000);
  });

  test("ignores frames it does not know", () => {
    expect(items(started({ type: "from_the_future", event_id: 1 } as unknown as ServerMessage))).toEqual([]);
  });
});

describe("an answer that broke off and is asked for again", () => {
  const broken = { type: "turn_ended", event_id: 4, turn: 1, stop_reason: "error" } as ServerMessage;
  const again = { type: "turn_started", event_id: 5, turn: 2 } as ServerMessage;

  test("is marked, and the next answer stands alone", () => {
    const view = started(status(1, "running"), delta(2, "Hel"), broken, again, delta(6, "Hello"));
    expect(items(view)).toMatchObject([
      { text: "Hel", streaming: false, brokenOff: true },
      { text: "Hello", streaming: true },
    ]);
  });

  test("is marked in a snapshot, and words that come after it are not added to it", () => {
    const half = { type: "assistant_text", text: "Hel", content_index: 0, whole: false, broken_off: true, event_id: 2 };
    const shown = snapshot([half] as TranscriptItem[], 5, { run_state: runState("running") });
    const view = fold(started(), [shown, delta(6, "Hello")]);
    expect(items(view)).toMatchObject([
      { text: "Hel", streaming: false, brokenOff: true },
      { text: "Hello", streaming: true },
    ]);
  });
});

describe("a snapshot", () => {
  test("replaces what was shown, and what was still arriving keeps growing", () => {
    let view = started(delta(1, "old"));
    view = fold(view, [
      snapshot(
        [
          { type: "user_text", text: "q", event_id: 1 },
          { type: "assistant_text", text: "broken", content_index: 0, whole: false, event_id: 2 },
          { type: "user_text", text: "again", event_id: 3 },
          { type: "assistant_text", text: "ne", content_index: 0, whole: false, event_id: 5 },
        ],
        5,
        { run_state: runState("running"), before: 1 },
      ),
      delta(6, "w"),
    ]);
    expect(items(view).map((item) => "text" in item && item.text)).toEqual(["q", "broken", "again", "new"]);
    expect(items(view)[1]).toMatchObject({ streaming: false });
    expect([view.before, view.lastEventId, view.run?.status]).toEqual([1, 6, "running"]);
  });

  test("brings back pending approvals, in full where the server gives that", () => {
    const pending = [
      { call_id: "c1", tool_key: "shell", args: { command: "ls" } },
      { call_id: "c2", tool_key: "edit", args: {} },
    ];
    const view = fold(emptyView("s"), [
      snapshot(
        [
          call(1, "c1"),
          { type: "approval_pending", event_id: 2, call_id: "c1", tool_key: "shell", args_json: '{"command":"ls"}', grant: "Bash(ls:*)", digest: "d" },
        ],
        3,
        { run_state: runState("awaiting_approval", pending) },
      ),
    ]);
    expect(view.approvals).toMatchObject([
      { callId: "c1", grant: "Bash(ls:*)", digest: "d" },
      { callId: "c2", grant: "", digest: null, argsJson: "{}" },
    ]);
    expect(items(view)[0]).toMatchObject({ status: "awaiting" });
  });

  test("of 5,000 messages is folded quickly", () => {
    const transcript = Array.from({ length: 5000 }, (_, at): TranscriptItem =>
      at % 2 ? { type: "assistant_text", text: `answer ${at}`, content_index: 0, event_id: at + 1 } : { type: "user_text", text: `q ${at}`, event_id: at + 1, client_msg_id: `m${at}` },
    );
    const start = cpuMs();
    const view = fold(emptyView("s"), [snapshot(transcript, 5000)]);
    expect(items(view)).toHaveLength(5000);
    expect(cpuMs() - start).toBeLessThan(1000);
  });
});

describe("approvals and tools", () => {
  const pending: ServerMessage = {
    type: "approval_pending", event_id: 2, call_id: "c1", tool_key: "shell", args_json: "{}", grant: "",
  };
  const tool = (view: SessionView): ToolItem => items(view)[0] as ToolItem;

  test("an approved call runs and is done", () => {
    let view = started(call(1, "c1") as ServerMessage, pending);
    expect([tool(view).status, view.approvals.length]).toEqual(["awaiting", 1]);
    view = fold(view, [
      { type: "approval_decision", event_id: 3, call_id: "c1", decision: "approve", by: "page", scope: "session", grant: "Bash(ls:*)" },
      { type: "tool_started", event_id: 4, call_id: "c1" },
    ]);
    expect([tool(view).status, view.approvals.length]).toEqual(["running", 0]);
    view = fold(view, [output(5, "c1", { exit_code: 0, diffs: [{ path: "a", old_text: null, new_text: "x" }] }) as ServerMessage]);
    expect(tool(view)).toMatchObject({ status: "done", output: "ok", exitCode: 0, decision: { approved: true, scope: "session" } });
    expect(tool(view).diffs).toHaveLength(1);
  });

  test("a denied call stays denied when its answer to the model arrives", () => {
    const view = started(
      call(1, "c1") as ServerMessage, pending,
      { type: "approval_decision", event_id: 3, call_id: "c1", decision: "deny_continue", by: "other", reason: "no" },
      output(4, "c1", { is_error: true }) as ServerMessage,
    );
    expect(tool(view)).toMatchObject({ status: "denied", decision: { approved: false, reason: "no" } });
  });

  test.each([
    [{ is_error: true }, "failed"],
    [{ interrupted: true, is_error: true }, "interrupted"],
    [{ result: { content: [], isError: true } }, "failed"],
  ])("an output %j makes the call %s", (more, wanted) => {
    expect(tool(started(call(1, "c1") as ServerMessage, output(2, "c1", more) as ServerMessage)).status).toBe(wanted);
  });

  test("a plan is one list per run, in its newest form", () => {
    const plan = (event_id: number, content: string): ServerMessage => ({
      type: "plan", event_id, entries: [{ content, status: "pending", priority: "medium" }],
    });
    const view = started(plan(1, "a"), plan(2, "b"), { type: "user_text", event_id: 3, text: "next" }, plan(4, "c"));
    expect(items(view).map((item) => item.kind === "plan" && item.entries[0]?.content)).toEqual(["b", false, "c"]);
  });
});

describe("messages that wait", () => {
  test("are listed until their turn comes, and known as taken", () => {
    let view = started({ type: "input_accepted", event_id: 1, input_id: "i1", text: "later", delivery: "queue", client_msg_id: "m1" });
    expect([view.waiting.length, view.taken.has("m1")]).toEqual([1, true]);
    view = fold(view, [{ type: "user_text", event_id: 2, text: "later", input_id: "i1", client_msg_id: "m1" }]);
    expect([view.waiting.length, items(view).length]).toEqual([0, 1]);
  });

  test("are gone when they were taken back, and their pictures were there to be edited", () => {
    const images = [{ data: "AAAA", mime_type: "image/png" }];
    const accepted = (event_id: number, input_id: string): ServerMessage => ({
      type: "input_accepted", event_id, input_id, text: input_id, delivery: "queue", client_msg_id: `m-${input_id}`, images,
    });
    let view = started(accepted(1, "i1"), accepted(2, "i2"));
    expect(view.waiting[1]).toEqual({ input_id: "i2", text: "i2", delivery: "queue", client_msg_id: "m-i2", images });
    view = fold(view, [{ type: "input_withdrawn", event_id: 3, input_id: "i1" }]);
    expect([view.waiting.map((one) => one.input_id), items(view), view.taken.has("m-i1")]).toEqual([["i2"], [], true]);
  });
});

describe("older pages", () => {
  test("come in front, and a result joins its call", () => {
    const view = fold(emptyView("s"), [snapshot([output(20, "c1"), { type: "assistant_text", text: "end", event_id: 21 }], 21, { before: 20 })]);
    expect(items(view)[0]).toMatchObject({ kind: "tool", name: "" });
    const longer = prepend(view, [{ type: "user_text", text: "first", event_id: 5 }, call(6, "c1")], 5);
    expect(items(longer).map((item) => item.kind)).toEqual(["user", "tool", "text"]);
    expect(items(longer)[1]).toMatchObject({ name: "shell", output: "ok", status: "done" });
    expect(longer.before).toBe(5);
  });

  test("can bring back what was let go because there was too much to hold", () => {
    const transcript = Array.from({ length: MAX_ITEMS + 500 }, (_, at): TranscriptItem => ({ type: "user_text", text: `q ${at}`, event_id: at + 1 }));
    const view = fold(emptyView("s"), [snapshot(transcript, transcript.length, { before: null })]);
    expect(items(view).length).toBeLessThanOrEqual(MAX_ITEMS);
    expect(items(view).at(-1)).toMatchObject({ eventId: transcript.length });
    expect(view.before).toBe(items(view)[0]?.eventId);
  });

  test("keep the chunks that were there, so that nothing is drawn again", () => {
    const view = fold(emptyView("s"), [snapshot([{ type: "user_text", text: "a", event_id: 50 }], 50, { before: 50 })]);
    const longer = prepend(view, [{ type: "user_text", text: "b", event_id: 10 }], null);
    expect(longer.chunks.at(-1)).toBe(view.chunks[0]);
    expect(longer.before).toBeNull();
  });
});
