// What the next session will be: its folder, agent, permissions, sandbox and effort. Chosen on the home page.
import { folders, type FolderListing } from "../lib/api/folders";
import { usable } from "../lib/models";
import { noteModel } from "../lib/recent";
import type { PermissionMode, SandboxLevel } from "../lib/protocol";
import type { Model, NewSession, ReasoningEffort } from "../lib/api";
import { app } from "./app.svelte";

class Starting {
  /** Empty: the folder where the server was started. */
  cwd = $state("");
  /** What the server says about the folder; null until it has. */
  folder: FolderListing | null = $state.raw(null);
  effort: ReasoningEffort | "" = $state("");
  private pickedHarness: string | null = $state(null);
  private pickedMode: PermissionMode | null = $state(null);
  private pickedSandbox: SandboxLevel | null = $state(null);

  get harness(): string {
    return this.pickedHarness ?? app.info?.default_agent ?? "native";
  }

  set harness(name: string) {
    this.pickedHarness = name;
  }

  get mode(): PermissionMode {
    return this.pickedMode ?? app.info?.default_mode ?? "ask";
  }

  set mode(mode: PermissionMode) {
    this.pickedMode = mode;
  }

  get sandbox(): SandboxLevel {
    return this.pickedSandbox ?? app.info?.default_sandbox ?? "workspace-write";
  }

  set sandbox(level: SandboxLevel) {
    this.pickedSandbox = level;
  }

  /** Whether the picked model can be told how long to think. */
  get hasEffort(): boolean {
    return this.harness === "native" && (this.model?.capabilities.includes("reasoning") ?? false);
  }

  get model(): Model | undefined {
    return app.models?.find((one) => one.model_ref === app.pickedModel);
  }

  /** Whether a message can be answered: another agent has its own model. */
  get isReady(): boolean {
    return this.harness !== "native" || !app.models || (this.model ? usable(this.model) : app.pickedModel !== "");
  }

  async choose(cwd: string, known: FolderListing | null = null): Promise<void> {
    this.cwd = cwd;
    this.folder = known;
    if (known) return;
    try {
      const listing = await folders.list(`${(cwd || app.info?.default_cwd || "").replace(/\/+$/, "")}/`);
      if (this.cwd === cwd) this.folder = listing;
    } catch {
      // The session itself will say what is wrong with the folder.
    }
  }

  pickModel(modelRef: string): void {
    app.pickedModel = modelRef;
    localStorage.setItem("makai.model", modelRef);
    noteModel(localStorage, modelRef);
  }

  wanted(): NewSession {
    return {
      mode: this.mode,
      sandbox: this.sandbox,
      harness: this.harness,
      // Other agents bring their own models.
      ...(this.harness === "native" && app.pickedModel ? { model_ref: app.pickedModel } : {}),
      ...(this.hasEffort && this.effort ? { reasoning_effort: this.effort } : {}),
      ...(this.cwd ? { cwd: this.cwd } : {}),
    };
  }
}

export const starting = new Starting();
