// Background: the page's side of the worker. Keeps a copy of what waits to be sent where the worker finds it, connects this
// browser to notifications while the page is closed, and takes what other apps shared.

import { t } from "./dom.js";
import { api, Problem, requestOf } from "./link.js";

const RECORDS = "records";
const SHARED = 10 * 60_000;
const MARK = "keryx:push";

let database = null;

// What the page and the worker share: `who` is signed in, `out <who>` waits to be sent or was sent by the worker, `shared`
// came from another app.
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

// Changes a record as it is at that moment; null leaves it.
const change = (id, work) => records("readwrite", (all) => {
  const request = all.get(id);
  request.onsuccess = () => {
    const next = work(request.result);
    if (next) all.put(next);
  };
  return request;
});

// A browser that keeps nothing for this address sends by the page alone.
const quietly = (work) => work.catch((problem) => {
  if (!(problem instanceof DOMException)) throw problem;
});

let steps = Promise.resolve();

// One step after the other, so that the last word is the last thing that happened.
function step(work) {
  steps = steps.then(() => quietly(work()));
  return steps;
}

const boxOf = (who) => `out ${who.join("/")}`;

// The copy of what waits, in the place where the worker finds it.
export const outbox = {
  // `base` is the address of the profile.
  write({ who, base, entries }) {
    const [principal] = who;
    const items = requests(entries);
    return step(async () => {
      await records("readwrite", (all) => all.put({ id: "who", principal }));
      await change(boxOf(who), (before) => {
        const { begun = {}, sent = [] } = before ?? {};
        return { id: boxOf(who), principal, base, begun, sent, items: items.filter(({ client }) => !sent.some((known) => known.client === client)) };
      });
      if (items.length) await (await navigator.serviceWorker?.getRegistration())?.sync?.register("outbox");
    });
  },

  // What the worker has sent, each once.
  async collect(who) {
    let sent = [];
    await step(() => change(boxOf(who), (before) => {
      if (!before?.sent.length) return null;
      ({ sent } = before);
      return { ...before, sent: [] };
    }));
    return sent;
  },

  written: () => steps,
};

// Nobody is signed in: the worker sends nothing and shows nothing, and somebody else may sign in here next.
export async function leave() {
  await step(() => records("readwrite", (all) => {
    const shared = all.get("shared");
    shared.onsuccess = () => shared.result?.principal && all.delete("shared");
    all.delete("who");
    return all.delete(IDBKeyRange.bound("out ", "out \uffff"));
  }));
  const registration = await navigator.serviceWorker?.getRegistration();
  if (!registration) return;
  for (const shown of await registration.getNotifications()) shown.close();
  await unsubscribe(registration);
}

// What the worker asks of the server for each message. The first of a new conversation begins it; `name` in the paths of the
// others stands for it.
function requests(entries) {
  const begun = new Set();
  return entries.filter((entry) => !entry.error || entry.error.waits).map((entry) => {
    const name = entry.session.startsWith("~") ? entry.session : "";
    const begins = name && !entry.known && !begun.has(name) ? name : "";
    if (name) begun.add(name);
    const files = entry.media.flatMap((part, at) => (part.kept ? [{ at, kept: part.kept, name: part.name }] : []));
    const stand = name ? encodeURIComponent(name) : "";
    return { client: entry.client, at: entry.at, begins: begins && stand, name: stand || "~", files, ...requestOf(entry, entry.known || (begins ? "" : entry.session)) };
  });
}

// Begins once for a page. Gives undefined where the browser has no workers for this address.
export async function start(app) {
  if (!navigator.serviceWorker) return undefined;
  const registration = await navigator.serviceWorker.register("/worker.js", { updateViaCache: "none" }).catch(() => undefined);
  if (!registration) return undefined;
  const background = {
    // Whether this browser is told while the page is closed, and how; null if it is not.
    push: null,
    canPush: Boolean(registration.pushManager && globalThis.Notification),

    show(kind, { id, session, path, title, text }) {
      registration.active?.postMessage({ type: "show", id: `${kind} ${id}`, session, path, title, text });
      return Boolean(registration.active);
    },

    async turnOn(change = {}) {
      const { key, problem } = await api.push();
      if (!key) throw new Problem(503, problem);
      if ((await Notification.requestPermission()) !== "granted") throw new Problem(403, t("This browser refuses notifications of this address; its own settings allow them."));
      const subscription = await subscribe(registration, key);
      const { endpoint, keys } = subscription.toJSON();
      background.push = await api.subscribe({ endpoint, public_key: keys.p256dh, secret: keys.auth, ...change });
      localStorage.setItem(MARK, app.info.who.principal);
    },

    async turnOff() {
      localStorage.removeItem(MARK);
      const known = background.push;
      background.push = null;
      await unsubscribe(registration);
      if (known) await api.unsubscribe(known.id);
    },

    // The same person is here again: what they have turned on goes on.
    async enter() {
      if (!background.canPush || Notification.permission !== "granted" || localStorage.getItem(MARK) !== app.info.who.principal) return;
      await background.turnOn().catch((problem) => {
        if (!(problem instanceof Problem)) throw problem;
      });
      app.draw();
    },
  };
  navigator.serviceWorker.addEventListener("message", ({ data }) => {
    if (data?.type === "open") app.go(data.path);
    if (data?.type === "sent") app.unsent.flush();
  });
  return background;
}

async function subscribe(registration, key) {
  await navigator.serviceWorker.ready;
  const known = await registration.pushManager.getSubscription();
  if (known && encoded(known.options.applicationServerKey) === key) return known;
  await known?.unsubscribe();
  try {
    return await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  } catch (problem) {
    throw new Problem(503, t("The push service of this browser does not answer: {reason}", { reason: problem.message }));
  }
}

const unsubscribe = async (registration) => quietly((async () => (await registration.pushManager?.getSubscription())?.unsubscribe())());

const encoded = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes ?? []))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

// What another app shared, for the field of a new conversation; null if there is nothing, or it is of an earlier time or of
// somebody else. What came while nobody was signed in is for whoever signs in next.
export async function takeShared(principal) {
  let found = null;
  await quietly((async () => {
    found = await records("readonly", (all) => all.get("shared"));
    await records("readwrite", (all) => all.delete("shared"));
  })());
  const mine = found && (!found.principal || found.principal === principal);
  return mine && Date.now() - found.at < SHARED ? found : null;
}
