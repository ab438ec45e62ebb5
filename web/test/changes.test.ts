import { describe, expect, test } from "vitest";
import { restoreQuery } from "../src/lib/api/changes";
import { changingMessages, commands, kept, lastChange, newestCommand, shortPath } from "../src/lib/changes";
import type { ServerMessage } from "../src/lib/protocol";
import { fold } from "../src/lib/store/fold";
import { emptyView } from "../src/lib/store/view";

let last = 0;
const frame = (fields: object): ServerMessage => ({ event_id: ++last, ts: "2026-01-01T00:00:00Z", ...fields }) as unknown as ServerMessage;
const said = (text: string): ServerMessage => frame({ type: "user_text", text, input_id: `i${last}` });
const called = (call_id: string, args: object, kind: string): ServerMessage => frame({ type: "tool_call", call_id, name: kind, kind, args });
const started = (call_id: string): ServerMessage => frame({ type: "tool_started", call_id });
const ended = (call_id: string, diffs: object[] = []): ServerMessage =>
  frame({ type: "function_call_output", call_id, output: "out", result: { content: [], isError: false }, diffs });
const chunksOf = (...frames: ServerMessage[]) => fold({ ...emptyView("s"), loaded: true, lastEventId: 0 }, frames).chunks;
const DIFF = { path: "/w/a", old_text: null, new_text: "x" };

describe("what a view says about file changes", () => {
  test("names the messages that changed files, the newest first", () => {
    last = 0;
    const chunks = chunksOf(
      said("First\nmore"), called("a", {}, "edit"), ended("a", [DIFF]),
      said("Only words"),
      said("Third"), called("b", {}, "edit"), ended("b", [DIFF]),
    );
    expect(changingMessages(chunks)).toEqual([{ eventId: 5, text: "Third" }, { eventId: 1, text: "First" }]);
  });

  test("says when files may have changed: after an edit and after an undo", () => {
    last = 0;
    const edited = [said("Go"), called("a", {}, "edit"), ended("a", [DIFF])];
    const undone = frame({ type: "notice", level: "info", code: "files_restored", message: "Undid" });
    const values = [chunksOf(said("Go")), chunksOf(...edited), chunksOf(...edited, undone)].map(lastChange);
    expect(values[0]).toBe("");
    expect(new Set(values).size).toBe(3);
  });

  test("shows all commands that run at once, and the one that was opened", () => {
    last = 0;
    const chunks = chunksOf(
      called("old", { command: "ls" }, "execute"), started("old"), ended("old"),
      called("one", { command: "make" }, "execute"), started("one"),
      called("look", { path: "a" }, "read"), started("look"),
      called("two", { command: "watch" }, "execute"), started("two"),
    );
    expect(commands(chunks, "").map((item) => item.callId)).toEqual(["one", "two"]);
    expect(commands(chunks, "old").map((item) => item.callId)).toEqual(["old", "one", "two"]);
    expect(newestCommand(chunks)?.callId).toBe("two");
    expect(commands(chunks, "")[0]?.startedAt).toBe("2026-01-01T00:00:00Z");
  });

  test("keeps the object of a file that did not change, so that it is not drawn again", () => {
    const [a, b] = [{ ...DIFF }, { ...DIFF, path: "/w/b" }];
    const next = kept([a, b], [{ ...DIFF }, { ...b, new_text: "y" }]);
    expect([next[0] === a, next[1] === b, next[1]?.new_text]).toEqual([true, false, "y"]);
  });

  test("writes paths and choices into an address", () => {
    expect(restoreQuery("undo", { to: 7, paths: ["/w/a b", "/w/ü&c"] })).toBe("direction=undo&to=7&path=%2Fw%2Fa%20b&path=%2Fw%2F%C3%BC%26c");
    expect([shortPath("/w/x/y", "/w"), shortPath("/we/y", "/w"), shortPath("/w/y", "")]).toEqual(["x/y", "/we/y", "/w/y"]);
  });
});
