// Loads the page again when the server answers. A page that reloads itself every few seconds would take the focus away.
const PAUSE_MS = 5000;

async function look() {
  const answer = await fetch("/healthz").catch(() => null);
  if (answer?.ok) location.reload();
  else setTimeout(look, PAUSE_MS);
}

setTimeout(look, PAUSE_MS);
