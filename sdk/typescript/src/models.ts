/**
 * `client.models`: which models there are, with the cache rules.
 *
 * In: filters. Out: the server's answer, from the cache while it is fresh.
 */

import type { Connection } from "./connection.js";
import type { Payload } from "./envelope.js";
import { MakaiStreamError } from "./errors.js";
import { Exchange } from "./exchange.js";
import type {
  ListModelsRequest,
  ListModelsResponse,
  MakaiModelsApi,
  ModelDescriptor,
  ResolveModelRequest,
  ResolveModelResponse,
} from "./types.js";

/** For a server that does not say. */
const DEFAULT_CACHE_MAX_AGE_MS = 300_000;
/** A listing may ask several vendors; none of them may hold the caller up. */
const LISTING_MS = 120_000;
const MAX_CACHED = 64;
const FILTERS = ["provider_id", "api", "model_id", "include_deprecated", "include_login_required"] as const;

export class ModelsClient implements MakaiModelsApi {
  readonly #cache = new Map<string, ListModelsResponse>();

  constructor(private readonly connection: Connection) {}

  async list(request: ListModelsRequest = {}): Promise<ListModelsResponse> {
    const filters = Object.fromEntries(
      FILTERS.flatMap((name) => (request[name] === undefined ? [] : [[name, request[name]]])),
    );
    const key = JSON.stringify(filters);
    const cached = this.#cache.get(key);
    if (cached !== undefined && this.#fresh(cached)) return structuredClone(cached);
    const response = await this.#ask(filters);
    this.#keep(key, response);
    return structuredClone(response);
  }

  async resolve(request: ResolveModelRequest): Promise<ResolveModelResponse> {
    const { provider_id, api, model_id } = request;
    const { models } = await this.list({ provider_id, model_id, ...(api !== undefined && { api }) });
    const [model] = models;
    if (model === undefined) throw invalid(`model not found: ${model_id} of ${provider_id}`);
    if (models.length > 1) throw invalid(`${model_id} of ${provider_id} is ambiguous: name its api`);
    return { model };
  }

  /** The model of this ref, if this client has seen it listed. The ref itself is not taken apart. */
  known(modelRef: string): ModelDescriptor | undefined {
    for (const { models } of this.#cache.values()) {
      const model = models.find(({ model_ref }) => model_ref === modelRef);
      if (model !== undefined) return model;
    }
    return undefined;
  }

  /** A login changed what may be used: what was listed before is asked for again. */
  forget(): void {
    this.#cache.clear();
  }

  #fresh(response: ListModelsResponse): boolean {
    return this.connection.now() <= response.fetched_at_ms + response.cache_max_age_ms;
  }

  #keep(key: string, response: ListModelsResponse): void {
    this.#cache.delete(key);
    this.#cache.set(key, response);
    const [oldest] = this.#cache.keys();
    if (this.#cache.size > MAX_CACHED && oldest !== undefined) this.#cache.delete(oldest);
  }

  async #ask(filters: Payload): Promise<ListModelsResponse> {
    const exchange = new Exchange(this.connection, "stream_id");
    try {
      exchange.send("models_request", filters);
      for (;;) {
        const { type, payload } = await exchange.next(LISTING_MS);
        if (type === "models_response") return this.#response(payload);
      }
    } finally {
      exchange.end();
    }
  }

  #response(payload: Payload): ListModelsResponse {
    const { models, fetched_at_ms, cache_max_age_ms } = payload;
    if (!Array.isArray(models)) {
      throw new MakaiStreamError("the server's answer holds no list of models", { kind: "unknown" });
    }
    return {
      models: models as ModelDescriptor[],
      fetched_at_ms: typeof fetched_at_ms === "number" ? fetched_at_ms : this.connection.now(),
      cache_max_age_ms: typeof cache_max_age_ms === "number" ? cache_max_age_ms : DEFAULT_CACHE_MAX_AGE_MS,
    };
  }
}

function invalid(message: string): MakaiStreamError {
  return new MakaiStreamError(message, { kind: "unknown", code: "invalid_request" });
}
