// Sign-in: exchanges the password or the token for a cookie.

import { h, patch, t } from "./dom.js";

export function signIn(root, app, begin) {
  let wrong = "";
  let busy = false;

  async function send(event) {
    event.preventDefault();
    const field = event.target.elements.secret;
    busy = true;
    frame();
    try {
      await app.api.signIn(field.value.trim());
      patch(root, []);
      await begin();
      return;
    } catch (problem) {
      wrong = problem.message;
    }
    busy = false;
    frame();
    field.select();
  }

  function frame() {
    patch(root, h("main", { class: "gate", key: "gate" }, h("form", { onsubmit: send },
      h("h1", {}, t("Sign in to Keryx")),
      h("p", {}, t("This server asks for its password or its token. Whoever runs the server knows them.")),
      h("label", { for: "secret" }, t("Password or token")),
      h("input", { class: "field", id: "secret", name: "secret", type: "password", autocomplete: "current-password", required: true, "aria-describedby": wrong ? "wrong" : null, ref: (e) => setTimeout(() => e.focus()) }),
      wrong && h("p", { class: "wrong", id: "wrong", role: "alert" }, wrong),
      h("button", { class: "button main", disabled: busy }, t("Sign in")))));
  }

  document.title = t("Sign in · Keryx");
  frame();
}
