/**
 * JSON Schemas of zod 3, whose schemas cannot write their own. They are read by their shape, so zod is no dependency.
 *
 * What has no JSON form (dates, maps, functions) and recursive schemas are refused; `withJsonSchema` is for those.
 */

import type { Payload } from "./envelope.js";
import type { JsonSchema } from "./json_schema.js";

interface Zod3 {
  readonly _def: Payload & { readonly typeName?: string; readonly description?: string };
  isOptional?(): boolean;
}

const FORMATS: Record<string, string> = { email: "email", url: "uri", uuid: "uuid", datetime: "date-time", date: "date", ip: "ip" };
/** Wrappers that do not change what is given to them, and where the inner schema is. */
const TRANSPARENT: Record<string, string> = {
  ZodBranded: "type",
  ZodCatch: "innerType",
  ZodEffects: "schema",
  ZodOptional: "innerType",
  ZodPipeline: "in",
  ZodReadonly: "innerType",
};

export function isZod3(schema: object): boolean {
  return typeof (schema as Partial<Zod3>)._def?.typeName === "string";
}

/** What may be given to a schema of zod 3. */
export function jsonSchemaOfZod3(schema: unknown, at = "the schema"): JsonSchema {
  const { _def: def } = schema as Zod3;
  const written = written3(def, at);
  return def.description === undefined || typeof written === "boolean" ? written : { ...written, description: def.description };
}

function written3(def: Zod3["_def"], at: string): JsonSchema {
  const name = def.typeName ?? "";
  const inner = TRANSPARENT[name];
  if (inner !== undefined) return jsonSchemaOfZod3(def[inner], at);
  const each = (parts: unknown): JsonSchema[] => [...(parts as Iterable<unknown>)].map((part) => jsonSchemaOfZod3(part, at));
  switch (name) {
    case "ZodString":
      return stringOf(def);
    case "ZodNumber":
      return numberOf(def);
    case "ZodBoolean":
      return { type: "boolean" };
    case "ZodNull":
      return { type: "null" };
    case "ZodAny":
    case "ZodUnknown":
      return {};
    case "ZodLiteral":
      return { const: def["value"] };
    case "ZodEnum":
      return { type: "string", enum: def["values"] };
    case "ZodNativeEnum":
      return { enum: enumValues(def["values"] as Payload) };
    case "ZodArray":
      return { type: "array", items: jsonSchemaOfZod3(def["type"], `${at}/items`), ...sizeOf(def) };
    case "ZodTuple":
      return { type: "array", prefixItems: each(def["items"]), minItems: (def["items"] as unknown[]).length, items: def["rest"] ? jsonSchemaOfZod3(def["rest"], at) : false };
    case "ZodRecord":
      return { type: "object", additionalProperties: jsonSchemaOfZod3(def["valueType"], `${at}/values`) };
    case "ZodUnion":
      return { anyOf: each(def["options"]) };
    case "ZodDiscriminatedUnion":
      return { anyOf: each((def["options"] as { values?: () => unknown }) instanceof Map ? (def["options"] as Map<unknown, unknown>).values() : def["options"]) };
    case "ZodIntersection":
      return { allOf: each([def["left"], def["right"]]) };
    case "ZodNullable":
      return { anyOf: [jsonSchemaOfZod3(def["innerType"], at), { type: "null" }] };
    case "ZodDefault":
      return { ...(jsonSchemaOfZod3(def["innerType"], at) as object), default: (def["defaultValue"] as () => unknown)() };
    case "ZodObject":
      return objectOf(def, at);
  }
  throw new TypeError(`${at} is a ${name}, which has no JSON Schema here: give one with withJsonSchema(schema, jsonSchema)`);
}

function objectOf(def: Payload, at: string): JsonSchema {
  const shape = Object.entries((def["shape"] as () => Record<string, Zod3>)());
  const properties = Object.fromEntries(shape.map(([name, part]) => [name, jsonSchemaOfZod3(part, `${at}/${name}`)]));
  const required = shape.filter(([, part]) => part.isOptional?.() !== true).map(([name]) => name);
  const closed = def["unknownKeys"] === "strict" ? { additionalProperties: false } : {};
  return { type: "object", properties, ...(required.length > 0 && { required }), ...closed };
}

function stringOf(def: Payload): JsonSchema {
  const schema: Payload = { type: "string" };
  for (const { kind, value, regex } of (def["checks"] ?? []) as { kind: string; value?: number; regex?: RegExp }[]) {
    if (kind === "min" || kind === "length") schema["minLength"] = value;
    if (kind === "max" || kind === "length") schema["maxLength"] = value;
    if (kind === "regex" && regex !== undefined && regex.flags.replace("u", "") === "") schema["pattern"] = regex.source;
    if (FORMATS[kind] !== undefined) schema["format"] = FORMATS[kind];
  }
  return schema;
}

function numberOf(def: Payload): JsonSchema {
  const schema: Payload = { type: "number" };
  for (const { kind, value, inclusive } of (def["checks"] ?? []) as { kind: string; value?: number; inclusive?: boolean }[]) {
    if (kind === "int") schema["type"] = "integer";
    if (kind === "min") schema[inclusive === false ? "exclusiveMinimum" : "minimum"] = value;
    if (kind === "max") schema[inclusive === false ? "exclusiveMaximum" : "maximum"] = value;
    if (kind === "multipleOf") schema["multipleOf"] = value;
  }
  return schema;
}

function sizeOf(def: Payload): Payload {
  const at = (key: string): number | undefined => (def[key] as { value: number } | null | undefined)?.value;
  const [min, max] = [at("exactLength") ?? at("minLength"), at("exactLength") ?? at("maxLength")];
  return { ...(min !== undefined && { minItems: min }), ...(max !== undefined && { maxItems: max }) };
}

/** The values of a TypeScript enum; one with numbers also maps them back to their names. */
function enumValues(values: Payload): unknown[] {
  const names = Object.keys(values).filter((name) => typeof values[String(values[name])] !== "number");
  return names.map((name) => values[name]);
}
