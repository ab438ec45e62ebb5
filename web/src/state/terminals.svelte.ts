// Which command is shown large.
import { newestCommand } from "../lib/changes";
import { app } from "./app.svelte";

class Terminals {
  /** The call of the command that was opened. Commands that run at the same time are shown with it. */
  callId = $state("");

  open(callId: string): void {
    this.callId = callId;
    app.dialog = "terminal";
  }

  /** The newest command that runs, else the newest one that has run. */
  openNewest(): void {
    const found = app.session && newestCommand(app.session.view.chunks);
    if (found) this.open(found.callId);
  }
}

export const terminals = new Terminals();
