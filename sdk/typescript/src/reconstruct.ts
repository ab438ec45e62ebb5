/**
 * Stream events in the proxy encoding -> the message they describe.
 *
 * In: event envelopes' types and payloads, in order. Out: the finished tool call at a `toolcall_end`, and the whole
 * content at the end, vendor signatures included.
 */

import type { Payload } from "./envelope.js";
import type { ContentPart, ToolCallContentPart } from "./types.js";

interface Block {
  readonly kind: "text" | "thinking" | "tool_call";
  readonly toolCallId: string;
  readonly name: string;
  text: string;
  /** What only the end of the block tells: signatures and the like. They go back to the vendor unread. */
  extra: Payload;
}

export class Reconstruction {
  readonly #blocks = new Map<number, Block>();

  /** Take one event; others than the block events are ignored. */
  apply(type: string, payload: Payload): void {
    const index = typeof payload["content_index"] === "number" ? payload["content_index"] : 0;
    switch (type) {
      case "text_start":
        this.#open(index, "text");
        break;
      case "thinking_start":
        this.#open(index, "thinking");
        break;
      case "toolcall_start":
        this.#open(index, "tool_call", text(payload["id"]), text(payload["name"]));
        break;
      case "text_delta":
      case "thinking_delta":
      case "toolcall_delta":
        this.#grow(index, text(payload["delta"]));
        break;
      case "text_end":
        this.#close(index, { text_signature: payload["content_signature"] });
        break;
      case "thinking_end":
        this.#close(index, { thinking_signature: payload["thinking_signature"], redacted: payload["redacted"] });
        break;
      case "toolcall_end":
        this.#close(index, (payload["tool_call"] ?? {}) as Payload);
        break;
    }
  }

  /** The tool call of this block, complete once its `toolcall_end` was applied. */
  toolCall(index: unknown): ToolCallContentPart | undefined {
    const block = typeof index === "number" ? this.#blocks.get(index) : undefined;
    return block?.kind === "tool_call" ? (part(block) as ToolCallContentPart) : undefined;
  }

  content(): ContentPart[] {
    const inOrder = [...this.#blocks].sort(([left], [right]) => left - right);
    return inOrder.map(([, block]) => part(block));
  }

  #open(index: number, kind: Block["kind"], toolCallId = "", name = ""): void {
    this.#blocks.set(index, { kind, toolCallId, name, text: "", extra: {} });
  }

  #grow(index: number, delta: string): void {
    const block = this.#blocks.get(index);
    if (block !== undefined) block.text += delta;
  }

  #close(index: number, extra: Payload): void {
    const block = this.#blocks.get(index);
    if (block === undefined) return;
    block.extra = Object.fromEntries(Object.entries(extra).filter(([, value]) => value !== undefined));
  }
}

function part(block: Block): ContentPart {
  switch (block.kind) {
    case "text":
      return { type: "text", text: block.text, ...block.extra };
    case "thinking":
      return { type: "thinking", thinking: block.text, ...block.extra };
    case "tool_call":
      return {
        type: "tool_call",
        tool_call_id: block.toolCallId,
        name: block.name,
        arguments_json: block.text,
        ...block.extra,
      };
  }
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}
