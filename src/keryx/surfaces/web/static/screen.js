// Screen: what all screens beside the conversation share: a title, one read of the server, and a fresh one when the
// stream tells of something that is shown.

import { h, icon, iconButton, patch, t } from "./dom.js";
import { Problem } from "./link.js";
import { askedElsewhere, lostLink } from "./sidebar.js";

const PAUSE = 250;

// `load` asks the server, `body` describes what came; `live` names the events after which to ask again; `ticks` redraws
// every second; `tables` need more room than text; `above` stands over what scrolls.
export function screen(root, app, { title, lead, load, body, above = () => null, live = [], ticks = false, tables = true }) {
  let data = null;
  let problem = null;
  let timer = 0;
  let left = false;

  async function reload() {
    timer = 0;
    try {
      data = await load();
      problem = null;
    } catch (failed) {
      if (!(failed instanceof Problem)) throw failed;
      if (failed.status === 401) await app.act(() => Promise.reject(failed));
      problem = failed;
    }
    frame();
  }

  function frame() {
    if (left) return;
    patch(root, [
      h("header", { class: "bar", key: `bar-${title}` }, h("span", { class: "only-narrow" }, iconButton("back", t("Back to the list"), () => app.go("/"))), h("h1", { class: "grow" }, title), askedElsewhere(app), lostLink(app)),
      above(),
      h("div", { class: tables ? "screen tables" : "screen", key: `screen-${title}`, tabindex: "0", "aria-label": title, role: "region" }, h("div", { class: "inner" }, h("p", { class: "lead" }, lead), content())),
    ]);
  }

  // What was read before stays, with all that is being typed into it.
  function content() {
    if (data === null) return problem ? empty(t("This cannot be shown now"), problem.message, { label: t("Try again"), onclick: reload }) : h("p", { class: "muted" }, t("Loading…"));
    return [problem && h("div", { class: "trouble", role: "alert", key: "problem" }, icon("warn"), h("span", { class: "grow" }, problem.message), h("button", { type: "button", class: "button", onclick: reload }, t("Try again"))), body(data, reload)];
  }

  const clock = ticks ? setInterval(frame, 1000) : 0;
  frame();
  reload();
  return {
    update: frame,
    resume: reload,
    heard(event) {
      if (live.includes(event.type) && !timer) timer = setTimeout(reload, PAUSE);
    },
    leave() {
      left = true;
      clearTimeout(timer);
      clearInterval(clock);
    },
  };
}

// Says what will appear here, and the one thing that makes it happen.
export function empty(title, text, button) {
  return h("div", { class: "empty", key: "empty" }, h("h2", {}, title), h("p", {}, text), button && h("button", { type: "button", class: "button", onclick: button.onclick }, button.label));
}

// On a phone each cell stands below the other, with the name of its column before it.
export function table(head, rows, label) {
  for (const row of rows) row.children.forEach((cell, i) => (cell.props["data-column"] = head[i].replace(/^#/, "")));
  return h("table", { class: "sheet", "aria-label": label },
    h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col", class: name.startsWith("#") ? "number" : null }, name.replace(/^#/, ""))))),
    h("tbody", {}, rows));
}
