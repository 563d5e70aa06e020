// Attention: what the heads of a model attend to in a text or a pair, in the pictures that a saved file has, too.

import { attentionView } from "./attention_view.js";
import { Refusal } from "./client.js";
import { element, fill, labelled } from "./elements.js";
import { sendByKey } from "./form.js";
import { notice } from "./notice.js";

const PATH = "v1/attention";
const CAUTION =
  "Attention is what each head mixes, not why the model answers as it does (Jain and Wallace 2019; Wiegreffe and Pinter 2019).";

/** Return the view {title, section, update}; `update` is called when another model is in use. */
export function attentionTextView(session) {
  const title = "Attention";
  const { said, trouble, busy, refuse, clear } = notice(session);
  const text = element("textarea", { rows: 3, dir: "auto", autocomplete: "off" });
  const pair = element("textarea", { rows: 3, dir: "auto", autocomplete: "off" });
  const keys = element("p", { class: "hint keys" }, "or Ctrl+Enter");
  const buttons = element("div", { class: "row" }, element("button", {}, "Show the attention"), keys);
  const form = element(
    "form",
    { class: "card fields", onsubmit: send, novalidate: true },
    labelled(text, "What the heads read"), labelled(pair, "What they read with it", "For a pair; leave it empty for one text."), buttons, said, trouble,
  );
  const shown = element("div", {});
  const result = element("section", { class: "card", "aria-label": "What the heads attend to", hidden: true }, element("p", { class: "hint" }, CAUTION), shown);
  const section = element(
    "section",
    { id: "attention", class: "fields", "aria-labelledby": "attention-title" },
    element("h2", { id: "attention-title", tabindex: "-1" }, title),
    form, result,
  );
  let asked = null;
  sendByKey(form);

  function update() {
    asked?.abort();
    forget();
  }

  function forget() {
    clear();
    result.hidden = true;
    fill(shown);
  }

  async function send(event) {
    event.preventDefault();
    asked?.abort();
    forget();
    if (!text.value.trim()) {
      refuse(new Refusal("Type a text."));
      text.focus();
      return;
    }
    const mine = (asked = new AbortController());
    const second = pair.value.trim() ? { pair: pair.value } : {};
    busy("Reading the text…");
    form.setAttribute("aria-busy", "true");
    try {
      const reply = await session.client.post(PATH, { text: text.value, ...second, model: session.model.name }, { signal: mine.signal });
      clear();
      result.hidden = false;
      const root = element("div", {});
      fill(shown, root);
      await attentionView(root, reply.attention);
    } catch (error) {
      if (error.name === "AbortError") return;
      forget();
      refuse(error);
    } finally {
      if (mine === asked) form.removeAttribute("aria-busy");
    }
  }

  return { title: () => title, section, update };
}
