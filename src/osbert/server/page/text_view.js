// One text, or what a model reads together, and what it says of it.

import { Refusal } from "./client.js";
import { element, fill } from "./elements.js";
import { control, sendByKey } from "./form.js";
import { linkTo } from "./link.js";
import { notice } from "./notice.js";
import { pieces } from "./pieces.js";
import { why } from "./why.js";

const EMPTY = "The answer will stand here.";

/** Return the view {title, section, update, open}; `update` is called when another model is in use, `open` for a link. */
export function textView(session) {
  const title = () => session.kind?.heading(session.model) ?? "One text";
  const { said, trouble, say, busy, refuse, clear } = notice(session);
  const held = element("div", { class: "fields" });
  const button = element("button", {});
  const stop = element("button", { type: "button", class: "plain", hidden: true, onclick: () => asked?.abort() }, "Stop");
  const buttons = element("div", { class: "row" }, button, stop, element("p", { class: "hint keys" }, "or Ctrl+Enter"));
  const form = element("form", { class: "card", onsubmit: send, novalidate: true }, held, buttons, trouble);
  const shown = element("div", { class: "shown" });
  const result = element("section", { class: "card result", "aria-label": "Answer" }, said, shown);
  const link = element("a", { href: "#nearest" }, "nearest texts");
  const none = element("p", { class: "card" }, "This model has no task, so it has nothing to say of a text. It can find the ", link, ".");
  const columns = element("div", { class: "columns" }, form, result);
  const heading = element("h2", { id: "text-title", tabindex: "-1" }, title());
  const section = element("section", { id: "text", "aria-labelledby": heading.id }, heading, columns, none);
  let controls = {};
  let asked = null;
  sendByKey(form);

  function update() {
    asked?.abort();
    asked = null;
    stop.hidden = true;
    const before = Object.fromEntries(Object.entries(controls).map(([name, one]) => [name, one.value()]));
    const fields = session.kind.fields(session.model);
    controls = Object.fromEntries(fields.map((field) => [field.name, control(field)]));
    for (const [name, one] of Object.entries(controls)) if (before[name]) one.put(before[name]);
    fill(held, Object.values(controls).map((one) => one.node));
    button.textContent = session.kind.action ?? "";
    heading.textContent = title();
    columns.hidden = !session.kind.action;
    none.hidden = !columns.hidden;
    forget();
  }

  function forget() {
    clear();
    fill(shown, element("p", { class: "hint" }, EMPTY));
  }

  /** Put the texts of a link, {name: texts}, into the fields and ask. */
  function open(values) {
    for (const [name, one] of Object.entries(controls)) if (values[name]) one.put(one.several ? values[name] : values[name][0]);
    if (Object.keys(controls).length) form.requestSubmit();
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
    stop.hidden = !kind.streams;
    try {
      const whole = { ...body, model: model.name, pieces: true };
      const options = { signal: mine.signal, take: grower(shown, kind, row) };
      const reply = await (kind.streams ? client.stream(path, whole, options) : client.post(path, whole, options));
      const [answer] = kind.answers(reply);
      const windows = remark(answer.windows ?? reply.windows?.[0] ?? reply.windows);
      fill(shown, kind.show(answer, row, model), windows, why(session, row), pieces(reply.pieces), linkOf(linkTo("text", model.entry, row)));
      say(kind.said(answer, row));
    } catch (error) {
      if (error.name === "AbortError") {
        if (mine === asked && kind.streams) say("Stopped.");
        return;
      }
      forget();
      refuse(error);
    } finally {
      if (mine === asked) {
        result.removeAttribute("aria-busy");
        stop.hidden = true;
      }
    }
  }

  return { title, section, update, open };
}

/** Return what shows an answer that grows by parts. */
function grower(shown, kind, row) {
  let text = "";
  return (part) => {
    text += part.text;
    fill(shown, kind.growing(text, row));
  };
}

/** Return the link to what was asked, which a click puts into the address and copies; null without one. */
function linkOf(href) {
  if (!href) return null;
  const told = element("span", { class: "hint", "aria-live": "polite" });
  const take = async (event) => {
    event.preventDefault();
    history.replaceState(null, "", href);
    await navigator.clipboard?.writeText(location.href).catch(() => {});
    told.textContent = "It is in the address bar, with the text.";
  };
  return element("p", { class: "row" }, element("a", { href, onclick: take }, "Link to this"), told);
}

/** Return a remark where a text was longer than the model reads at once; null elsewhere. */
function remark(count) {
  return count > 1 ? element("p", { class: "hint" }, `It was read in ${count} overlapping windows.`) : null;
}
