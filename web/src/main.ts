// Starts the page.
import { mount } from "svelte";
import App from "./components/App.svelte";
import { app } from "./state/app.svelte";
import "./styles/base.css";
import "./styles/prose.css";
import "./styles/terminal.css";

app.start();
mount(App, { target: document.getElementById("app") as HTMLElement });
