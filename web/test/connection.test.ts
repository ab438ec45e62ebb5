import { describe, expect, test } from "vitest";
import { CONNECT_MS, newLink, PING_MS, SESSION_GONE, step, waitMs, type Link, type LinkEffect, type LinkEvent } from "../src/lib/connection";
import type { ServerMessage } from "../src/lib/protocol";

const WELCOME: ServerMessage = {
  type: "welcome",
  v: "1.0.0",
  session_state: { session_id: "s", version: "1.0.0", capabilities: [], last_event_id: 7, active_run_id: null, run_counter: 1 },
};
const frame = (value: object): LinkEvent => ({ type: "frame", frame: value as ServerMessage });

/** Feeds events one after the other and returns the end and everything that was to be done. */
function run(link: Link, ...events: [LinkEvent, number?][]): [Link, LinkEffect[]] {
  const all: LinkEffect[] = [];
  for (const [event, now = 0] of events) {
    const [next, effects] = step(link, event, now);
    link = next;
    all.push(...effects);
  }
  return [link, all];
}

const live = (cursor = 0): Link =>
  run(newLink("s"), [{ type: "start", online: true }], [{ type: "opened", cursor }], [frame(WELCOME)])[0];

describe("connecting", () => {
  test("says hello without a cursor, and resumes with one", () => {
    const [, fresh] = run(newLink("s"), [{ type: "start", online: true }], [{ type: "opened", cursor: 0 }]);
    expect(fresh).toEqual([
      { type: "connect" },
      { type: "send", message: { type: "hello", v: "1.0.0", client_capabilities: ["streaming", "makai.1"] } },
    ]);
    const [, again] = run(newLink("s"), [{ type: "start", online: true }], [{ type: "opened", cursor: 41 }]);
    expect(again[1]).toEqual({
      type: "send",
      message: { type: "resume", session_id: "s", last_seen_event_id: 41, client_capabilities: ["streaming", "makai.1"] },
    });
  });

  test("is live with the welcome, and delivers what comes", () => {
    expect(live().phase).toEqual({ name: "live" });
    const event = { type: "title_changed", title: "x", event_id: 8 };
    expect(run(live(), [frame(event)])[1]).toEqual([{ type: "deliver", frame: event }]);
  });

  test("gives up on a server that does not answer in time", () => {
    const [link, effects] = run(newLink("s"), [{ type: "start", online: true }, 0], [{ type: "tick" }, CONNECT_MS + 1]);
    expect(link.phase.name).toBe("waiting");
    expect(effects).toContainEqual({ type: "close" });
  });
});

describe("a lost connection", () => {
  test("is tried again, later each time, and at once when it had worked", () => {
    let [link] = run(live(), [{ type: "closed", code: 1006 }, 1000]);
    const waits: number[] = [];
    for (let round = 0; round < 8; round++) {
      if (link.phase.name !== "waiting") throw new Error(link.phase.name);
      waits.push(link.phase.retryAt - 1000);
      [link] = run(link, [{ type: "tick" }, 1e9], [{ type: "closed", code: 1006 }, 1000], [{ type: "probed", answer: "unreachable" }, 1000]);
    }
    expect(waits).toEqual([300, 600, 1200, 2400, 4800, 9600, 15000, 15000]);
    expect(waitMs(1000)).toBe(15000);
  });

  test("does not connect before its time", () => {
    const [link] = run(live(), [{ type: "closed", code: 1006 }, 1000]);
    expect(run(link, [{ type: "tick" }, 1100])[1]).toEqual([]);
    expect(run(link, [{ type: "tick" }, 1300])[1]).toEqual([{ type: "connect" }]);
  });

  test("starts again with short waits once it was live again", () => {
    const [link] = run(
      live(), [{ type: "closed", code: 1006 }, 0], [{ type: "tick" }, 5000], [{ type: "opened", cursor: 7 }, 5000], [frame(WELCOME), 5000],
    );
    expect(link.failures).toBe(0);
  });
});

describe("a refused connection", () => {
  test.each([
    ["unauthorised", "unauthorised"],
    ["gone", "gone"],
    ["reachable", "waiting"],
    ["unreachable", "waiting"],
  ] as const)("asks why: %s", (answer, phase) => {
    const [asking, effects] = run(newLink("s"), [{ type: "start", online: true }], [{ type: "closed", code: 1006 }]);
    expect(effects.at(-1)).toEqual({ type: "probe" });
    expect(run(asking, [{ type: "probed", answer }])[0].phase.name).toBe(phase);
  });

  test("by an unknown session is not tried again", () => {
    const [link] = run(
      newLink("s"), [{ type: "start", online: true }], [{ type: "opened", cursor: 0 }],
      [frame({ type: "error", code: "UNKNOWN_SESSION", message: "" })], [{ type: "tick" }, 1e9],
    );
    expect(link.phase).toEqual({ name: "gone" });
  });

  test("to a session that was deleted meanwhile is not tried again", () => {
    expect(run(live(), [{ type: "closed", code: SESSION_GONE }])[0].phase).toEqual({ name: "gone" });
  });

  test("is tried again when the user has been authorised", () => {
    const [link] = run(newLink("s"), [{ type: "start", online: true }], [{ type: "closed", code: 1006 }], [{ type: "probed", answer: "unauthorised" }]);
    expect(run(link, [{ type: "wake" }])[1]).toEqual([{ type: "connect" }]);
  });
});

describe("silence", () => {
  const heartbeat = frame({ type: "heartbeat", interval_ms: 10_000 });

  test("is questioned, then taken for the end", () => {
    const [link] = run(live(), [heartbeat, 0]);
    expect(run(link, [{ type: "tick" }, 12_000])[1]).toEqual([]);
    const [asked, effects] = run(link, [{ type: "tick" }, 14_000]);
    expect(effects).toEqual([{ type: "send", message: { type: "ping" } }]);
    expect(run(asked, [{ type: "tick" }, 14_000 + PING_MS - 1])[1]).toEqual([]);
    const [lost, ended] = run(asked, [{ type: "tick" }, 14_000 + PING_MS + 1]);
    expect([lost.phase.name, ended]).toEqual(["waiting", [{ type: "close" }]]);
  });

  test("ends with any frame", () => {
    const [link] = run(live(), [heartbeat, 0], [{ type: "tick" }, 14_000], [frame({ type: "accepted" }), 15_000]);
    expect(link.pingedAt).toBeNull();
    expect(run(link, [{ type: "tick" }, 20_000])[1]).toEqual([]);
  });

  test("after sleep is noticed at the first tick", () => {
    expect(run(live(), [heartbeat, 0], [{ type: "tick" }, 3_600_000])[0].phase.name).toBe("waiting");
  });
});

describe("waking up", () => {
  test("checks a connection that seems to be there", () => {
    expect(run(live(), [{ type: "wake" }, 5])[1]).toEqual([{ type: "send", message: { type: "ping" } }]);
  });

  test("does not wait any longer", () => {
    const [waiting] = run(live(), [{ type: "closed", code: 1006 }, 0]);
    expect(run(waiting, [{ type: "wake" }, 1])[1]).toEqual([{ type: "connect" }]);
    const [offline] = run(live(), [{ type: "offline" }, 0]);
    expect(offline.phase.name).toBe("offline");
    expect(run(offline, [{ type: "online" }, 1])[1]).toEqual([{ type: "connect" }]);
  });
});

describe("a cursor the server cannot continue from", () => {
  const required = frame({ type: "error", code: "RESYNC_REQUIRED", message: "" });

  test("leads to a snapshot, and nothing with gaps is shown before it", () => {
    const [greeting] = run(newLink("s"), [{ type: "start", online: true }], [{ type: "opened", cursor: 99 }]);
    const [link, effects] = run(greeting, [required], [frame({ type: "title_changed", title: "x", event_id: 500 })]);
    expect(effects).toEqual([{ type: "send", message: { type: "get_snapshot" } }]);
    expect(link.resyncing).toBe(true);
    const snapshot = { type: "snapshot", event_id: 501 };
    const [after, delivered] = run(link, [frame(snapshot)], [frame({ type: "title_changed", title: "y", event_id: 502 })]);
    expect(after.resyncing).toBe(false);
    expect(delivered).toHaveLength(2);
  });
});

test("a stopped link does nothing any more", () => {
  const [link, effects] = run(live(), [{ type: "stop" }]);
  expect(effects).toEqual([{ type: "close" }]);
  expect(run(link, [{ type: "closed", code: 1006 }], [{ type: "tick" }, 1e9], [frame(WELCOME)])).toEqual([link, []]);
});
