/**
 * Answers that are values of a schema: the instructions for the model, the value in its words, and a corrected answer.
 *
 * In: a schema and answers. Out: requests, and answers with an `output`. A value counts only after it was checked here,
 * whatever a vendor promises.
 */

import { MakaiStreamError, refused } from "./errors.js";
import { type Checked, readSchema, type ReadSchema, type Schema } from "./schema.js";
import type { AgentRunOptions, ChatMessage, CompletionResponse, UsageSummary } from "./types.js";

const MAX_REPAIRS = 10;

/** What both kinds of requests have in common. */
interface Asked {
  messages: ChatMessage[];
  options?: AgentRunOptions;
}

export class TypedOutput {
  readonly #schema: ReadSchema;
  readonly #instruction: string;

  constructor(
    output: Schema,
    readonly repairs = 1,
  ) {
    if (!(Number.isInteger(repairs) && repairs >= 0 && repairs <= MAX_REPAIRS)) {
      throw refused(`output_repairs is from 0 to ${MAX_REPAIRS}`);
    }
    this.#schema = readSchema(output, "the schema of the output");
    this.#instruction =
      "Answer with one JSON value that is valid under this JSON Schema, and with nothing else: no explanation, " +
      `no code fence.\n\n${JSON.stringify(this.#schema.json)}`;
  }

  /** The schema in the last message, and as an option where only text can be the answer: vendors refuse it beside tools. */
  asked<R extends Asked>(request: R, mayAct: boolean): R {
    const options = { ...request.options };
    if (!mayAct) options.json_schema ??= JSON.stringify(this.#schema.json);
    return { ...request, options, messages: withInstruction(request.messages, this.#instruction) };
  }

  /**
   * The first answer that fits, with the usage of all. `again` gives the request for a corrected one, or undefined when
   * there is to be none.
   */
  async answer<R, A extends CompletionResponse>(
    request: R,
    ask: (request: R) => Promise<A>,
    again: (request: R, response: A, correction: ChatMessage) => R | undefined,
  ): Promise<A & { output: any }> {
    let usage: UsageSummary | undefined;
    for (let left = this.repairs; ; left -= 1) {
      const response = await ask(request);
      usage = sumOf(usage, response.usage);
      const whole = { ...response, ...(usage && { usage }) };
      const read = await this.#read(response);
      if (read.ok) return { ...whole, output: read.value };
      const problem = read.problems.join(" ");
      const content = `${problem} Answer again with the corrected JSON value only.`;
      const next = left > 0 ? again(request, whole, { role: "user", content }) : undefined;
      if (next === undefined) throw new MakaiStreamError(problem, { kind: "provider_error", code: "invalid_output" });
      request = next;
    }
  }

  /** The value in an answer, or what is wrong with it. */
  async #read(response: CompletionResponse): Promise<Checked> {
    let found: Checked = { ok: false, problems: ["The answer holds no JSON value."] };
    for (const value of jsonValues(textOf(response))) {
      const checked = await this.#schema.check(value);
      if (checked.ok) return checked;
      found = { ok: false, problems: [`The answer does not follow the schema: ${checked.problems.join("; ")}.`] };
    }
    return found;
  }
}

/** What a run may still use when its answer is asked for again. */
export class Limits {
  turns = 0;
  readonly #began = Date.now();

  constructor(private readonly options: AgentRunOptions = {}) {}

  /** The options with what is left, or undefined when a limit is used up, or its use is not known here (`max_usd`). */
  left(usage: UsageSummary | undefined): AgentRunOptions | undefined {
    const used = { max_turns: this.turns, max_output_tokens: usage?.output ?? 0, max_seconds: (Date.now() - this.#began) / 1000 };
    const left = { ...this.options };
    if (left.max_usd !== undefined) return undefined;
    for (const name of ["max_turns", "max_output_tokens", "max_seconds"] as const) {
      const limit = left[name];
      if (limit === undefined) continue;
      if (limit - used[name] <= 0) return undefined;
      left[name] = limit - used[name];
    }
    return left;
  }
}

function sumOf(left: UsageSummary | undefined, right: UsageSummary | undefined): UsageSummary | undefined {
  if (left === undefined || right === undefined) return left ?? right;
  const sum: UsageSummary = { input: left.input + right.input, output: left.output + right.output };
  for (const name of ["cache_read", "cache_write"] as const) {
    const count = (left[name] ?? 0) + (right[name] ?? 0);
    if (count > 0) sum[name] = count;
  }
  return sum;
}

function withInstruction(messages: readonly ChatMessage[], instruction: string): ChatMessage[] {
  const last = messages.at(-1);
  if (last?.role !== "user") return [...messages, { role: "user", content: instruction }];
  const content =
    typeof last.content === "string" ? `${last.content}\n\n${instruction}` : [...last.content, { type: "text" as const, text: instruction }];
  return [...messages.slice(0, -1), { ...last, content }];
}

function textOf({ message: { content } }: CompletionResponse): string {
  if (typeof content === "string") return content;
  return content.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** The JSON in a text: all of it, a fenced block, or what is between the first and the last bracket. */
function* jsonValues(text: string): Generator<unknown> {
  const fenced = [...text.matchAll(/```\w*\n([\s\S]*?)```/g)].map(([, block = ""]) => block);
  for (const part of [text, ...fenced.reverse(), text.match(/\{[\s\S]*\}/)?.[0], text.match(/\[[\s\S]*\]/)?.[0]]) {
    try {
      if (part !== undefined) yield JSON.parse(part);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
    }
  }
}
