// A kind of task with a call of its own: the page shows the fields that it declares for its request and its answer.

import { bars, likeliest } from "./bars.js";
import { element } from "./elements.js";
import { labelOf } from "./fields.js";

/** Return what a module of kinds/ exports, for a call {call, action, about, request, answer} as /v1/models lists it. */
export function ownKind({ call, action, about: does, request: asked, answer: given }) {
  const [first, ...others] = given;
  const textsOf = (row) => row[asked.find(({ type }) => type === "texts")?.name] ?? [];
  const several = asked.some(({ type }) => type === "texts");
  const shownOf = first.type === "ranking" ? given : others; // the best text alone is said
  return {
    action,
    does: does ? does.replace(/\.$/, "") : action,
    size: 1,
    heading: () => (several ? `One ${labelOf(asked[0].name).toLowerCase()}` : asked.length > 1 ? "One set of texts" : "One text"),
    fields: () => asked.map(fieldOf),
    request: ([row]) => ({ path: `v1/${call}`, body: Object.fromEntries(asked.map(({ name }) => [name, row[name]])) }),
    answers: (reply) => [reply],
    said: (reply, row) => (first.type === "ranking" ? textsOf(row)[reply[first.name][0].index] : written(reply[first.name])),
    show: (reply, row) =>
      shownOf.filter(({ name }) => reply[name] !== undefined).map((field) => shown(field, reply[field.name], textsOf(row))),
    cells: (reply) => Object.fromEntries(given.map(({ name }) => [name, written(reply[name])])),
    record: (reply) => Object.fromEntries(given.map(({ name }) => [name, reply[name]])),
    facets: (reply) => (first.type === "number" ? { labels: [], value: reply[first.name] } : { labels: labelsOf(first, reply) }),
  };
}

function fieldOf({ name, type, about }) {
  const several = type === "texts";
  return { name, label: several ? labelOf(name).replace(/s$/, "") : labelOf(name), lines: 3, hint: about, several };
}

function labelsOf({ name, type }, reply) {
  return type === "text" || type === "flag" ? [String(reply[name])] : [];
}

function written(value) {
  if (typeof value === "number") return value.toLocaleString("en", { maximumSignificantDigits: 5, useGrouping: false });
  return value !== null && typeof value === "object" ? JSON.stringify(value) : String(value ?? "");
}

function shown({ name, type }, value, texts) {
  if (type === "probabilities") return bars(likeliest(value), { caption: labelOf(name) });
  if (type === "ranking") {
    const rows = value.map(({ index, score, probability }) => ({ name: texts[index], share: probability, told: written(score) }));
    return bars(rows, { caption: "Scores, the best first", chosen: 0 });
  }
  const text = Array.isArray(value) ? value.map(written).join(", ") : written(value);
  return element("p", { class: "text", dir: "auto" }, `${labelOf(name)}: ${text}`);
}
