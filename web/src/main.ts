// Starts the page.
import { mount } from "svelte";
import App from "./components/App.svelte";
import { app } from "./state/app.svelte";
import { notifications } from "./state/notifications.svelte";
import { appearance } from "./state/settings.svelte";
import "./styles/base.css";
import "./styles/prose.css";
import "./styles/terminal.css";

appearance.show();
app.start();
notifications.start();
mount(App, { target: document.getElementById("app") as HTMLElement });

// Keeps the static files and an offline page; browsers have it only over https and on this machine.
if (import.meta.env.PROD && "serviceWorker" in navigator) {
  addEventListener("load", () => void navigator.serviceWorker.register("/sw.js").catch(() => undefined));
}
