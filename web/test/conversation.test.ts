import { describe, expect, test } from "vitest";
import { remedies } from "../src/lib/failures";
import type { ServerMessage, Snapshot, TranscriptItem } from "../src/lib/protocol";
import { fold, prepend } from "../src/lib/store/fold";
import type { Item } from "../src/lib/store/items";
import { messagesAround } from "../src/lib/store/transcript";
import { emptyView, type SessionView } from "../src/lib/store/view";

const snapshot = (transcript: TranscriptItem[]): Snapshot => ({
  type: "snapshot",
  v: "1.0.0",
  session_state: { session_id: "s", version: "1.0.0", capabilities: [], last_event_id: 99, active_run_id: null, run_counter: 0 },
  run_state: null,
  transcript,
  event_id: 0,
});
const started = (...frames: ServerMessage[]): SessionView => fold(emptyView("s"), [snapshot([]), ...frames]);
const items = (view: SessionView): Item[] => view.chunks.flatMap((chunk) => chunk.items);
const user = (event_id: number): TranscriptItem & ServerMessage => ({ type: "user_text", event_id, text: `m${event_id}` });
const text = (event_id: number): TranscriptItem & ServerMessage => ({ type: "assistant_text", event_id, text: `a${event_id}`, content_index: event_id });
const ended = (event_id: number): ServerMessage => ({ type: "turn_done", event_id });
const notice = (event_id: number, code: string, more: object = {}): ServerMessage => ({
  type: "notice", event_id, level: "info", code, message: `The notice ${code}.`, ...more,
});
const finalOnes = (view: SessionView): string[] =>
  items(view).flatMap((item) => (item.kind === "text" && item.isFinal ? [item.text] : []));

describe("an answer", () => {
  test("is the last words before the next message or the end of the run, live and in a snapshot", () => {
    const live = started(user(1), text(2), text(3), user(4), text(5));
    expect(finalOnes(live)).toEqual(["a3"]);
    expect(finalOnes(fold(live, [ended(6)]))).toEqual(["a3", "a5"]);
    expect(finalOnes(fold(emptyView("s"), [snapshot([user(1), text(2), user(4), text(5)])]))).toEqual(["a2", "a5"]);
  });

  test("on an older page is one too, when the page after it begins with a message", () => {
    const view = fold(emptyView("s"), [snapshot([user(4), text(5)])]);
    expect(finalOnes(prepend(view, [user(1), text(2)], null))).toEqual(["a2", "a5"]);
  });

  test("stands between the message that it answers and the next one", () => {
    const { chunks } = started(user(1), text(2), text(3), user(4), text(5), ended(6));
    const around = (key: string) => {
      const { before, after } = messagesAround(chunks, key);
      return [before?.eventId, after?.eventId];
    };
    expect(around("e3")).toEqual([1, 4]);
    expect(around("e5")).toEqual([4, undefined]);
  });
});

describe("a run that ended without an answer", () => {
  test("is one item that says when to try again, in place of the attempts before it", () => {
    const frames: ServerMessage[] = [
      user(1),
      notice(2, "retry", { notice_id: "r1", wait_ms: 500 }),
      {
        type: "error", event_id: 3, run_id: "run-1", ts: "2026-01-01T00:00:00.000Z", code: "RATE_LIMITED",
        message: "Slow down.", details: { hint: "Wait a little.", retry_after_ms: 2000 },
      },
    ];
    expect(items(started(...frames)).slice(1)).toEqual([
      {
        key: "e3", eventId: 3, ts: "2026-01-01T00:00:00.000Z", kind: "failure", level: "error", code: "RATE_LIMITED",
        message: "Slow down.", hint: "Wait a little.", runId: "run-1", until: Date.parse("2026-01-01T00:00:02.000Z"),
      },
    ]);
  });

  test("names its limit once", () => {
    const view = started(user(1), notice(2, "limit_turns"), { type: "run_ended", event_id: 3, stop_reason: "max_turns", usage: {} as never });
    expect(items(view).map((item) => ("message" in item ? [item.kind, item.message] : item.kind))).toEqual([
      "user",
      ["failure", "The notice limit_turns."],
    ]);
  });

  test.each([
    ["AUTH_REQUIRED", true, ["login", "retry", "model"]],
    ["CONTEXT_OVERFLOW", true, ["compact", "model", "retry"]],
    ["RATE_LIMITED", true, ["retry", "model"]],
    ["INTERRUPTED", true, ["retry"]],
    ["MODEL_NOT_FOUND", true, ["model", "retry"]],
    ["ABORTED", true, ["continue"]],
    ["ABORTED", false, ["continue"]],
    ["AGENT_FAILED", false, ["resend"]],
  ])("with %s offers what helps", (code, isNative, offered) => {
    expect(remedies(code, isNative)).toEqual(offered);
  });
});

test("a summary says what the notice before it announced", () => {
  const view = started(user(1), notice(2, "compacting"), { type: "compacted", event_id: 3, summary: "So far.", through: 1 });
  expect(items(view).map((item) => item.kind)).toEqual(["user", "compacted"]);
});

test("file changes since a message are known, also from an older page", () => {
  const changed: TranscriptItem = {
    type: "function_call_output", event_id: 3, call_id: "c", output: "ok", result: { content: [], isError: false },
    diffs: [{ path: "a", old_text: null, new_text: "x" }],
  };
  const view = fold(emptyView("s"), [snapshot([user(4)])]);
  expect([view.lastChangeId, prepend(view, [user(1), changed], null).lastChangeId]).toEqual([0, 3]);
});
