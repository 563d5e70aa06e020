// tag: the entities that a model finds in a text, each with its kind.

import { counted, element, framed, percent } from "../elements.js";
import { marked } from "../marks.js";
import { textFields, texts } from "../fields.js";
export { heading } from "../fields.js";

export const action = "Find entities";
export const does = "Finds entities";
export const size = 32;
export const fields = textFields;

const COLORS = 6;
/** Types of so many letters are never broken. */
const BRIEF = 24;

export function request(rows, model) {
  return { path: "v1/tag", body: { texts: texts(rows, model) } };
}

export function answers(reply) {
  return reply.entities;
}

/** Return the answer that a prediction of /v1/annotate is. */
export function ofPrediction(prediction) {
  return prediction.entities;
}

/** Return the types of entities among the labels of tokens, such as B-PER. */
export function named(labels) {
  return [...new Set(labels.filter((label) => label !== "O").map((label) => label.replace(/^[BIESLUM]-/, "")))];
}

export function said(entities) {
  return entities.length ? counted(entities.length, "entity", "entities") : "No entities found";
}

export function show(entities, row, model) {
  const [text] = texts([row], model);
  if (!entities.length) return [marked(text, [], null)];
  const types = [...new Set([...named(model.labels ?? []), ...entities.map((entity) => entity.type)])];
  const mark = (part, entity) => {
    const type = element("span", { class: entity.type.length > BRIEF ? "type" : "type brief" }, `\u00a0${entity.type}`);
    const made = element("mark", { class: `entity color-${types.indexOf(entity.type) % COLORS}` }, part, type);
    if (isWeighed(entity)) made.style.setProperty("--sure", (entity.probability ** 2).toFixed(3));
    return made;
  };
  const hint = entities.some(isWeighed) && element("p", { class: "hint" }, "The fainter a mark, the less probable.");
  return [marked(text, entities, mark), hint, table(entities)];
}

export function cells(entities) {
  return { entities: JSON.stringify(entities.map(({ type, start, end, text }) => ({ type, start, end, text }))) };
}

export function record(entities) {
  return { prediction: entities };
}

export function facets(entities) {
  const shares = entities.filter(isWeighed).map((entity) => entity.probability);
  const labels = entities.length ? [...new Set(entities.map((entity) => entity.type))] : ["No entities"];
  return { labels, probability: shares.length ? Math.min(...shares) : undefined };
}

function isWeighed({ probability }) {
  return probability !== undefined && probability !== null;
}

function table(entities) {
  const told = entities.some(isWeighed);
  const names = ["Entity", "Type", "Characters", ...(told ? ["Probability"] : [])];
  const rows = entities.map(({ text, type, start, end, probability }) =>
    element(
      "tr",
      {},
      element("th", { scope: "row", dir: "auto" }, text),
      element("td", {}, type),
      element("td", { class: "number" }, `${start}–${end}`),
      told && element("td", { class: "number" }, isWeighed({ probability }) ? percent(probability) : ""),
    ),
  );
  const heads = names.map((name, place) => element("th", { scope: "col", class: place > 1 && "number" }, name));
  const made = element(
    "table",
    { class: "list" },
    element("caption", {}, "Entities in their order"),
    element("thead", {}, element("tr", {}, heads)),
    element("tbody", {}, rows),
  );
  return framed("Entities", made);
}
