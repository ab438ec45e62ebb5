// The service worker of the page. It keeps the static files and an offline page, nothing else: what needs a token (API,
// sockets, exports) never passes through it. The page itself always comes from the server when that answers, and a new
// one throws the files of the old one away, so that an upgrade of the server is never mixed with what was kept.
const KEPT = "makai-page-1";
const OFFLINE = ["/offline.html", "/offline.css", "/offline.js", "/icon.svg"];

addEventListener("install", (event) => {
  event.waitUntil(caches.open(KEPT).then((cache) => cache.addAll(OFFLINE)).then(() => skipWaiting()));
});

addEventListener("activate", (event) => {
  const others = caches.keys().then((names) => Promise.all(names.filter((name) => name !== KEPT).map((name) => caches.delete(name))));
  event.waitUntil(others.then(() => clients.claim()));
});

addEventListener("fetch", (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== location.origin) return;
  if (request.mode === "navigate" && pathname === "/") event.respondWith(page(request));
  else if (pathname.startsWith("/assets/") && !pathname.endsWith(".html")) event.respondWith(asset(request));
  else if (OFFLINE.includes(pathname)) event.respondWith(fetch(request).catch(() => caches.match(pathname)));
});

async function page(request) {
  let response;
  try {
    response = await fetch(request);
  } catch {
    return (await caches.match("/offline.html")) ?? Response.error();
  }
  if (response.ok) await forgetOld(await response.clone().text());
  return response;
}

/** Files whose names an upgrade changed are not asked for any more. */
async function forgetOld(html) {
  const cache = await caches.open(KEPT);
  const before = await cache.match("/");
  if (before && (await before.text()) === html) return;
  const kept = await cache.keys();
  await Promise.all(kept.filter(({ url }) => new URL(url).pathname.startsWith("/assets/")).map((one) => cache.delete(one)));
  await cache.put("/", new Response(html));
}

/** The names of these files change with their content. */
async function asset(request) {
  const cache = await caches.open(KEPT);
  const kept = await cache.match(request);
  if (kept) return kept;
  const response = await fetch(request);
  if (response.ok) await cache.put(request, response.clone());
  return response;
}

addEventListener("notificationclick", (event) => {
  event.notification.close();
  const address = `/#/s/${encodeURIComponent(event.notification.data ?? "")}`;
  event.waitUntil(
    clients.matchAll({ type: "window" }).then(async ([open]) => {
      if (!open) return clients.openWindow(address);
      await open.navigate(address);
      return open.focus();
    }),
  );
});
