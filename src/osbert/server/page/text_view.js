// One text, or what a model reads together, and what it says of it.

import { Refusal } from "./client.js";
import { element, fill } from "./elements.js";
import { control, sendByKey } from "./form.js";
import { notice } from "./notice.js";
import { pieces } from "./pieces.js";

const EMPTY = "The answer will stand here.";

/** Return the view {title, section, update}; `update` is called when another model is in use. */
export function textView(session) {
  const title = "One text";
  const { said, trouble, say, busy, refuse, clear } = notice(session);
  const held = element("div", { class: "fields" });
  const button = element("button", {});
  const buttons = element("div", { class: "row" }, button, element("p", { class: "hint keys" }, "or Ctrl+Enter"));
  const form = element("form", { class: "card", onsubmit: send, novalidate: true }, held, buttons, trouble);
  const shown = element("div", { class: "shown" });
  const result = element("section", { class: "card result", "aria-label": "Answer" }, said, shown);
  const link = element("a", { href: "#nearest" }, "nearest texts");
  const none = element("p", { class: "card" }, "This model has no task, so it has nothing to say of a text. It can find the ", link, ".");
  const columns = element("div", { class: "columns" }, form, result);
  const heading = element("h2", { id: "text-title", tabindex: "-1" }, title);
  const section = element("section", { id: "text", "aria-labelledby": heading.id }, heading, columns, none);
  let controls = {};
  let asked = null;
  sendByKey(form);

  function update() {
    asked?.abort();
    const before = Object.fromEntries(Object.entries(controls).map(([name, one]) => [name, one.value()]));
    const fields = session.kind.fields(session.model);
    controls = Object.fromEntries(fields.map((field) => [field.name, control(field)]));
    for (const [name, one] of Object.entries(controls)) if (before[name]) one.put(before[name]);
    fill(held, Object.values(controls).map((one) => one.node));
    button.textContent = session.kind.action ?? "";
    columns.hidden = !session.kind.action;
    none.hidden = !columns.hidden;
    forget();
  }

  function forget() {
    clear();
    fill(shown, element("p", { class: "hint" }, EMPTY));
  }

  async function send(event) {
    event.preventDefault();
    asked?.abort();
    const empty = [...form.querySelectorAll("input, textarea")].find((input) => !input.value.trim());
    if (empty) {
      forget();
      refuse(new Refusal("Nothing can be said of an empty text: fill in every field."));
      empty.focus();
      return;
    }
    const { model, kind, client } = session;
    const row = Object.fromEntries(Object.entries(controls).map(([name, one]) => [name, one.value()]));
    const { path, body } = kind.request([row], model);
    const mine = (asked = new AbortController());
    busy("Asking the model…");
    result.setAttribute("aria-busy", "true");
    try {
      const reply = await client.post(path, { ...body, model: model.name, pieces: true }, { signal: mine.signal });
      const [answer] = kind.answers(reply);
      fill(shown, kind.show(answer, row, model), remark(answer.windows ?? reply.windows?.[0] ?? reply.windows), pieces(reply.pieces));
      say(kind.said(answer, row));
    } catch (error) {
      if (error.name === "AbortError") return;
      forget();
      refuse(error);
    } finally {
      if (mine === asked) result.removeAttribute("aria-busy");
    }
  }

  return { title, section, update };
}

/** Return a remark where a text was longer than the model reads at once; null elsewhere. */
function remark(count) {
  return count > 1 ? element("p", { class: "hint" }, `It was read in ${count} overlapping windows.`) : null;
}
