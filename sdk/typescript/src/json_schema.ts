/**
 * Checks a value against a JSON Schema (draft 2020-12). Nothing is fetched: a `$ref` leads into the same schema.
 *
 * In: a schema, then values. Out: what does not fit, with its place. A keyword that would change the verdict and is not
 * known here makes the schema unusable, so that no value passes unchecked. `format` is an annotation, as the standard says.
 */

import { isObject, type Payload } from "./envelope.js";

export type JsonSchema = boolean | { readonly [keyword: string]: unknown };

const MAX_PROBLEMS = 5;
const MAX_DEPTH = 200;
const REFUSED = ["$dynamicRef", "$recursiveRef", "unevaluatedItems", "unevaluatedProperties", "additionalItems", "dependencies"];
const IN_SCHEMA = ["items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"];
const IN_LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"];
const IN_MAPS = ["$defs", "definitions", "properties", "patternProperties", "dependentSchemas"];
const TYPES: Record<string, (value: unknown) => boolean> = {
  null: (value) => value === null,
  boolean: (value) => typeof value === "boolean",
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  integer: (value) => Number.isInteger(value),
  array: Array.isArray,
  object: isObject,
};

/** Throws a TypeError that says which part of a schema cannot be used. */
export function refuseUnusable(schema: unknown, root = schema, at = "the schema"): void {
  if (typeof schema === "boolean") return;
  if (!isObject(schema)) throw new TypeError(`${at} is not a JSON Schema`);
  for (const keyword of REFUSED) if (keyword in schema) throw new TypeError(`${at} has ${keyword}, which cannot be checked here`);
  for (const type of [schema["type"] ?? []].flat()) {
    if (!Object.hasOwn(TYPES, String(type))) throw new TypeError(`${at} has the type ${JSON.stringify(type)}, which JSON does not have`);
  }
  if ("$ref" in schema) target(root, schema["$ref"]);
  const patterns = [schema["pattern"] ?? [], Object.keys(isObject(schema["patternProperties"]) ? schema["patternProperties"] : {})];
  for (const pattern of patterns.flat()) new RegExp(String(pattern), "u");
  for (const keyword of IN_SCHEMA) if (keyword in schema) refuseUnusable(schema[keyword], root, `${at}/${keyword}`);
  for (const keyword of [...IN_LISTS, ...IN_MAPS]) {
    for (const [key, part] of Object.entries(schema[keyword] ?? {})) refuseUnusable(part, root, `${at}/${keyword}/${key}`);
  }
}

/** What of a value does not fit, at most five problems. */
export function problemsOf(schema: unknown, value: unknown): string[] {
  const found: string[] = [];
  new Check(schema, found).visit(schema, value, [], 0);
  return found.slice(0, MAX_PROBLEMS);
}

class Check {
  constructor(
    private readonly root: unknown,
    private readonly found: string[],
  ) {}

  visit(schema: unknown, value: unknown, path: readonly (string | number)[], depth: number): void {
    if (schema === true || this.found.length >= MAX_PROBLEMS) return;
    const say = (problem: string): void => void this.found.push(path.length > 0 ? `at ${path.join("/")}: ${problem}` : problem);
    if (schema === false || !isObject(schema)) return say("nothing is allowed here");
    if (depth > MAX_DEPTH) return say("it is nested too deeply to be checked");
    const into = (part: unknown, inner: unknown, ...steps: (string | number)[]): void => this.visit(part, inner, [...path, ...steps], depth + 1);
    if ("$ref" in schema) into(target(this.root, schema["$ref"]), value);
    const types = [schema["type"] ?? []].flat().map(String);
    if (types.length > 0 && !types.some((type) => TYPES[type]?.(value))) return say(`${shown(value)} is not of type ${types.join(" or ")}`);
    if (Array.isArray(schema["enum"]) && !schema["enum"].some((one) => same(one, value))) say(`${shown(value)} is not one of ${shown(schema["enum"])}`);
    if ("const" in schema && !same(schema["const"], value)) say(`${shown(value)} is not ${shown(schema["const"])}`);
    if (typeof value === "number") numberProblems(schema, value).forEach(say);
    if (typeof value === "string") stringProblems(schema, value).forEach(say);
    if (Array.isArray(value)) this.#array(schema, value, say, into, depth);
    if (isObject(value)) this.#object(schema, value, say, into, depth);
    this.#combined(schema, value, say, into, depth);
  }

  #fits(schema: unknown, value: unknown, depth: number): boolean {
    const found: string[] = [];
    new Check(this.root, found).visit(schema, value, [], depth + 1);
    return found.length === 0;
  }

  #array(schema: Payload, value: unknown[], say: Say, into: Into, depth: number): void {
    bounds(schema, "Items", value.length, "items").forEach(say);
    if (schema["uniqueItems"] === true && value.some((one, index) => value.slice(0, index).some((other) => same(one, other)))) say("two items are the same");
    const first = Array.isArray(schema["prefixItems"]) ? schema["prefixItems"] : [];
    value.forEach((item, index) => {
      if (index < first.length) into(first[index], item, index);
      else if ("items" in schema) into(schema["items"], item, index);
    });
    if ("contains" in schema) {
      const count = value.filter((item) => this.#fits(schema["contains"], item, depth)).length;
      if (count < Number(schema["minContains"] ?? 1) || count > Number(schema["maxContains"] ?? Infinity)) say(`${count} of its items are as \`contains\` says`);
    }
  }

  #object(schema: Payload, value: Payload, say: Say, into: Into, depth: number): void {
    const names = Object.keys(value);
    bounds(schema, "Properties", names.length, "properties").forEach(say);
    const needed = new Set([schema["required"] ?? []].flat().map(String));
    for (const [name, others] of Object.entries(schema["dependentRequired"] ?? {})) {
      if (Object.hasOwn(value, name)) for (const other of others as string[]) needed.add(other);
    }
    for (const name of needed) if (!Object.hasOwn(value, name)) say(`"${name}" is missing`);
    for (const [name, part] of Object.entries(schema["dependentSchemas"] ?? {})) if (Object.hasOwn(value, name)) into(part, value);
    const properties = isObject(schema["properties"]) ? schema["properties"] : {};
    const patterns = Object.entries(schema["patternProperties"] ?? {});
    for (const name of names) {
      if ("propertyNames" in schema && !this.#fits(schema["propertyNames"], name, depth)) say(`the name "${name}" is not allowed`);
      const parts = patterns.filter(([pattern]) => new RegExp(pattern, "u").test(name)).map(([, part]) => part);
      if (Object.hasOwn(properties, name)) parts.push(properties[name]);
      for (const part of parts) into(part, value[name], name);
      if (parts.length > 0 || !("additionalProperties" in schema)) continue;
      if (schema["additionalProperties"] === false) say(`there is no property "${name}"`);
      else into(schema["additionalProperties"], value[name], name);
    }
  }

  #combined(schema: Payload, value: unknown, say: Say, into: Into, depth: number): void {
    const fitting = (parts: unknown): number => (parts as unknown[]).filter((part) => this.#fits(part, value, depth)).length;
    for (const part of [schema["allOf"] ?? []].flat()) into(part, value);
    if ("anyOf" in schema && fitting(schema["anyOf"]) === 0) say(`${shown(value)} fits none of the alternatives`);
    if ("oneOf" in schema) {
      const count = fitting(schema["oneOf"]);
      if (count !== 1) say(`${shown(value)} fits ${count} of the alternatives instead of one`);
    }
    if ("not" in schema && this.#fits(schema["not"], value, depth)) say(`${shown(value)} is excluded`);
    if ("if" in schema) into(schema[this.#fits(schema["if"], value, depth) ? "then" : "else"] ?? true, value);
  }
}

type Say = (problem: string) => void;
type Into = (part: unknown, inner: unknown, ...steps: (string | number)[]) => void;

function numberProblems(schema: Payload, value: number): string[] {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema as Record<string, number | undefined>;
  const problems: string[] = [];
  if (minimum !== undefined && value < minimum) problems.push(`${value} is less than ${minimum}`);
  if (maximum !== undefined && value > maximum) problems.push(`${value} is more than ${maximum}`);
  if (exclusiveMinimum !== undefined && value <= exclusiveMinimum) problems.push(`${value} is not more than ${exclusiveMinimum}`);
  if (exclusiveMaximum !== undefined && value >= exclusiveMaximum) problems.push(`${value} is not less than ${exclusiveMaximum}`);
  if (multipleOf !== undefined && !isMultiple(value, multipleOf)) problems.push(`${value} is not a multiple of ${multipleOf}`);
  return problems;
}

/** 0.3 is a multiple of 0.1, although their quotient is not exact. */
function isMultiple(value: number, of: number): boolean {
  const quotient = value / of;
  return Math.abs(quotient - Math.round(quotient)) < 1e-9;
}

function stringProblems(schema: Payload, value: string): string[] {
  const problems = bounds(schema, "Length", [...value].length, "characters");
  const { pattern } = schema;
  if (typeof pattern === "string" && !new RegExp(pattern, "u").test(value)) problems.push(`${shown(value)} does not match ${pattern}`);
  return problems;
}

function bounds(schema: Payload, what: string, size: number, of: string): string[] {
  const [min, max] = [schema[`min${what}`], schema[`max${what}`]];
  if (typeof min === "number" && size < min) return [`it has ${size} ${of}, at least ${min} are needed`];
  if (typeof max === "number" && size > max) return [`it has ${size} ${of}, at most ${max} are allowed`];
  return [];
}

/** The part of a schema that a reference such as `#/$defs/name` leads to. */
function target(root: unknown, reference: unknown): unknown {
  const [document, ...steps] = String(reference).split("/");
  let part = root;
  for (const step of document === "#" ? steps : [""]) {
    const key = decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~");
    part = (isObject(part) || Array.isArray(part)) && Object.hasOwn(part, key) ? (part as Payload)[key] : undefined;
  }
  if (part === undefined) throw new TypeError(`the reference ${String(reference)} leads nowhere in this schema`);
  return part;
}

function same(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (Array.isArray(left) && Array.isArray(right)) return left.length === right.length && left.every((one, index) => same(one, right[index]));
  if (!isObject(left) || !isObject(right)) return false;
  const names = Object.keys(left);
  return names.length === Object.keys(right).length && names.every((name) => Object.hasOwn(right, name) && same(left[name], right[name]));
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 80 ? `${text.slice(0, 80)}...` : text;
}
