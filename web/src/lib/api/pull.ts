// The download of the small local model.
import { ask } from "./http";

export interface PullState {
  status: "none" | "running" | "done" | "failed" | "cancelled";
  name: string;
  size: string;
  stage: string;
  done: number;
  total: number;
  message: string;
  hint: string;
  /** Of the model, when it can be used. */
  model_ref: string;
}

export const pull = {
  show: () => ask<PullState>("GET", "/api/models/pull"),
  start: () => ask<PullState>("POST", "/api/models/pull", {}),
  cancel: async (): Promise<PullState> => {
    await ask<void>("DELETE", "/api/models/pull");
    return pull.show();
  },
};
