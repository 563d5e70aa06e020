// Why a model says what it says: the words of a text shaded by their weight, and how far the weights can be trusted.

import { Refusal } from "./client.js";
import { counted, drawing, element, fill, framed, freshId } from "./elements.js";
import { marked } from "./marks.js";
import { notice } from "./notice.js";

/** Words in the table of the strongest; the others are in a second one, closed. */
const STRONGEST = 8;
/** Completeness error up to which weights are amounts (the tolerance of `osbert explain`). */
const EXACT = 0.02;
/** A word under this part of the largest weight is not shaded. */
const FAINT = 0.05;
const STANDS_IN = { mask: "[MASK]", pad: "[PAD]", zero: "nothing" };

/** Return the button under an answer that was given for a row {field: text, or texts}; null where it has no reasons. */
export function why(session, row) {
  const { model, kind, client } = session;
  if (!model.explains) return null;
  const texts = Object.values(row).flat();
  const names = namesOf(kind.fields(model), row);
  const { said, trouble, say, busy, refuse, clear } = notice(session);
  said.className = "hint";
  // The answer is the status of its region, and its form has the alert: these two are read out as well.
  said.removeAttribute("role");
  said.setAttribute("aria-live", "polite");
  trouble.removeAttribute("role");
  trouble.setAttribute("aria-live", "assertive");
  const shown = element("div", { class: "shown", id: freshId("why"), hidden: true });
  const button = element("button", { type: "button", class: "plain", "aria-expanded": "false", "aria-controls": shown.id, onclick: press }, "Why?");
  const node = element("section", { class: "why", "aria-label": "Why" }, element("div", { class: "row" }, button, said), trouble, shown);
  let asked = null;

  function press() {
    if (asked) return stop();
    if (shown.childElementCount) return open(shown.hidden);
    return ask();
  }

  function stop() {
    asked.abort();
    asked = null;
    button.textContent = "Why?";
    clear();
  }

  function open(whether) {
    shown.hidden = !whether;
    button.setAttribute("aria-expanded", String(whether));
    button.textContent = whether ? "Hide why" : "Why?";
    if (!whether) clear();
  }

  async function ask() {
    const mine = (asked = new AbortController());
    button.textContent = "Stop";
    busy("Weighing the words…");
    try {
      const body = { texts: [texts.length > 1 ? texts : texts[0]], check: true, model: model.name };
      const { explanations } = await client.post("v1/explain", body, { signal: mine.signal });
      const [found] = explanations;
      if (!found.length) throw new Refusal("There is no answer here whose words could be weighed.");
      fill(shown, found.map((one, place) => folded(one, explained(one, texts, names), found.length > 1, place === 0)));
      asked = null;
      open(true);
      say(`${found.length > 1 ? `${counted(found.length, "answer")}. ` : ""}${verdict(found[0])}`);
    } catch (error) {
      if (error.name === "AbortError") return;
      asked = null;
      button.textContent = "Why?";
      refuse(error);
    }
  }

  return node;
}

/** Return a name for each text of a row, none where it is the only one. */
function namesOf(fields, row) {
  const names = fields.flatMap(({ name, label }) => (Array.isArray(row[name]) ? row[name].map((_, place) => `${label} ${place + 1}`) : [label]));
  return names.length > 1 ? names : [""];
}

function titleOf({ label, text }) {
  return text ? `${label}: ${text}` : label;
}

/** Return the explanation in a part that opens where there are several. */
function folded(one, content, several, isFirst) {
  if (!several) return content;
  return element("details", { open: isFirst }, element("summary", { dir: "auto" }, titleOf(one)), content);
}

/** Return the texts with their words shaded, the strongest words, and what the figures say. */
function explained(one, texts, names) {
  const largest = Math.max(...one.words.map(({ weight }) => Math.abs(weight)), 1e-12);
  const mark = (part, { weight }) => {
    const made = element("mark", { class: `weight ${side(weight)}`, title: signed(weight) }, part);
    made.style.setProperty("--strength", (Math.abs(weight) / largest).toFixed(3));
    return made;
  };
  const shaded = texts.map((text, place) => {
    const words = one.words.filter((word) => word.text === place && Math.abs(word.weight) >= FAINT * largest);
    return [names[place] && element("p", { class: "caption" }, names[place]), marked(text, words, mark)];
  });
  const [first, others] = [strongest(one).slice(0, STRONGEST), strongest(one).slice(STRONGEST)];
  const rest = others.length > 0 && element("details", {}, element("summary", {}, `The other ${counted(others.length, "word")}`), framed("Other words", table(others, largest, "By size")));
  return element(
    "div",
    { class: "shown" },
    element("p", { class: "hint" }, legend(one)),
    shaded,
    table(first, largest, "The strongest words, and what each adds to the score"),
    rest,
    element("ul", { class: "hint trust" }, trust(one).map((line) => element("li", {}, line))),
  );
}

function legend(one) {
  return [
    element("mark", { class: "weight for" }, "for"),
    " or ",
    element("mark", { class: "weight against" }, "against"),
    ` ${titleOf(one)}: the stronger the colour, the more.`,
  ];
}

/** Return which word speaks most for the answer, and which against it where one outweighs that word. */
function verdict(one) {
  const words = strongest(one);
  const most = words.find(({ weight }) => weight > 0);
  const favour = most ? `Most for ${one.label}: ${most.word}` : `No word speaks for ${one.label}`;
  return words[0]?.weight < 0 ? `${favour}; most against it: ${words[0].word}` : favour;
}

/** Return the words by size of their weight. */
function strongest({ words }) {
  return [...words].sort((one, other) => Math.abs(other.weight) - Math.abs(one.weight));
}

function side(weight) {
  return weight < 0 ? "against" : "for";
}

function signed(number) {
  const told = Math.abs(number).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  return `${number < 0 ? "−" : "+"}${told}`;
}

/** Return a table of words with bars to the right of a middle line for, and to the left against. */
function table(words, largest, caption) {
  const line = ({ word, weight }) =>
    element(
      "tr",
      { class: side(weight) },
      element("th", { scope: "row", dir: "auto" }, word),
      element("td", { class: "bar" }, bar(weight / largest)),
      element("td", { class: "number" }, signed(weight)),
    );
  return element("table", { class: "bars brief" }, element("caption", {}, caption), element("tbody", {}, words.map(line)));
}

function bar(part) {
  const width = 50 * Math.min(1, Math.abs(part));
  return drawing(
    "svg",
    { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" },
    drawing("rect", { class: "track", width: 100, height: 10 }),
    drawing("rect", { class: "share", x: (part < 0 ? 50 - width : 50).toFixed(2), width: width.toFixed(2), height: 10 }),
  );
}

/** Return in plain words what the weights sum to, how far they miss it, and whether a second method agrees. */
export function trust({ score, baseline_score: without, error, agreement, baseline, words }) {
  const lines = [`With ${STANDS_IN[baseline] ?? baseline} in place of every word the score is ${signed(without)}, with the words ${signed(score)}. The weights add up to the difference.`];
  if (error !== null && error !== undefined) {
    const miss = `The weights miss their sum by ${(100 * error).toFixed(error < EXACT ? 2 : 1)}% (completeness error)`;
    lines.push(error <= EXACT ? `${miss}: they can be read as amounts.` : `${miss}: they rank the words, and are no amounts.`);
  }
  lines.push(agreed(agreement, words));
  lines.push("A weight says what this model used, not what is true. Words that count only together share their weight.");
  return lines;
}

function agreed(agreement, words) {
  const checked = words.filter(({ occlusion }) => occlusion !== null && occlusion !== undefined).length;
  const some = checked < words.length ? `, over ${checked} of ${words.length} words` : "";
  const figure = (text) => `${text} (rank correlation ${agreement.toFixed(2)}${some}).`;
  if (agreement !== null && agreement !== undefined) {
    if (agreement >= 0.7) return figure("Leaving out one word at a time ranks the words much the same");
    if (agreement >= 0.3) return figure("Leaving out one word at a time ranks the words only partly the same");
    return figure("Leaving out one word at a time ranks the words differently: trust that one more");
  }
  return "There are too few words to compare this ranking with a second method.";
}
