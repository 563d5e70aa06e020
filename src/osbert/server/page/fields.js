// What the kinds share whose models read a text, or several together, and say one thing of them: fields and request.

/** The most rows in a request. */
export const size = 32;

const PAIR = ["First text", "Second text"];
const ENTAILMENT = ["Premise", "Hypothesis"];
/** Names of columns that say what stands in them, unlike sentence1. */
const TELLING = /^\p{L}[\p{L}_ ]+$/u;

/** Return the name of a field as the page shows it. */
export function labelOf(name) {
  return name[0].toUpperCase() + name.slice(1).replaceAll("_", " ");
}

/** Return the fields of a model: one for each text that it reads; `column`: what its training data called it. */
export function textFields(model) {
  const names = model.fields?.length ? model.fields : ["text"];
  const labels = names.length > 1 ? labelsOfPair(model) : ["Text"];
  return names.map((name, place) => ({ name, label: labels[place], lines: names.length > 1 ? 3 : 5, column: model.columns?.[place] }));
}

/** Return what is read at a time. */
export function heading(model) {
  return textFields(model).length > 1 ? "One pair of texts" : "One text";
}

/** Return the request for what a model says of rows. */
export function request(rows, model) {
  return { path: "v1/predict", body: { texts: texts(rows, model) } };
}

/** Return the fields of what a model predicts by name: the names, then the text. */
export function namedFields() {
  const hint = "One a line, or on one line with commas between them.";
  return [{ name: "labels", label: "Names", lines: 4, hint }, { name: "text", label: "Text", lines: 5 }];
}

/** Return the names that a person typed. */
export function namesOf({ labels }) {
  const lines = labels.trim().split("\n");
  return (lines.length > 1 ? lines : lines[0].split(",")).map((name) => name.trim()).filter(Boolean);
}

/** Return the answer to each row. */
export function answers(reply) {
  return reply.predictions;
}

/** Return the answer that a prediction of /v1/annotate is. */
export function ofPrediction(prediction) {
  return prediction;
}

/** Return the texts of rows as the server reads them: a text each, or a list where several are read together. */
export function texts(rows, model) {
  const names = textFields(model).map((field) => field.name);
  return rows.map((row) => (names.length > 1 ? names.map((name) => row[name]) : row[names[0]]));
}

function labelsOfPair({ columns = [], labels }) {
  if (columns.length === 2 && columns.every((name) => TELLING.test(name))) return columns.map(labelOf);
  return labels?.some((label) => /^entail/i.test(label)) ? ENTAILMENT : PAIR;
}
