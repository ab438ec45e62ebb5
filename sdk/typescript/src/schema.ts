/**
 * One reading for every kind of schema a program may have: plain JSON Schema, zod 3 and 4, and libraries that follow the
 * Standard Schema convention. None of them is imported; they are known by their shape.
 *
 * In: a schema. Out: its JSON Schema for the model, a check for what the model gave, and its type.
 */

import { isObject } from "./envelope.js";
import { refused } from "./errors.js";
import { type JsonSchema, problemsOf, refuseUnusable } from "./json_schema.js";
import { isZod3, jsonSchemaOfZod3 } from "./zod3.js";

/** The Standard Schema convention: zod from 3.24, Valibot, ArkType and others. */
export interface StandardSchema<Output = unknown> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => unknown;
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined;
  };
}

/** A schema of zod before 3.24. */
export interface OldZodSchema<Output = unknown> {
  readonly _output: Output;
  safeParseAsync(value: unknown): Promise<unknown>;
}

export type SchemaObject = { readonly [keyword: string]: unknown };
export type Schema = StandardSchema | OldZodSchema | SchemaObject;

/** What an answer has to be. */
export interface OutputOptions<S extends Schema> {
  /**
   * A schema of zod 3 or 4, of another library that follows Standard Schema, or a JSON Schema. The answer's `output` is a
   * value of it; an answer that is none fails as "invalid_output".
   */
  output: S;
  /** How often an answer that does not fit is asked for again, within the limits in `options`. Default: 1. */
  output_repairs?: number;
}

/** The type of the values of a schema. */
export type Infer<S> = S extends { readonly "~standard": { readonly types?: infer T } }
  ? NonNullable<T> extends { readonly output: infer Output }
    ? Output
    : unknown
  : S extends { readonly _output: infer Output }
    ? Output
    : FromJsonSchema<S>;

type FromJsonSchema<S> = S extends { readonly const: infer Value }
  ? Value
  : S extends { readonly enum: readonly (infer Value)[] }
    ? Value
    : S extends { readonly anyOf: readonly (infer Part)[] }
      ? FromJsonSchema<Part>
      : S extends { readonly oneOf: readonly (infer Part)[] }
        ? FromJsonSchema<Part>
        : S extends { readonly type: readonly (infer Type)[] }
          ? OfType<S, Type>
          : S extends { readonly type: infer Type }
            ? OfType<S, Type>
            : unknown;

type OfType<S, Type> = Type extends "string"
  ? string
  : Type extends "number" | "integer"
    ? number
    : Type extends "boolean"
      ? boolean
      : Type extends "null"
        ? null
        : Type extends "array"
          ? S extends { readonly items: infer Item }
            ? FromJsonSchema<Item>[]
            : unknown[]
          : Type extends "object"
            ? ObjectOf<S>
            : unknown;

type ObjectOf<S> = S extends { readonly properties: infer P } ? Properties<P, RequiredOf<S>> : Record<string, unknown>;
type RequiredOf<S> = S extends { readonly required: readonly (infer Name)[] } ? Name : never;
type Properties<P, Needed> = Flat<
  { -readonly [K in keyof P as K extends Needed ? K : never]: FromJsonSchema<P[K]> } & {
    -readonly [K in keyof P as K extends Needed ? never : K]?: FromJsonSchema<P[K]>;
  }
>;
type Flat<T> = { [K in keyof T]: T[K] };

export type Checked = { ok: true; value: unknown } | { ok: false; problems: string[] };

/** A schema as the SDK uses it. */
export interface ReadSchema {
  /** For the model. */
  readonly json: SchemaObject;
  /** The value as the schema's library gives it, with defaults and conversions; or what does not fit. */
  check(value: unknown): Promise<Checked>;
}

const GIVEN = Symbol("makai.json_schema");

/** The schema with a JSON Schema for the model, for libraries and types that cannot write theirs. */
export function withJsonSchema<S extends StandardSchema | OldZodSchema>(schema: S, json: SchemaObject): S {
  return Object.create(schema, { [GIVEN]: { value: json } }) as S;
}

/** Throws `MakaiStreamError` with the code "invalid_request" when a schema cannot be used. `what` names it. */
export function readSchema(schema: Schema, what: string): ReadSchema {
  try {
    const json = jsonSchemaOf(schema);
    if (!isObject(json)) throw new TypeError("it is not an object");
    const { $schema: _, ...rest } = json;
    const standard = (schema as Partial<StandardSchema>)["~standard"];
    if (standard !== undefined) return { json: rest, check: async (value) => checkedBy(await standard.validate(value)) };
    if (isZod(schema)) return { json: rest, check: async (value) => checkedBy(await schema.safeParseAsync(value)) };
    refuseUnusable(rest);
    return { json: rest, check: async (value) => checkedAs(value, problemsOf(rest, value)) };
  } catch (error) {
    const message = `${what} cannot be used: ${error instanceof Error ? error.message : String(error)}`;
    throw refused(message, error);
  }
}

function isZod(schema: Schema): schema is OldZodSchema {
  return typeof (schema as Partial<OldZodSchema>).safeParseAsync === "function";
}

interface WritesJsonSchema {
  readonly jsonSchema?: { input(options: { target: string }): JsonSchema };
}

function jsonSchemaOf(schema: Schema): unknown {
  if (!isObject(schema) && typeof schema !== "function") throw new TypeError("it is no schema");
  if (GIVEN in schema) return (schema as { [GIVEN]: JsonSchema })[GIVEN];
  const standard = (schema as Partial<StandardSchema>)["~standard"] as WritesJsonSchema | undefined;
  if (standard?.jsonSchema !== undefined) return standard.jsonSchema.input({ target: "draft-2020-12" });
  if (isZod3(schema)) return jsonSchemaOfZod3(schema);
  if (standard === undefined && !isZod(schema)) return schema;
  throw new TypeError("its library does not write JSON Schemas: give one with withJsonSchema(schema, jsonSchema)");
}

interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[];
}

/** The answer of `validate`, or of zod's `safeParseAsync`. */
function checkedBy(answer: unknown): Checked {
  const { issues, error, value, data } = answer as { issues?: Issue[]; error?: { issues: Issue[] }; value?: unknown; data?: unknown };
  const found = issues ?? error?.issues;
  if (found === undefined) return { ok: true, value: "value" in (answer as object) ? value : data };
  return { ok: false, problems: found.slice(0, 5).map(problem) };
}

function checkedAs(value: unknown, problems: string[]): Checked {
  return problems.length === 0 ? { ok: true, value } : { ok: false, problems };
}

function problem({ message, path = [] }: Issue): string {
  const where = path.map((step) => String(typeof step === "object" ? step.key : step)).join("/");
  return where === "" ? message : `at ${where}: ${message}`;
}
