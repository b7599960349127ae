// Worker: what runs while the page is closed. It opens the page without the server, sends what waits, shows notifications and
// takes what other apps share. It keeps files of the page alone, which are the same for everybody: what the server says of
// conversations never passes through it. The server puts VERSION and SHELL before this text.
/* global VERSION, SHELL, self, caches, clients, registration */

const CACHE = `keryx-${VERSION}`;
const STATIC = `/static/${VERSION}/`;
const HOME = /^\/(?:p\/[a-z0-9][a-z0-9_-]*\/?)?$/;
const AWAY = new Set([502, 503, 504]);
const SLOW = 8_000;
const PATIENCE = 60_000;
const STALE = 13 * 86_400_000;
const MOST_FILES = 10;
const LARGEST_FILE = 100_000_000;
const LONGEST_TEXT = 100_000;
const RECORDS = "records";

self.addEventListener("install", (event) => event.waitUntil(fill()));
self.addEventListener("activate", (event) => event.waitUntil(renew()));
self.addEventListener("fetch", (event) => {
  const answer = answerTo(event.request);
  if (answer) event.respondWith(answer);
});
self.addEventListener("sync", (event) => event.tag === "outbox" && event.waitUntil(sendAll()));
self.addEventListener("push", (event) => event.waitUntil(pushed(event.data)));
self.addEventListener("pushsubscriptionchange", (event) => event.waitUntil(resubscribe(event)));
self.addEventListener("notificationclick", (event) => event.waitUntil(clicked(event.notification)));
self.addEventListener("message", (event) => event.data?.type === "show" && event.waitUntil(show(event.data)));

// The page as a whole, or nothing of it.
async function fill() {
  const cache = await caches.open(CACHE);
  await cache.addAll([new Request("/", { cache: "reload" }), ...SHELL.map((name) => STATIC + name)]);
  await self.skipWaiting();
}

// Nothing of another release stays.
async function renew() {
  for (const name of await caches.keys()) if (name.startsWith("keryx-") && name !== CACHE) await caches.delete(name);
  await clients.claim();
}

// What the worker answers; undefined leaves a request to the browser.
function answerTo(request) {
  const { origin, pathname } = new URL(request.url);
  if (origin !== self.location.origin) return undefined;
  if (request.mode === "navigate" && request.method === "POST" && pathname === "/share-target") return take(request);
  if (request.method !== "GET") return undefined;
  if (request.mode === "navigate") return HOME.test(pathname) ? open(request) : undefined;
  return pathname.startsWith(STATIC) ? file(request) : undefined;
}

// The server's own page whenever it answers: a kept one is for when it does not.
async function open(request) {
  let answer = null;
  try {
    answer = await fetch(request, { signal: AbortSignal.timeout(SLOW) });
    if (!AWAY.has(answer.status)) return answer;
  } catch {
    answer = null;
  }
  return (await (await caches.open(CACHE)).match("/", { ignoreVary: true })) ?? answer ?? Response.error();
}

// Files have the version in their address, so that a kept one is the right one.
async function file(request) {
  const cache = await caches.open(CACHE);
  const known = await cache.match(request, { ignoreVary: true });
  if (known) return known;
  const answer = await fetch(request);
  if (answer.ok && (answer.headers.get("Cache-Control") ?? "").includes("immutable")) await cache.put(request, answer.clone());
  return answer;
}

// What another app shares becomes text and files for a new conversation, which the page shows to the person. Nothing is sent.
async function take(request) {
  const back = (what) => Response.redirect(`/?shared=${what}`, 303);
  try {
    const form = await request.formData();
    const words = ["title", "text", "url"].map((name) => form.get(name)).filter((word) => typeof word === "string" && word.trim());
    const text = words.filter((word, n) => !words.some((other, m) => m !== n && other.includes(word) && (other !== word || m < n))).join("\n");
    const files = form.getAll("files").filter((part) => part instanceof File && part.size > 0);
    if (text.length > LONGEST_TEXT || files.length > MOST_FILES || files.some((part) => part.size > LARGEST_FILE)) return back("large");
    if (!text && !files.length) return back("none");
    const principal = await person();
    await records("readwrite", (all) => all.put({ id: "shared", principal, at: Date.now(), text, files }));
    return back("yes");
  } catch {
    return back("none");
  }
}

let database = null;

// The records that the page and the worker share: see `background.js`.
async function records(mode, work) {
  database ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("keryx-worker", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(RECORDS, { keyPath: "id" });
    Object.assign(request, { onsuccess: () => resolve(request.result), onerror: () => reject(request.error) });
  });
  const doing = (await database).transaction(RECORDS, mode);
  const request = work(doing.objectStore(RECORDS));
  await new Promise((resolve, reject) => Object.assign(doing, { oncomplete: resolve, onabort: () => reject(doing.error ?? new DOMException("the change was given up")) }));
  return request.result;
}

const person = async () => (await records("readonly", (all) => all.get("who")))?.principal ?? "";

// Sends what waits, of the person who is signed in alone. The lock is that of the page: one of them sends, never both.
async function sendAll() {
  const boxes = (await records("readonly", (all) => all.getAll())).filter((box) => box.id.startsWith("out "));
  for (const { id } of boxes) await navigator.locks.request(id.slice(4), () => sendBox(id));
}

async function sendBox(id) {
  for (;;) {
    const box = await records("readonly", (all) => all.get(id));
    const item = box?.items[0];
    if (!item || box.principal !== (await person()) || Date.now() - Date.parse(item.at) > STALE) return;
    // Which session a name of the page stands for is known since the one before was sent.
    const path = item.path.replace(item.name, (name) => box.begun[name] ?? name);
    const body = { ...item.body, media: [...item.body.media] };
    for (const part of item.files) {
      const answer = await ask(box, `/api/media?name=${encodeURIComponent(part.name)}`, { body: await keptFile(part.kept), type: "application/octet-stream" });
      if (!answer) return;
      body.media[part.at] = answer.media;
    }
    const answer = await ask(box, path, { body: JSON.stringify(body), type: "application/json", key: item.client });
    if (!answer) return;
    await settle(id, item, answer);
    for (const page of await clients.matchAll({ type: "window", includeUncontrolled: true })) page.postMessage({ type: "sent" });
  }
}

// Gives what the server answered, or null if it is for the page to say what is wrong. Raises if it may go better later.
async function ask(box, path, { body, type, key }) {
  if (!body) return null;
  const headers = { "Content-Type": type, "Keryx-Person": box.principal, ...(key ? { "Idempotency-Key": key } : {}) };
  const answer = await fetch(box.base + path, { method: "POST", headers, body, credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE) });
  if (answer.ok) return answer.json();
  if (answer.status === 429 || answer.status >= 500) throw new Error(`the server answered ${answer.status}`);
  return null;
}

async function settle(id, item, { session, seq, reply }) {
  await records("readwrite", (all) => {
    const request = all.get(id);
    request.onsuccess = () => {
      const box = request.result;
      if (!box) return;
      if (item.begins) box.begun[item.begins] = encodeURIComponent(session);
      all.put({ ...box, items: box.items.filter(({ client }) => client !== item.client), sent: [...box.sent, { client: item.client, session, seq, reply }] });
    };
    return request;
  });
}

async function keptFile(kept) {
  const opened = await new Promise((resolve, reject) => {
    const request = indexedDB.open("keryx-files", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("files", { keyPath: "id" });
    Object.assign(request, { onsuccess: () => resolve(request.result), onerror: () => reject(request.error) });
  });
  try {
    const request = opened.transaction("files", "readonly").objectStore("files").get(kept);
    await new Promise((resolve, reject) => Object.assign(request, { onsuccess: resolve, onerror: () => reject(request.error) }));
    return request.result?.file ?? null;
  } finally {
    opened.close();
  }
}

// A notification for somebody who has signed out meanwhile is not shown, nor one for a person who looks at the page.
async function pushed(data) {
  let told = null;
  try {
    told = data.json();
  } catch {
    return;
  }
  if (typeof told?.who !== "string" || told.who !== (await person())) return;
  const pages = await clients.matchAll({ type: "window", includeUncontrolled: true });
  if (!pages.some((page) => page.focused)) await show(told);
}

// One for each conversation. The page may have shown the same event already.
async function show({ id, session, path, title, text }) {
  const before = await registration.getNotifications({ tag: session });
  const icon = `${STATIC}icons/192.png`;
  await registration.showNotification(title, { body: text, tag: session, renotify: !before.some((known) => known.data?.id === id), data: { id, path }, icon, badge: icon });
}

async function clicked(notification) {
  notification.close();
  const { path } = notification.data ?? {};
  if (typeof path !== "string" || !path.startsWith("/") || path.startsWith("//")) return;
  const { pathname, hash } = new URL(path, self.location.origin);
  const pages = await clients.matchAll({ type: "window", includeUncontrolled: true });
  const known = pages.find((page) => new URL(page.url).pathname === pathname);
  if (!known) {
    await clients.openWindow(path);
    return;
  }
  known.postMessage({ type: "open", path: hash.slice(1) });
  await known.focus();
}

// The push service has given the browser another address.
async function resubscribe({ oldSubscription }) {
  const who = await person();
  if (!who || !oldSubscription) return;
  const { endpoint, keys } = (await registration.pushManager.subscribe(oldSubscription.options)).toJSON();
  const headers = { "Content-Type": "application/json", "Keryx-Person": who };
  await fetch("/api/push", { method: "PUT", headers, body: JSON.stringify({ endpoint, public_key: keys.p256dh, secret: keys.auth }), credentials: "same-origin" });
}
