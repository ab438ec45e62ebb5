// The thin shell around connection.ts: a WebSocket, a clock and the browser's events feed the machine, and what it
// wants done is done. One per open session; `stop` ends all of it.
import { api } from "./api";
import { ApiError } from "./api/http";
import { carriedJson } from "./carried";
import { newLink, step, type Link, type LinkEffect, type LinkEvent, type Probe } from "./connection";
import type { ClientMessage, ServerMessage } from "./protocol";

const TICK_MS = 500;

export interface SocketUser {
  changed(link: Link): void;
  received(frame: ServerMessage): void;
  /** The last event the page holds, 0 before the first snapshot. */
  cursor(): number;
}

export class SessionSocket {
  private link: Link;
  private socket: WebSocket | null = null;
  private readonly ending = new AbortController();

  constructor(
    private readonly sessionId: string,
    private readonly user: SocketUser,
  ) {
    this.link = newLink(sessionId);
  }

  start(): void {
    const { signal } = this.ending;
    const timer = setInterval(() => this.put({ type: "tick" }), TICK_MS);
    signal.addEventListener("abort", () => clearInterval(timer));
    addEventListener("online", () => this.put({ type: "online" }), { signal });
    addEventListener("offline", () => this.put({ type: "offline" }), { signal });
    addEventListener("pageshow", () => this.put({ type: "wake" }), { signal });
    document.addEventListener(
      "visibilitychange",
      () => {
        if (document.visibilityState === "visible") this.put({ type: "wake" });
      },
      { signal },
    );
    this.put({ type: "start", online: navigator.onLine });
  }

  stop(): void {
    this.put({ type: "stop" });
    this.ending.abort();
  }

  retryNow(): void {
    this.put({ type: "wake" });
  }

  /** Whether it was handed to an open connection; that it arrived, only an answer tells. */
  send(message: ClientMessage): boolean {
    if (this.link.phase.name !== "live" || this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(carriedJson(message));
    return true;
  }

  private put(event: LinkEvent): void {
    if (this.ending.signal.aborted) return;
    const [link, effects] = step(this.link, event, Date.now());
    const changed = link.phase !== this.link.phase || link.resyncing !== this.link.resyncing;
    this.link = link;
    for (const effect of effects) this.carryOut(effect);
    if (changed) this.user.changed(link);
  }

  private carryOut(effect: LinkEffect): void {
    switch (effect.type) {
      case "connect":
        return this.connect();
      case "close":
        return this.close();
      case "probe":
        void this.probe();
        return;
      case "send":
        this.socket?.send(carriedJson(effect.message));
        return;
      case "deliver":
        return this.user.received(effect.frame);
    }
  }

  private connect(): void {
    this.close();
    const address = new URL(`/ws?session_id=${encodeURIComponent(this.sessionId)}`, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.hash = "";
    const socket = new WebSocket(address, "minicodex.v1");
    this.socket = socket;
    socket.onopen = () => {
      if (this.socket === socket) this.put({ type: "opened", cursor: this.user.cursor() });
    };
    socket.onclose = (event) => {
      if (this.socket !== socket) return;
      this.socket = null;
      this.put({ type: "closed", code: event.code });
    };
    socket.onmessage = (message: MessageEvent<unknown>) => {
      if (this.socket !== socket || typeof message.data !== "string") return;
      const frame = parsed(message.data);
      if (frame) this.put({ type: "frame", frame });
    };
  }

  private close(): void {
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }

  private async probe(): Promise<void> {
    let answer: Probe = "reachable";
    try {
      await api.session(this.sessionId);
    } catch (error) {
      const status = error instanceof ApiError ? error.status : 0;
      answer = status === 401 || status === 403 ? "unauthorised" : status === 404 ? "gone" : "unreachable";
    }
    this.put({ type: "probed", answer });
  }
}

function parsed(text: string): ServerMessage | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && "type" in value ? (value as ServerMessage) : null;
  } catch {
    return null;
  }
}
