// Models for the picker: which can be used, what they can do and cost, and in which order they are shown. Pure.
import type { Model } from "./api";
import { tokens } from "./format";

export type ModelGroup = "recent" | "usable" | "login" | "away";

export const GROUP_NAMES: Record<ModelGroup, string> = {
  recent: "Used lately",
  usable: "Ready to use",
  login: "After you log in",
  away: "Not answering now",
};

const READY = new Set(["authenticated", "refreshing", "unknown"]);
/** Whether its provider is logged in, or needs no login. */
export const isLoggedIn = (model: Model): boolean => READY.has(model.auth_status);
/** Why a model on the server's machine cannot answer now; empty when it can, or when that is not known. */
export const trouble = (model: Model): string => model.metadata?.["unavailable"] ?? "";
export const usable = (model: Model): boolean => isLoggedIn(model) && !trouble(model);

/** What it can do beyond text, as short labels. */
export function abilities(model: Model): string[] {
  const names: Record<string, string> = { vision: "images", reasoning: "reasoning", tools: "tools" };
  return Object.keys(names).flatMap((key) => (model.capabilities.includes(key) ? [names[key] ?? ""] : []));
}

/** "$3 in, $15 out"; empty when the price is not known. */
export function priceText(model: Model): string {
  const cost = (kind: "input" | "output"): number | null => {
    const text = model.metadata?.[`price_${kind}_usd_per_mtok`];
    return text === undefined || Number.isNaN(Number(text)) ? null : Number(text);
  };
  const [input, output] = [cost("input"), cost("output")];
  if (input === null || output === null) return "";
  return input === 0 && output === 0 ? "free" : `$${input} in, $${output} out`;
}

export const contextText = (model: Model): string => (model.context_window ? `${tokens(model.context_window)} context` : "");

export function groupOf(model: Model, recent: readonly string[]): ModelGroup {
  if (usable(model)) return recent.includes(model.model_ref) ? "recent" : "usable";
  return trouble(model) || model.auth_status === "failed" || model.auth_status === "expired" ? "away" : "login";
}

/** Those that fit the query: used lately, usable, after a login, not answering. Inside a group the order stays. */
export function sortedModels(models: readonly Model[], query: string, recent: readonly string[]): { model: Model; group: ModelGroup }[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const order = Object.keys(GROUP_NAMES);
  const rank = (ref: string): number => (recent.includes(ref) ? recent.indexOf(ref) : recent.length);
  return models
    .filter((model) => {
      const text = `${model.provider_id} ${model.display_name} ${model.model_id} ${abilities(model).join(" ")}`.toLowerCase();
      return words.every((word) => text.includes(word));
    })
    .map((model) => ({ model, group: groupOf(model, recent) }))
    .sort((one, other) => order.indexOf(one.group) - order.indexOf(other.group) || (one.group === "recent" ? rank(one.model.model_ref) - rank(other.model.model_ref) : 0));
}
