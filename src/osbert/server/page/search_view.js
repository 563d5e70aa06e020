// Search: the texts of the served files of vectors that are nearest to a query, and why each of them came up.

import { Refusal } from "./client.js";
import { counted, element, fill, labelled } from "./elements.js";
import { sendByKey } from "./form.js";
import { notice } from "./notice.js";

const PATH = "v1/search";
const EMPTY = "The texts that were found will stand here, the best first.";
/** Words of a system that are listed under a text. */
const LISTED = 5;
/** A word that adds less than this part to every score is not marked. */
const FAINT = 0.05;
/** Letters above which a text is shown by its first lines. */
const LONG = 400;
const WORD = /([\p{L}\p{M}\p{N}_]+)/u;
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]/u;

/** Return the view {title, section, update}; `update` is called when the models are known. */
export function searchView(session) {
  const title = "Search";
  const { said, trouble, say, busy, refuse, clear } = notice(session);
  const query = element("textarea", { rows: 2, dir: "auto", autocomplete: "off" });
  const pair = element("textarea", { rows: 2, dir: "auto", autocomplete: "off" });
  const second = labelled(pair, "And with it");
  const most = element("input", { type: "number", min: "1", max: "1000", value: "10" });
  const keys = element("p", { class: "hint keys" }, "or Ctrl+Enter");
  const buttons = element("div", { class: "row" }, element("button", {}, "Search"), keys);
  const facts = element("p", { class: "hint" });
  const form = element(
    "form",
    { class: "card fields", onsubmit: send, novalidate: true },
    labelled(query, "What are you looking for?"), second, labelled(most, "Most hits"), buttons, facts, trouble,
  );
  const shown = element("div", { class: "shown" }, element("p", { class: "hint" }, EMPTY));
  const result = element("section", { class: "card result", "aria-label": "Hits" }, said, shown);
  const section = element(
    "section",
    { id: "search", "aria-labelledby": "search-title" },
    element("h2", { id: "search-title", tabindex: "-1" }, title),
    element("div", { class: "columns" }, form, result),
  );
  let asked = null;
  sendByKey(form);

  function update() {
    const { systems = [], columns, reranks } = session.searcher?.search ?? {};
    facts.textContent = `By ${systems.join(", ")}${systems.length > 1 ? ", fused" : ""}${reranks ? ", then a reranker" : ""}.`;
    second.hidden = columns !== 2;
  }

  async function send(event) {
    event.preventDefault();
    asked?.abort();
    const { name, search } = session.searcher;
    const controls = search.columns === 2 ? [query, pair] : [query];
    const empty = controls.find((control) => !control.value.trim());
    if (empty) {
      refuse(new Refusal("Type what you are looking for."));
      empty.focus();
      return;
    }
    const texts = controls.map((control) => control.value);
    const mine = (asked = new AbortController());
    busy("Searching…");
    result.setAttribute("aria-busy", "true");
    try {
      const body = { query: texts.length > 1 ? texts : texts[0], k: Math.max(1, Math.floor(Number(most.value)) || 10), model: name };
      const reply = await session.client.post(PATH, body, { signal: mine.signal });
      show(reply, search.systems.length > 1);
    } catch (error) {
      if (error.name === "AbortError") return;
      clear();
      fill(shown, element("p", { class: "hint" }, EMPTY));
      refuse(error);
    } finally {
      if (mine === asked) result.removeAttribute("aria-busy");
    }
  }

  function show({ count, results }, fused) {
    const [{ hits, truncated }] = results;
    const unread = truncated ? `; the last ${counted(truncated, "piece")} of the query were not read` : "";
    say(`${hits.length ? counted(hits.length, "text") : "None"} of ${count.toLocaleString("en")}${unread}`);
    fill(shown, element("ol", { class: "hits" }, hits.map((hit) => item(hit, fused))));
  }

  return { title: () => title, section, update };
}

function item(hit, fused) {
  const systems = Object.entries(hit.systems);
  const words = matched(systems.map(([, { words: those }]) => those ?? {}));
  const texts = [hit.text, hit.pair].filter((text) => text !== undefined && text !== null);
  const rerank = hit.rank_before && element("li", {}, element("b", {}, "reranker"), ` ${written(hit.score)}, rank ${hit.rank_before} before`);
  return element(
    "li",
    {},
    texts.map((text) => shortened(element("p", { class: "text", dir: "auto" }, parts(text, words)), text)),
    element(
      "ul",
      { class: "systems", "aria-label": "Why" },
      rerank,
      systems.map(([name, { rank, score, words: those }]) =>
        element("li", {}, element("b", {}, name), fused ? ` rank ${rank}, ${written(score)}` : ` ${written(score)}`, those && ` (${listed(those)})`),
      ),
      element("li", {}, `line ${hit.line.toLocaleString("en")}`),
    ),
  );
}

/** Return a long text closed, with a button that opens it. */
function shortened(paragraph, text) {
  if (text.length <= LONG) return paragraph;
  paragraph.classList.add("short");
  const open = () => {
    paragraph.classList.toggle("short");
    button.textContent = paragraph.classList.contains("short") ? "Show all" : "Show less";
  };
  const button = element("button", { type: "button", class: "plain", onclick: open }, "Show all");
  return [paragraph, button];
}

function written(score) {
  return score === null || score === undefined ? "–" : score.toLocaleString("en", { maximumSignificantDigits: 4, useGrouping: false });
}

function listed(words) {
  const rows = Object.entries(words);
  const more = rows.length > LISTED ? `, ${rows.length - LISTED} more` : "";
  return rows.slice(0, LISTED).map(([word, fraction]) => `${word} ${(100 * fraction).toFixed(0)}%`).join(", ") + more;
}

/** Return the words of texts that add much to a score; `a > b`: a word of the query that matched one of the text. */
export function matched(wordsOfSystems) {
  const strong = wordsOfSystems.flatMap((words) => Object.entries(words)).filter(([, fraction]) => fraction >= FAINT);
  return new Set(strong.map(([name]) => name.split(" > ").pop().toLowerCase()));
}

/** Return a text in parts, in which matched words are marked: whole words, and pairs of characters without spaces. */
export function parts(text, words) {
  const mark = (part) => element("mark", { class: "answer" }, part);
  return text.split(WORD).map((part) => {
    const word = part.normalize("NFC").toLowerCase();
    if (words.has(word)) return mark(part);
    if (!UNSPACED.test(part)) return part;
    const letters = Array.from(part);
    const marked = letters.map(
      (letter, place) => words.has(letter) || words.has(letters[place - 1] + letter) || words.has(letter + letters[place + 1]),
    );
    return letters.map((letter, place) => (marked[place] ? mark(letter) : letter));
  });
}
