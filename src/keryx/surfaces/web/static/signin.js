// Sign-in: exchanges the token for a cookie.

import { h, patch } from "./dom.js";

export function signIn(root, app, begin) {
  let wrong = "";
  let busy = false;

  async function send(event) {
    event.preventDefault();
    const field = event.target.elements.token;
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
      h("h1", {}, "Sign in to Keryx"),
      h("p", {}, "This server asks for its token. It was set when Keryx was installed; whoever runs the server knows it."),
      h("label", { for: "token" }, "Token"),
      h("input", { class: "field", id: "token", name: "token", type: "password", autocomplete: "current-password", required: true, "aria-describedby": wrong ? "wrong" : null, ref: (e) => setTimeout(() => e.focus()) }),
      wrong && h("p", { class: "wrong", id: "wrong", role: "alert" }, wrong),
      h("button", { class: "button main", disabled: busy }, "Sign in"))));
  }

  document.title = "Sign in · Keryx";
  frame();
}
