// Conversation: one session as it happens. Shows the visible items of its transcript, and keeps the place of what is
// being read.

import { composer, hasVoices } from "./composer.js";
import { h, icon, iconButton, List, patch, t } from "./dom.js";
import { answererOf, cut, dayName, draftView, items, messageView, pendingView, placeView, plural, questionView, said, stepMessages } from "./format.js";
import { createId, isNew, OPENING, Problem, sentFiles } from "./link.js";
import { askedElsewhere, lostLink, nameOf, stateView, unsentSession } from "./sidebar.js";

const STEP = 100;
const PAUSE = 1000;
// Programs that may keep a conversation, and go on with it in a terminal.
const PROGRAMS = new Set(["claude-code", "codex", "opencode", "goose", "gemini", "qwen"]);
let views = 0;

// `id` is a session, or the name of one that has not begun on the server yet.
export function conversation(root, app, id, seq) {
  const place = ++views;
  let list = null;
  let write = null;
  let failed = null;
  let seen = null;
  let local = 0;
  let flash = 0;
  // The title while it is being changed, and whether the server could not be told of it.
  let title = null;
  let unkept = false;
  let loading = "";
  let reading = 0;
  let newest = 0;
  let announced = 0;
  let left = false;
  let beginning = false;
  let blind = false;
  let outdated = false;
  // The program that keeps the conversation, and for which state of it that was asked.
  let kept = null;
  let keptAt = null;
  // The question that is being changed, the search in this conversation, and the messages that are selected.
  let editing = null;
  let search = null;
  let selected = null;
  // What reads aloud, once it was wanted.
  let speech = null;
  const shown = new Set();
  const unfolded = new Set();
  const whole = new Map();
  const open = () => (app.state.open?.id === id ? app.state.open : null);
  const versionsOf = ({ turn }) => (open().versions.questions ?? []).find((question) => question.some((v) => v.turn === turn)) ?? [];

  const tools = {
    unfolded,
    whole,
    fold(key, now) {
      if (now) unfolded.add(key);
      else unfolded.delete(key);
    },
    changed: () => changed(),
    enlarge: async (part) => (await app.part("./dialogs.js"))?.lightBox(part),
    async all(message) {
      const full = await app.act(() => app.api.message(message.id));
      if (full) whole.set(full.id, full);
      changed();
    },
    copy: (message) => app.copy(said(message)),
    canRead: () => hasVoices() || app.info.speaks,
    reading: () => speech?.reading.id,
    async read(message) {
      speech ??= (await app.part("./speech.js")) ?? null;
      const body = root.querySelector(`[data-seq="${message.seq}"] .body`);
      if (!speech || !body || left) return;
      if (speech.reading.id === message.id) speech.stopReading();
      else speech.read(app, { id: message.id, text: speech.wordsOf(body), changed: () => left || changed() });
    },
    retry: () => app.retry(id),
    undo: (message) => app.undo(id, message),
    edit(message) {
      editing = { seq: message.seq, text: said(message), fresh: true };
      changed();
    },
    keepEdit(text) {
      editing = { ...editing, text, fresh: false };
      app.unsent.keepDraft(`edit.${id}`, editing);
    },
    cancel() {
      endEdit();
      changed();
      write.focus();
    },
    async save(message, text) {
      const files = sentFiles(message.role === "user" ? message.parts.filter((p) => p.type === "media") : []);
      if (!text.trim() && !files.media.length) return;
      if (text.trim() === said(message).trim()) return tools.cancel();
      if ((await app.act(() => app.api.edit(message.id, { text, ...files }))) === undefined) return;
      endEdit();
      changed();
      toEnd();
      write.focus();
    },
    async again(message, model) {
      const sent = await app.act(() => app.api.retry(id, { message: message.seq, ...(model ? { model } : {}) }));
      if (sent !== undefined) toEnd();
    },
    // Goes on with another version of a question, which stands where the other one stood.
    async choose(version, name) {
      if ((await app.act(() => app.api.version(id, version.turn))) === undefined) return;
      await load({ around: version.seq, limit: OPENING });
      seen = null;
      list.atEnd = false;
      update(`m${version.seq}`);
      const buttons = Array.from(root.querySelectorAll(`[data-seq="${version.seq}"] .versions button`));
      (buttons[name === "back" ? 0 : 1]?.disabled ? buttons.find((b) => !b.disabled) : buttons[name === "back" ? 0 : 1])?.focus();
      app.announce(t("Version {n} of {all}", { n: versionsOf(version).findIndex((v) => v.turn === version.turn) + 1, all: versionsOf(version).length }));
    },
    async more(at, message) {
      const { models, model: now } = answererOf(app, open());
      const others = message.role === "assistant" && message.turn && !message.undone ? models.filter((name) => name !== now) : [];
      (await app.part("./dialogs.js"))?.menu(at, [
        ...others.slice(0, 8).map((name) => ["retry", t("Again with {model}", { model: name }), () => tools.again(message, name)]),
        others.length ? null : undefined,
        ["fork", t("Fork from here"), () => tools.fork(message)],
        message.role === "assistant" && message.turn && !message.undone && said(message).trim() && ["edit", t("Edit the answer"), () => tools.edit(message)],
        message.role === "user" && message.turn && !message.undone && ["edit", t("Edit and ask in a copy"), () => tools.copyEdit(message)],
        message.role === "user" && message.turn && !message.undone && ["undo", t("Take back from here on"), () => tools.undo(message)],
        ["info", t("Why: the story of this message"), () => tools.why(message)],
        null,
        message.undone < 0 ? ["redo", t("Restore this message"), () => app.act(() => app.api.restoreMessage(message.id))] : !message.undone && ["trash", t("Delete this message"), () => tools.remove(message)],
        ["trash", t("Erase the text for good"), () => tools.erase(message), "danger"],
      ].filter((entry) => entry !== false && entry !== undefined));
    },
    async remove(message) {
      if ((await app.act(() => app.api.deleteMessage(message.id))) === undefined) return;
      app.toast(t("The message is deleted. The agent does not see it any more."), { action: t("Restore"), onclick: () => app.act(() => app.api.restoreMessage(message.id)) });
    },
    async erase(message) {
      const sure = await app.ask({ title: t("Erase the text of this message?"), text: t("It is gone for good, also from searches and exports. What was sent to a chat stays there."), yes: t("Erase"), danger: true });
      if (sure) await app.act(() => app.api.deleteMessage(message.id, true));
    },
    async fork(message) {
      const forked = await app.act(() => app.api.fork(id, { through: message.seq }, createId()));
      if (forked) app.go(`/s/${forked.session.id}`);
    },
    async copyEdit(message) {
      const files = sentFiles(message.parts.filter((p) => p.type === "media"));
      const key = createId();
      const forked = await app.reword(message, { title: t("Edit and ask in a copy"), text: t("The conversation goes on in a copy, from this message on. This one stays as it is."), yes: t("Ask in a copy") },
        (text) => app.api.fork(id, { through: message.seq - 1, text, ...files }, key));
      if (forked) app.go(`/s/${forked.session.id}`);
    },
    async why(message) {
      const story = await app.act(() => app.api.why(message.id));
      if (story) (await app.part("./dialogs.js"))?.story(story);
    },
    resend: (pending) => app.unsent.again(pending.client),
    drop: (pending) => app.unsent.remove(pending.client),
  };

  async function load(query, session = id) {
    try {
      const given = app.begun(session);
      await app.caught(() => given ?? app.api.open(session, query), (snapshot) => {
        if (left) return;
        id = session;
        failed = null;
        app.dispatch({ type: "open", snapshot });
        newest = snapshot.session.last_seq ?? 0;
        editing ??= app.unsent.draftOf(`edit.${id}`);
        if (!write) begin(snapshot.composer ?? {});
        else if (blind) write.offer(snapshot.composer?.text ?? "");
        blind = false;
      });
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (problem.status === 401) await app.act(() => Promise.reject(problem));
      failed = problem;
      // What is known from before is shown meanwhile.
      if (open() && !write && !left) {
        blind = true;
        begin({});
      }
      app.draw();
    }
  }

  // What is said is on the screen before the server knows of the conversation.
  function preview() {
    const waiting = app.unsent.of(id);
    if (!waiting.length) return app.go("/");
    app.dispatch({ type: "open", snapshot: { session: unsentSession(id, waiting), messages: [] } });
    begin({});
    update();
  }

  // The conversation has begun on the server: it goes on in place.
  async function become(session) {
    beginning = true;
    await load({ limit: OPENING }, session);
    if (left) return;
    if (id === session) {
      write.rename(session);
      app.replace(`/s/${session}`);
      update();
    } else setTimeout(() => { beginning = false; update(); }, PAUSE);
  }

  function begin(first) {
    frame();
    write = composer(root.querySelector(".write"), app, { id, first, send: (message) => { app.unsent.add({ ...message, session: id }); toEnd(); }, stop: () => app.act(() => app.api.stop(id)), last: editLast, placeholder: t("Message") });
    list = new List(root.querySelector(".talk"), { row, height: guess, measured: true, follow: true, edge, moved });
    if (!app.narrow) write.focus();
  }

  function endEdit() {
    editing = null;
    app.unsent.dropDraft(`edit.${id}`);
  }

  // Whether a question that is shown has other words in its field than those that were asked.
  function unsavedEdit() {
    const message = editing && open()?.messages.find((m) => m.seq === editing.seq && !m.undone);
    return Boolean(message) && editing.text.trim() !== said(message).trim();
  }

  // Changes the last question, if it is known here.
  function editLast() {
    const last = open()?.messages.findLast((m) => m.role === "user" && m.turn && !m.undone && !m.observed);
    if (!last || open().running || open().later) return false;
    tools.edit(last);
    list.reveal(`m${last.seq}`);
    return true;
  }

  // The search field of this conversation. Its code is loaded when it is first wanted.
  async function find() {
    if (isNew(id) || left) return;
    if (!search) {
      const part = await app.part("./find.js");
      if (!part || left || search) return;
      search = part.find(app, {
        id, jump, shown: () => root.querySelector(".talk"),
        close() {
          search?.leave();
          search = null;
          frame();
          write.focus();
        },
      });
      frame();
      search.draw(root.querySelector(".find"));
    }
    search.focus();
  }

  // The number of the message that an element stands in.
  const seqOf = (node) => Number((node?.nodeType === 1 ? node : node?.parentElement)?.closest("[data-seq]")?.dataset.seq ?? 0);

  // What is out of sight is not in the document: the messages that a selection began and ended in are remembered.
  function selecting() {
    const now = document.getSelection();
    if (!now || now.isCollapsed || !root.querySelector(".talk")?.contains(now.focusNode)) {
      if (now?.isCollapsed) selected = null;
      return;
    }
    const to = seqOf(now.focusNode);
    const from = seqOf(now.anchorNode);
    if (!from && !to) return;
    if (!selected || selected.all) selected = { from: from || to, to: to || from };
    else if (to) selected = { ...selected, to };
  }

  function selectAll(event) {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "a" || event.target.closest("input, textarea, select, dialog")) return;
    const talk = root.querySelector(".talk");
    if (!talk || !(talk.contains(event.target) || event.target === document.body)) return;
    event.preventDefault();
    document.getSelection().selectAllChildren(talk);
    selected = { from: 1, to: open()?.session.last_seq ?? 1, all: true };
  }

  // Several messages are copied as they are in the store, in Markdown, also those that are out of sight.
  function copying(event) {
    if (!selected || selected.from === selected.to || event.target.closest?.("input, textarea, dialog") || document.getSelection().isCollapsed) return;
    event.preventDefault();
    copyRange(Math.min(selected.from, selected.to), Math.max(selected.from, selected.to));
  }

  function copyRange(first, last) {
    const words = fetch(app.api.words(id, first, last), { credentials: "same-origin" }).then((answer) => {
      if (!answer.ok) throw new Problem(answer.status, t("The server answered {status}.", { status: answer.status }));
      return answer.text();
    }, () => { throw new Problem(0, t("The server cannot be reached. It is tried again as soon as the link is back.")); });
    return app.copy(words, t("Copied as Markdown."));
  }

  function pressed(event) {
    const key = event.key.toLowerCase();
    if ((event.ctrlKey || event.metaKey) && key === "f" && !event.shiftKey && !event.altKey) {
      // A second time is meant for the browser.
      if (search?.focused() || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      find();
    } else if (key === "o" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, textarea, select, dialog") && !isNew(id) && open()) {
      event.preventDefault();
      goTo("outline");
    } else selectAll(event);
  }

  async function goTo(path, ...given) {
    (await app.part("./reading.js"))?.[path](app, { id, jump, session: open().session }, ...given);
  }

  // The list may tell of a scroll after the view was left.
  function frame() {
    if (left) return;
    const now = open();
    if (failed && !now) {
      patch(root, h("div", { class: "screen", key: "failed" }, app.unsent.of(id).map((entry) => h("div", { class: "column", key: entry.client }, pendingView(entry, tools))), h("div", { class: "empty" },
        h("h2", {}, failed.status === 404 ? t("This conversation is not here") : t("This conversation cannot be shown now")),
        h("p", {}, failed.status === 404 ? t("It was deleted, or its address is not quite right.") : failed.message),
        h("button", { type: "button", class: "button main", onclick: () => (failed.status === 404 ? app.go("/") : load({ limit: OPENING })) }, failed.status === 404 ? t("Back to the list") : t("Try again")))));
      return;
    }
    patch(root, [
      header(now),
      search && h("div", { class: "find", key: "find", role: "search", own: true }),
      h("div", { class: "talk", key: `talk-${place}`, role: "log", "aria-live": "off", "aria-label": t("Conversation"), tabindex: "0", own: true }),
      !now && h("p", { class: "loading", key: "loading", role: "status" }, t("Loading…")),
      h("div", { key: "foot", class: "foot" }, pill(now), keptView(), readingView(), h("div", { class: "write", own: true, key: `write-${place}` })),
    ]);
  }

  function header(now) {
    const session = now?.session;
    const { model, standard } = answererOf(app, now);
    return h("header", { class: "bar", key: "bar" },
      h("span", { class: "only-narrow" }, iconButton("back", t("Back to the list"), () => app.go("/"))),
      h("div", { class: "grow" },
        h("h1", {}, !session || isNew(id) ? nameOf(session ?? app.state.sessions.find((s) => s.id === id) ?? { title: "…" }) : title !== null
          ? h("input", { class: "field title", dir: "auto", "aria-label": t("Title"), maxlength: "100", ref: (e) => { e.value = title; if (!unkept) setTimeout(() => { e.focus(); e.select(); }); }, onkeydown: titleKeys, onblur: (e) => rename(e.target.value) })
          : h("button", { type: "button", class: "cut", dir: "auto", title: t("Rename"), "aria-label": t("{title}, rename", { title: nameOf(session) }), onclick: edit }, nameOf(session))),
        session && h("div", { class: "facts" },
          placeView(session),
          model !== standard && h("span", { class: "cut" }, model),
          stateView(app, session),
          app.info.preferences.conversations[id] === "none" && h("span", {}, t("muted")),
          session.ended_at && h("span", {}, t("ended") + (session.end_reason ? `: ${t(session.end_reason)}` : "")),
          session.temporary && h("span", {}, t("temporary")),
          session.archived && h("span", {}, t("archived")))),
      askedElsewhere(app, id),
      lostLink(app),
      session?.temporary && h("button", { type: "button", class: "button", onclick: () => app.act(async () => { await app.api.remove(id); app.go("/"); }) }, t("End")),
      session && !isNew(id) && [
        h("span", { class: "only-wide" }, iconButton("pin", session.pinned ? t("Unpin (p)") : t("Pin (p)"), () => app.pin(session), { "aria-pressed": String(Boolean(session.pinned)) })),
        iconButton("info", t("Details (i)"), () => app.toggleDetails(), { "aria-pressed": String(app.details) }),
        iconButton("more", t("More"), more, { "aria-haspopup": "menu" }),
      ]);
  }

  function edit() {
    unkept = false;
    title = open().session.title ?? "";
    frame();
  }

  function titleKeys(event) {
    if (event.isComposing) return;
    if (event.key === "Escape") {
      title = null;
      frame();
    } else if (event.key === "Enter") rename(event.target.value);
    event.stopPropagation();
  }

  // Leaving the field keeps the title. What cannot be kept now stays in the field until the link is back.
  async function rename(typed) {
    if (title === null) return;
    const wanted = typed.trim();
    const before = open()?.session.title ?? "";
    title = null;
    frame();
    if (wanted === before || (await app.change(id, { title: wanted })) !== undefined || left) return;
    title = wanted;
    unkept = true;
    frame();
  }

  // Where agents work; an empty field is none.
  async function folder() {
    const before = open().session.cwd ?? "";
    const cwd = await app.ask({ title: t("Change the folder"), input: before, yes: t("Save"), empty: true });
    if (typeof cwd === "string" && cwd.trim() !== before) await app.change(id, { cwd: cwd.trim() });
  }

  async function more(event) {
    const at = event.currentTarget;
    const { session } = open();
    const lasting = !session.temporary;
    const offered = (entries) => entries.filter((entry) => entry !== false && entry !== "");
    // Of a temporary conversation there are no copies; its end is in the header.
    const rare = offered([
      ["retry", t("Ask the last question again"), tools.retry],
      ["undo", t("Undo the last turn"), () => app.undo(id)],
      ["redo", t("Redo"), () => app.act(() => app.api.redo(id))],
      lasting && ["fork", t("Fork from the end"), () => app.act(async () => app.go(`/s/${(await app.api.fork(id, {}, createId())).session.id}`))],
      null,
      ["up", t("To the first message"), () => jump(1)],
      ["copy", t("Copy all of it"), () => copyRange(1, open().session.last_seq ?? 1)],
      lasting && ["print", t("Print, or save as PDF"), () => goTo("print")],
      null,
      ...levels(),
      app.info.who.operator && ["folder", t("Change the folder"), folder],
      lasting && ["check", session.ended_at ? t("Reopen") : t("End"), () => app.change(id, { ended: !session.ended_at })],
    ]);
    (await app.part("./dialogs.js"))?.menu(at, offered([
      ["edit", t("Rename"), edit],
      ["pin", session.pinned ? t("Unpin") : t("Pin"), () => app.pin(session)],
      ["archive", session.archived ? t("Unarchive") : t("Archive"), () => app.archive(session)],
      ["folder", t("Move to a project"), () => app.project(session)],
      null,
      lasting && ["search", t("Search in this conversation"), find],
      ["list", t("Questions and dates"), () => goTo("outline")],
      lasting && ["file", t("Export"), async () => (await app.part("./list_actions.js"))?.exported(app, [session])],
      lasting && app.info.public_address && ["link", t("Share by a link"), () => goTo("share")],
      ["more", t("More"), rare],
      null,
      ["trash", t("Delete"), () => app.remove(session), "danger"],
    ]), { title: nameOf(session) });
  }

  // Of what happens here the person is told as set, of all of it, or of nothing.
  function levels() {
    const level = app.info.preferences.conversations[id];
    const choose = (wanted) => () => app.prefer({ conversations: { [id]: wanted } });
    return [
      level && ["bell", t("Tell me as set"), choose("default")],
      level !== "all" && ["bell", t("Tell me of every answer here"), choose("all")],
      level !== "none" && ["mute", t("Tell me nothing of this one"), choose("none")],
    ].filter(Boolean);
  }

  // What its program does with the conversation may have changed whenever the session did.
  async function lookUp(session) {
    if (!session || !PROGRAMS.has(session.surface) || keptAt === session) return;
    keptAt = session;
    const found = await app.api.program(id).catch((problem) => {
      if (!(problem instanceof Problem)) throw problem;
      return null;
    });
    if (!found || left) return;
    kept = found.program ? found : null;
    frame();
  }

  async function takeOver() {
    const found = await app.act(() => app.api.takeOver(id));
    if (!found) return;
    kept = found;
    frame();
    write?.focus();
  }

  function keptText() {
    const names = { program: kept.title, machine: kept.machine };
    if (kept.state === "writing") return t("{program} on {machine} works on an answer there.", names);
    if (kept.state === "open") return t("{program} on {machine} keeps this conversation, and is open there.", names);
    return t("{program} on {machine} keeps this conversation. What you write here is there too.", names);
  }

  function keptView() {
    if (!kept) return null;
    return h("div", { class: "kept", key: "kept", role: "status" }, icon(kept.refusal ? "warn" : "info"), h("span", { class: "grow" }, kept.refusal || keptText()),
      kept.can_take_over && h("button", { type: "button", class: "button", onclick: takeOver }, t("Continue here")));
  }

  // The answer may be out of sight while it is read aloud.
  function readingView() {
    const { id: message, problem } = speech?.reading ?? {};
    if (!message) return null;
    return h("div", { class: "kept", key: "reading", role: problem ? "alert" : "status" }, icon(problem ? "warn" : "speaker"), h("span", { class: "grow" }, problem || t("Reading aloud…")),
      problem && h("button", { type: "button", class: "button", onclick: () => speech.readAgain() }, t("Try again")),
      h("button", { type: "button", class: "button", onclick: () => speech.stopReading() }, problem ? t("Close") : t("Stop")));
  }

  function pill(now) {
    if (!list || !now || (list.atEnd && !now.later)) return null;
    const fresh = Math.max(0, (now.session.last_seq ?? 0) - newest);
    return h("button", { type: "button", class: "pill", key: "pill", onclick: toEnd }, icon("down"), fresh ? plural(fresh, t("{n} new message|{n} new messages")) : t("To the end"));
  }

  async function toEnd() {
    if (open()?.later) await load({ limit: OPENING });
    seen = null;
    list.atEnd = true;
    update();
    list.toEnd();
  }

  function guess(item) {
    if (item.kind !== "message") return 48;
    const text = item.message.parts.reduce((n, p) => n + (p.text?.length ?? 200), 0);
    return 58 + Math.ceil(text / 80) * 22;
  }

  function row(item) {
    const wrap = (memo, ...inner) => h("div", { class: "row", key: item.key, memo: [...memo, local] }, h("div", { class: "column" }, inner));
    switch (item.kind) {
      case "day": return wrap([item.at], h("div", { class: "day" }, dayName(item.at)));
      case "epoch": return wrap([item.epoch], h("div", { class: "break", "data-seq": item.notice?.seq }, item.epoch?.html || item.notice
        ? h("details", { open: unfolded.has(item.key), ontoggle: (e) => tools.fold(item.key, e.target.open) }, h("summary", {}, t("Compacted here: the summary")), item.epoch?.html ? h("div", { class: "prose body", html: item.epoch.html }) : h("div", { class: "prose body plain" }, item.notice.parts[0].text))
        : t("Compacted here")));
      case "fork": return wrap([], h("div", { class: "break plainly" }, h("span", {}, t("Forked here from "), h("a", { href: `#/s/${item.parent}/${open().session.parent_seq}` }, t("another conversation")))));
      case "fold": return wrap([item.messages.length, shown.has(item.key)], h("div", { class: "folded" }, icon("undo"), h("span", { class: "cut grow", dir: "auto" }, cut(said(item.messages[0]) || t("tools"), 90)), h("span", {}, plural(item.messages.length, t("{n} message undone|{n} messages undone"))), h("button", { type: "button", class: "quiet", "aria-expanded": String(shown.has(item.key)), onclick: () => { shown.has(item.key) ? shown.delete(item.key) : shown.add(item.key); changed(); } }, shown.has(item.key) ? t("Fold") : t("Show"))));
      case "message": return wrap([item.message, item.head, item.answer, item.versions?.length, flash === item.message.seq, editing?.seq === item.message.seq, ...item.parts.map((p) => p.part)], () => messageView(item, tools, { flash: flash === item.message.seq, editing: editing?.seq === item.message.seq ? editing : null }));
      case "steps": return wrap([...item.messages, item.head, item.answer, ...item.parts.map((p) => p.part)], () => stepMessages(item, tools));
      case "draft": return wrap([item.draft, item.running, item.head, item.asking], draftView(item, tools));
      case "question": return wrap([item.question], questionView(item.question, app));
      case "failure": return wrap([], h("div", { class: "message" }, h("div", { class: "trouble", role: "alert" }, icon("warn"), h("span", { class: "grow" }, t("The last answer failed. What was said is kept.")), h("button", { type: "button", class: "button", onclick: tools.retry }, t("Try again")))));
      case "reply": return wrap([item.reply], h("div", { class: "notice" }, icon("info"), h("span", { class: "plain", dir: "auto" }, item.reply.text)));
      default: return wrap([item.pending], pendingView(item.pending, tools));
    }
  }

  async function edge(end) {
    const now = open();
    if (!now || loading || now.stale) return;
    const earlier = end === "start" && now.earlier;
    if (!earlier && !(end === "end" && now.later)) return;
    loading = end;
    const border = () => open()?.messages.at(earlier ? 0 : -1)?.seq;
    const from = border();
    const found = await app.act(() => app.caught(() => app.api.messages(id, { [earlier ? "before" : "after"]: from, limit: STEP }), (window) => {
      // What was shown may have been replaced meanwhile: then this stretch would leave a gap.
      if (border() === from) app.dispatch({ type: "window", session: id, side: earlier ? "earlier" : "later", ...window });
    }));
    loading = "";
    if (found === undefined) return;
    update();
  }

  // Marks of many messages have changed: ask for the shown ones again.
  async function refresh() {
    const now = open();
    if (!now?.stale || loading) return;
    loading = "all";
    const last = now.messages[now.messages.length - 1]?.seq ?? 0;
    let from = (now.messages[0]?.seq ?? 1) - 1;
    const found = await app.caught(async () => {
      const all = [];
      const answers = [];
      let later = true;
      let versions;
      while (later && from < last) {
        const found = await app.api.messages(id, { after: from, limit: 200 });
        all.push(...found.messages);
        answers.push(...(found.answers ?? []));
        versions = found.versions ?? {};
        later = found.later ?? false;
        from = all[all.length - 1]?.seq ?? last;
      }
      return { messages: all, later, answers, versions };
    }, (found) => app.dispatch({ type: "window", session: id, side: "all", ...found, earlier: now.earlier })).catch((problem) => {
      if (!(problem instanceof Problem)) throw problem;
      return null;
    });
    loading = "";
    // They are asked for again when the link is back.
    outdated = !found;
    update();
  }

  function moved() {
    frame();
    markRead();
    search?.mark();
  }

  function markRead() {
    const now = open();
    const last = now?.session.last_seq ?? 0;
    if (!now || !list.atEnd || now.later || document.hidden) return;
    newest = last;
    if (last <= (now.session.read ?? 0) || reading === last) return;
    reading = last;
    app.api.read(id, last).then(() => app.dispatch({ type: "read", session: id, seq: last }), () => (reading = 0));
  }

  // What waits in the browser for this conversation stands at its end, until the server has it.
  function showWaiting() {
    const { messages, pending } = open();
    const waiting = app.unsent.of(id);
    const arrived = new Set(messages.map((m) => m.client).filter(Boolean));
    for (const entry of waiting) {
      const known = pending.find((p) => p.client === entry.client);
      if (arrived.has(entry.client)) app.unsent.settle(entry.client, id);
      else if (!known) app.dispatch({ type: "sending", session: id, pending: entry });
      else if (known.error?.text !== entry.error?.text) app.dispatch({ type: "unsent", session: id, client: entry.client, error: entry.error });
    }
    for (const { client, sent } of pending) if (!sent && !waiting.some((entry) => entry.client === client)) app.dispatch({ type: "dropped", session: id, client });
  }

  async function jump(to) {
    if (!to || !open()) return;
    if (!open().messages.some((m) => m.seq === to)) {
      const window = await app.act(() => app.caught(() => app.api.messages(id, { around: to, limit: OPENING }), (w) =>
        app.dispatch({ type: "window", session: id, side: "all", ...w })));
      if (window === undefined) return;
    }
    const target = open().messages.find((m) => m.seq === to);
    seen = null;
    flash = to;
    list.atEnd = false;
    if (target?.undone) for (const item of items(open(), shown)) if (item.kind === "fold" && item.messages.includes(target)) shown.add(item.key);
    const call = target?.role === "tool" && open().messages.findLast((m) => m.seq < to && m.role === "assistant");
    update(`m${to}`);
    if (call) list.show(`m${to}`) || list.show(`m${call.seq}`);
    const steps = list.items.find((item) => item.kind === "steps" && item.messages.some((m) => m.seq === (call?.seq ?? to)));
    if (steps) {
      tools.fold(`s:${steps.key}`, true);
      changed();
      list.show(steps.key);
    }
    setTimeout(() => { flash = 0; changed(); }, 1700);
  }

  function changed() {
    local += 1;
    seen = null;
    update();
  }

  function update(aim) {
    if (left || (!open() && !failed)) return;
    frame();
    if (!list || !open()) return;
    const begun = isNew(id) && !beginning && app.unsent.sessionOf(id);
    if (begun) become(begun);
    showWaiting();
    const now = open();
    lookUp(now.session);
    app.name(`${nameOf(now.session)} · Keryx`);
    write.update();
    if (seen !== now) {
      seen = now;
      list.set(items(now, shown), aim);
    }
    if (now.stale && !outdated) refresh();
    // All that is known belongs to versions that are not in use.
    if (!list.items.length && now.earlier) edge("start");
    markRead();
    frame();
    search?.mark();
  }

  function heard(event) {
    if (event.type === "message" && event.message.session === id && event.message.role === "assistant" && !event.message.mark && event.message.seq > announced) {
      announced = event.message.seq;
      app.announce(t("Answer: {text}", { text: cut(said(event.message), 240) }));
    }
  }

  const onVisible = () => open() && list && markRead();
  document.addEventListener("visibilitychange", onVisible);
  document.addEventListener("selectionchange", selecting);
  document.addEventListener("copy", copying);
  document.addEventListener("keydown", pressed);
  const onVoices = () => list && changed();
  globalThis.speechSynthesis?.addEventListener?.("voiceschanged", onVoices);
  frame();
  if (isNew(id) && app.unsent.sessionOf(id)) {
    id = app.unsent.sessionOf(id);
    app.replace(`/s/${id}`);
  }
  if (isNew(id)) preview();
  else show();

  function show() {
    return load(seq ? { around: seq, limit: OPENING } : { limit: OPENING }).then(() => {
      if (seq) return jump(seq);
      update();
      list?.toEnd();
    });
  }

  // The message that is being read, by its number; 0 at the end, where the newest ones are.
  function reader() {
    const now = open();
    if (!list || !now || (list.atEnd && !now.later)) return 0;
    const at = list.index.get(list.hold()?.key) ?? 0;
    const item = list.items.slice(at).find((i) => i.message ?? i.messages ?? i.notice);
    return (item?.message ?? item?.messages?.[0] ?? item?.notice)?.seq ?? 0;
  }

  return {
    update,
    heard,
    jump,
    reader,
    offer: (text) => write?.offer(text),
    unsaved: () => Boolean(write?.unsaved()) || unsavedEdit(),
    sent(entry, session) {
      if (entry.session === id && session && session !== id && !isNew(id)) app.go(`/s/${session}`);
    },
    resume() {
      outdated = false;
      if (unkept && title !== null) rename(root.querySelector("input.title").value);
      if (failed && failed.status !== 404) show();
      search?.resume();
    },
    leave() {
      left = true;
      speech?.stopReading();
      globalThis.speechSynthesis?.removeEventListener?.("voiceschanged", onVoices);
      document.removeEventListener("visibilitychange", onVisible);
      document.removeEventListener("selectionchange", selecting);
      document.removeEventListener("copy", copying);
      document.removeEventListener("keydown", pressed);
      search?.leave();
      list?.watch.disconnect();
      write?.leave();
    },
  };
}
