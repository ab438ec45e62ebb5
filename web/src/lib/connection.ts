// The connection to one session, as a state machine without a socket, a clock or a browser: `step(link, event, now)`
// returns the next state and what to do. It reconnects with its cursor, notices silence, and asks why it was refused.
import { MAKAI_1, PROTOCOL_VERSION, STREAMING, type ClientMessage, type ServerMessage } from "./protocol";

export type Phase =
  | { name: "idle" }
  | { name: "connecting"; since: number }
  | { name: "greeting"; since: number }
  | { name: "live" }
  | { name: "asking" }
  | { name: "waiting"; retryAt: number }
  | { name: "offline" }
  | { name: "unauthorised" }
  | { name: "gone" };

export interface Link {
  sessionId: string;
  phase: Phase;
  /** How often in a row connecting failed. */
  failures: number;
  heardAt: number;
  heartbeatMs: number;
  /** When a ping was sent that nothing has followed yet. */
  pingedAt: number | null;
  /** Between RESYNC_REQUIRED and the snapshot: events may lack their predecessors and must not be shown. */
  resyncing: boolean;
}

export type Probe = "reachable" | "unreachable" | "unauthorised" | "gone";

export type LinkEvent =
  | { type: "start"; online: boolean }
  | { type: "opened"; cursor: number }
  | { type: "frame"; frame: ServerMessage }
  | { type: "closed"; code: number }
  | { type: "probed"; answer: Probe }
  | { type: "tick" }
  /** The tab is visible again, the computer woke up, or the user asks to try now. */
  | { type: "wake" }
  | { type: "online" }
  | { type: "offline" }
  | { type: "stop" };

export type LinkEffect =
  | { type: "connect" }
  | { type: "close" }
  /** Ask over HTTP why the socket was refused: a browser does not tell. */
  | { type: "probe" }
  | { type: "send"; message: ClientMessage }
  | { type: "deliver"; frame: ServerMessage };

export const CONNECT_MS = 10_000;
export const PING_MS = 5_000;
export const MAX_WAIT_MS = 15_000;
/** The server's close code for a session that was deleted. */
export const SESSION_GONE = 4404;
const CAPABILITIES = [STREAMING, MAKAI_1];

export function newLink(sessionId: string): Link {
  return {
    sessionId,
    phase: { name: "idle" },
    failures: 0,
    heardAt: 0,
    heartbeatMs: 15_000,
    pingedAt: null,
    resyncing: false,
  };
}

type Step = [Link, LinkEffect[]];

export function step(link: Link, event: LinkEvent, now: number): Step {
  switch (event.type) {
    case "start":
      return event.online ? connect(link, now) : [{ ...link, phase: { name: "offline" } }, []];
    case "opened":
      return opened(link, event.cursor, now);
    case "frame":
      return heard(link, event.frame, now);
    case "closed":
      return closed(link, event.code, now);
    case "probed":
      return probed(link, event.answer, now);
    case "tick":
      return ticked(link, now);
    case "wake":
    case "online":
      return woken(link, now);
    case "offline":
      return [{ ...link, phase: { name: "offline" } }, isOpen(link) ? [{ type: "close" }] : []];
    case "stop":
      return [{ ...link, phase: { name: "idle" } }, [{ type: "close" }]];
  }
}

/** 0.3 s, then doubling up to the longest wait. All windows at once after a restart are fine: it is one person's server. */
export function waitMs(failures: number): number {
  return Math.min(MAX_WAIT_MS, 300 * 2 ** Math.min(failures, 10));
}

function isOpen(link: Link): boolean {
  return link.phase.name === "connecting" || link.phase.name === "greeting" || link.phase.name === "live";
}

function connect(link: Link, now: number): Step {
  return [{ ...link, phase: { name: "connecting", since: now }, pingedAt: null, resyncing: false }, [{ type: "connect" }]];
}

function opened(link: Link, cursor: number, now: number): Step {
  if (link.phase.name !== "connecting") return [link, []];
  const session_id = link.sessionId;
  const message: ClientMessage = cursor
    ? { type: "resume", session_id, last_seen_event_id: cursor, client_capabilities: CAPABILITIES }
    : { type: "hello", v: PROTOCOL_VERSION, client_capabilities: CAPABILITIES };
  return [{ ...link, phase: { name: "greeting", since: now }, heardAt: now }, [{ type: "send", message }]];
}

function heard(link: Link, frame: ServerMessage, now: number): Step {
  if (!isOpen(link)) return [link, []];
  const next: Link = { ...link, heardAt: now, pingedAt: null };
  const deliver: LinkEffect = { type: "deliver", frame };
  if (frame.type === "heartbeat") return [{ ...next, heartbeatMs: Math.max(1000, frame.interval_ms) }, []];
  if (frame.type === "welcome") return [{ ...next, phase: { name: "live" }, failures: 0 }, [deliver]];
  if (frame.type === "snapshot") return [{ ...next, resyncing: false }, [deliver]];
  if (frame.type === "error" && frame.code === "RESYNC_REQUIRED" && frame.event_id === undefined)
    return [
      { ...next, phase: { name: "live" }, failures: 0, resyncing: true },
      [{ type: "send", message: { type: "get_snapshot" } }],
    ];
  if (frame.type === "error" && frame.code === "UNKNOWN_SESSION" && link.phase.name === "greeting")
    return [{ ...next, phase: { name: "gone" } }, [{ type: "close" }]];
  const incomplete = next.resyncing && "event_id" in frame && frame.event_id !== undefined;
  return [next, incomplete ? [] : [deliver]];
}

function closed(link: Link, code: number, now: number): Step {
  if (code === SESSION_GONE && isOpen(link)) return [{ ...link, phase: { name: "gone" } }, []];
  if (link.phase.name === "live") return retry(link, now);
  if (isOpen(link)) return [{ ...link, phase: { name: "asking" } }, [{ type: "probe" }]];
  return [link, []];
}

function probed(link: Link, answer: Probe, now: number): Step {
  if (link.phase.name !== "asking") return [link, []];
  if (answer === "unauthorised" || answer === "gone") return [{ ...link, phase: { name: answer } }, []];
  return retry(link, now);
}

function retry(link: Link, now: number): Step {
  const phase: Phase = { name: "waiting", retryAt: now + waitMs(link.failures) };
  return [{ ...link, phase, failures: link.failures + 1, pingedAt: null }, []];
}

function ticked(link: Link, now: number): Step {
  const { phase } = link;
  if (phase.name === "waiting") return now >= phase.retryAt ? connect(link, now) : [link, []];
  if (phase.name === "connecting" || phase.name === "greeting")
    return now - phase.since > CONNECT_MS ? lost(link, now) : [link, []];
  if (phase.name !== "live") return [link, []];
  const silence = now - link.heardAt;
  if (silence > link.heartbeatMs * 2.5 || (link.pingedAt !== null && now - link.pingedAt > PING_MS)) return lost(link, now);
  if (silence > link.heartbeatMs * 1.3 && link.pingedAt === null) return pinged(link, now);
  return [link, []];
}

function lost(link: Link, now: number): Step {
  const [next, effects] = retry(link, now);
  return [next, [{ type: "close" }, ...effects]];
}

function pinged(link: Link, now: number): Step {
  return [{ ...link, pingedAt: now }, [{ type: "send", message: { type: "ping" } }]];
}

function woken(link: Link, now: number): Step {
  switch (link.phase.name) {
    case "live":
      return link.pingedAt === null ? pinged(link, now) : [link, []];
    case "waiting":
    case "offline":
    case "unauthorised":
      return connect({ ...link, failures: 0 }, now);
    default:
      return [link, []];
  }
}
