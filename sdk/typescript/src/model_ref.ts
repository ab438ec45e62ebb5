/**
 * Reads a `model_ref` for logs and error messages. Diagnostics only: to the rest of the SDK a ref is opaque.
 *
 * In: a ref as a server issued it. Out: the triple it names. It agrees with the server's parser, error kinds included,
 * on the vectors in `test/model_ref_vectors.json`. Form: `<provider_id>/<api>@<percent-encoded-model-id>`.
 */

export interface ModelRef {
  provider_id: string;
  api: string;
  model_id: string;
}

/** A text that is not a canonical `model_ref`; `kind` says which rule it breaks. */
export class ModelRefError extends Error {
  override readonly name = "ModelRefError";

  constructor(
    message: string,
    readonly kind: string,
  ) {
    super(message);
  }
}

/** Lengths are in characters (code points), as the server counts them. */
const MAX_REF_LENGTH = 4096;
const MAX_PART_LENGTH = 256;
const MAX_MODEL_ID_LENGTH = 512;

export function parseModelRef(ref: string): ModelRef {
  if (characters(ref) > MAX_REF_LENGTH) {
    throw new ModelRefError(`longer than ${MAX_REF_LENGTH} characters`, "invalid_model_id_encoding");
  }
  const slash = ref.indexOf("/");
  const at = ref.indexOf("@", slash + 1);
  if (slash < 0 || at < 0) throw new ModelRefError("a model_ref looks like provider/api@model", "missing_separators");
  const [provider_id, api, encoded] = [ref.slice(0, slash), ref.slice(slash + 1, at), ref.slice(at + 1)];
  if (provider_id.includes("@") || api.includes("/") || /[/@]/.test(encoded)) {
    throw new ModelRefError("a model_ref has one '/' and one '@'", "ambiguous_separators");
  }
  checkPart(provider_id, "provider_id");
  checkPart(api, "api");
  return { provider_id, api, model_id: decodeModelId(encoded) };
}

function checkPart(value: string, part: "provider_id" | "api"): void {
  if (value === "") throw new ModelRefError(`the ${part} is empty`, `missing_${part}`);
  // No separators, and nothing but the plain space that a reader could not see.
  if (characters(value) > MAX_PART_LENGTH || /[/@%]|(?! )[\p{C}\p{Z}]/u.test(value)) {
    throw new ModelRefError(`the ${part} is too long or has a character it may not have`, `invalid_${part}`);
  }
}

function decodeModelId(encoded: string): string {
  if (encoded === "") throw new ModelRefError("the model id is empty", "missing_model_id");
  if (/%(?![0-9A-Fa-f]{2})/.test(encoded)) {
    throw new ModelRefError("'%' must be followed by two hexadecimal digits", "invalid_percent_escape");
  }
  if (!/^(?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})+$/.test(encoded)) {
    throw new ModelRefError("the model id is not escaped as it must be", "invalid_model_id_encoding");
  }
  const bytes = unescapeBytes(encoded);
  let modelId: string;
  try {
    modelId = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new ModelRefError("the model id is not UTF-8", "invalid_utf8_model_id");
  }
  if (characters(modelId) > MAX_MODEL_ID_LENGTH) {
    throw new ModelRefError(
      `the model id is longer than ${MAX_MODEL_ID_LENGTH} characters`,
      "invalid_model_id_encoding",
    );
  }
  return modelId;
}

function unescapeBytes(encoded: string): Uint8Array {
  const tokens = encoded.match(/%..|./g) ?? [];
  return Uint8Array.from(tokens, (token) => {
    const code = token.length === 1 ? token.charCodeAt(0) : Number.parseInt(token.slice(1), 16);
    if (token.length === 3 && /[A-Za-z0-9._~-]/.test(String.fromCharCode(code))) {
      throw new ModelRefError("the model id escapes a character that needs none", "invalid_model_id_encoding");
    }
    return code;
  });
}

function characters(text: string): number {
  return [...text].length;
}
