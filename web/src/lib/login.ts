// A login as the page shows it: the events of /api/auth/flows/…/events, folded. Pure.

export type LoginEvent =
  | { type: "auth_url"; url: string; instructions?: string }
  | { type: "prompt"; prompt_id: string; message: string; allow_empty?: boolean }
  | { type: "progress"; message: string }
  | { type: "success" }
  | { type: "error"; message: string; code?: string }
  | { type: "result"; status: "success" | "cancelled" | "failed" };

export interface LoginView {
  url: string | null;
  instructions: string;
  /** A code to type on the provider's page, where the instructions have one. */
  code: string | null;
  prompt: { id: string; message: string; allowEmpty: boolean } | null;
  progress: string;
  error: string | null;
  result: "success" | "cancelled" | "failed" | null;
}

export const NEW_LOGIN: LoginView = {
  url: null,
  instructions: "",
  code: null,
  prompt: null,
  progress: "",
  error: null,
  result: null,
};

export function foldLogin(view: LoginView, event: LoginEvent): LoginView {
  switch (event.type) {
    case "auth_url": {
      const instructions = event.instructions ?? "";
      return { ...view, url: safeAddress(event.url), instructions, code: codeIn(instructions) };
    }
    case "prompt":
      return {
        ...view,
        prompt: { id: event.prompt_id, message: event.message, allowEmpty: event.allow_empty ?? false },
      };
    case "progress":
      return { ...view, progress: event.message };
    case "success":
      return { ...view, prompt: null, error: null };
    case "error":
      return { ...view, prompt: null, error: event.message };
    case "result":
      return { ...view, prompt: null, result: event.status };
    default:
      return view;
  }
}

/** "Open … and enter the code ABCD-1234". */
export function codeIn(instructions: string): string | null {
  return /\bcode:?\s+([A-Z0-9][A-Z0-9-]{3,15})\b/.exec(instructions)?.[1] ?? null;
}

/** Whether what is typed should not be readable over the shoulder. */
export function isSecret(message: string): boolean {
  return /\b(?:key|secret|token|password|passphrase)\b/i.test(message);
}

function safeAddress(url: string): string | null {
  return /^https?:\/\//i.test(url) ? url : null;
}
