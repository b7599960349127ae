// Forms: one set of controls for every screen. A label stands above its field, help below the label, and what is wrong
// below the field; the rest of what went wrong stands above the buttons.

import { h, icon, t } from "./dom.js";
import { Problem } from "./link.js";

// Between a form that was brought into sight and the edge of the screen.
const MARGIN = 16;
let forms = 0;

// What is being typed into one form, and what is wrong with it. It is drawn again with `app.draw`.
export class Form {
  constructor(app, values) {
    this.app = app;
    this.id = `form-${++forms}`;
    this.values = { ...values };
    this.errors = {};
    this.problem = "";
    this.note = "";
    this.busy = "";
    this.opened = true;
  }

  set(name, value) {
    this.values[name] = value;
    delete this.errors[name];
    this.app.draw();
  }

  // Does what a button says. Gives the answer, or undefined when something was wrong, which is shown where it is.
  async run(what, work) {
    if (this.busy) return undefined;
    Object.assign(this, { busy: what, errors: {}, problem: "", note: "" });
    this.app.draw();
    try {
      return (await work()) ?? null;
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (problem.status === 401) await this.app.act(() => Promise.reject(problem));
      else if (problem.field && document.getElementById(this.name(problem.field))) this.errors[problem.field] = problem.message;
      else this.problem = problem.message;
      return undefined;
    } finally {
      this.busy = "";
      this.app.draw();
      const wrong = Object.keys(this.errors)[0];
      if (wrong) requestAnimationFrame(() => document.getElementById(this.name(wrong))?.focus());
    }
  }

  name = (field) => `${this.id}-${field}`;

  // A labelled control. `options` makes it a choice of [value, label], `rows` a field of several lines.
  field(name, label, { help = "", options = null, rows = 0, type = "text", optional = false, ...more } = {}) {
    const id = this.name(name);
    const wrong = this.errors[name];
    const described = [help && `${id}-help`, wrong && `${id}-wrong`].filter(Boolean).join(" ");
    const props = {
      class: "field", id, name, "aria-describedby": described || null, "aria-invalid": wrong ? "true" : null,
      autocomplete: "off", spellcheck: "false", ...more,
    };
    const typed = { ...props, value: this.values[name] ?? "", oninput: (e) => this.set(name, e.target.value) };
    const control = options
      ? h("select", { ...props, onchange: (e) => this.set(name, e.target.value) }, options.map(([value, text]) => h("option", { key: value, value, selected: value === (this.values[name] ?? "") }, text)))
      : rows
        ? h("textarea", { ...typed, rows: String(rows) })
        : h("input", { ...typed, type });
    return h("div", { class: "control", key: name },
      h("label", { for: id }, label, optional && h("span", { class: "muted" }, ` ${t("(optional)")}`)),
      help && h("p", { class: "help", id: `${id}-help` }, help),
      control,
      wrong && h("p", { class: "wrong", id: `${id}-wrong`, role: "alert" }, wrong));
  }

  check(name, label, help = "") {
    const id = this.name(name);
    return h("div", { class: "control tick", key: name },
      h("input", { type: "checkbox", id, checked: Boolean(this.values[name]), "aria-describedby": help ? `${id}-help` : null, onchange: (e) => this.set(name, e.target.checked) }),
      h("label", { for: id }, label),
      help && h("p", { class: "help", id: `${id}-help` }, help));
  }

  // One of several, each with a line of its own.
  choose(name, label, options) {
    const id = this.name(name);
    return h("fieldset", { class: "control", key: name }, h("legend", {}, label),
      options.map(([value, text]) => h("div", { class: "tick", key: value },
        h("input", { type: "radio", id: `${id}-${value}`, name: id, value, checked: this.values[name] === value, onchange: () => this.set(name, value) }),
        h("label", { for: `${id}-${value}` }, text))));
  }

  // Names with values, as many as needed; an empty line at the end takes another one.
  pairs(name, label, { help = "", left, right }) {
    const list = [...(this.values[name] ?? []), ["", ""]];
    const change = (n, at, text) => {
      const next = list.map((pair, i) => (i === n ? pair.map((old, j) => (j === at ? text : old)) : pair));
      this.set(name, next.filter(([a, b]) => a || b));
    };
    const cell = (n, at, words) => h("input", { class: "field", "aria-label": words, placeholder: words, autocomplete: "off", spellcheck: "false", value: list[n][at], oninput: (e) => change(n, at, e.target.value) });
    return h("fieldset", { class: "control", key: name, id: this.name(name), tabindex: "-1" }, h("legend", {}, label), help && h("p", { class: "help" }, help),
      list.map((_, n) => h("div", { class: "pair", key: n }, cell(n, 0, left), cell(n, 1, right))),
      this.errors[name] && h("p", { class: "wrong", role: "alert" }, this.errors[name]));
  }

  // The buttons, under what went wrong or right. Each is [label, what to do, main]; the first one that is main submits.
  ends(...buttons) {
    return [
      this.problem && h("div", { class: "trouble", role: "alert", key: "problem" }, icon("warn"), h("span", { class: "grow" }, this.problem)),
      this.note && h("div", { class: "told", role: "status", key: "note" }, icon("check"), h("span", { class: "grow" }, this.note)),
      h("div", { class: "ends", key: "ends" }, buttons.filter(Boolean).map(([label, onclick, main]) => h("button", { key: label, type: main ? "submit" : "button", class: main ? "button main" : "button", disabled: Boolean(this.busy), onclick: main ? null : onclick }, this.busy === label ? t("Please wait…") : label))),
    ];
  }
}

// A form that was opened is in sight and takes the focus, wherever the button stood.
function reveal(element) {
  requestAnimationFrame(() => {
    const screen = element.closest(".screen");
    const place = element.getBoundingClientRect();
    const { top, bottom } = screen.getBoundingClientRect();
    if (place.bottom > bottom || place.top < top) screen.scrollTop += place.height + 2 * MARGIN > bottom - top ? place.top - top - MARGIN : place.bottom - bottom + MARGIN;
    element.querySelector(".field")?.focus({ preventScroll: true });
  });
}

// A form in a box of its own. One with `opened` set to false was there without being asked for.
export function box(form, title, submit, ...content) {
  return h("form", { class: "form-box", key: form.id, ref: form.opened ? reveal : null, "aria-label": title, novalidate: true, onsubmit: (event) => { event.preventDefault(); submit(); } }, h("h2", {}, title), content);
}

// An entry of a list: what it is, what is to be said of it, and what can be done with it.
export function entry(key, title, facts, actions, ...more) {
  return h("li", { class: "entry", key }, h("div", { class: "grow" }, h("div", { class: "entry-title" }, title), h("div", { class: "entry-facts" }, facts)), h("div", { class: "acts" }, actions), more);
}

export const button = (label, name, onclick, kind = "") => h("button", { type: "button", class: `button ${kind}`.trim(), "aria-label": `${label}: ${name}`, onclick }, label);
