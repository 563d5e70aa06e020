// What the kinds share whose models read a text, or several together, and say one thing of them: fields and request.

/** The most rows in a request. */
export const size = 32;

/** Return the name of a field as the page shows it. */
export function labelOf(name) {
  return name[0].toUpperCase() + name.slice(1).replaceAll("_", " ");
}

/** Return the fields of a model: one for each text that it reads. */
export function textFields(model) {
  const names = model.fields?.length ? model.fields : ["text"];
  return names.map((name) => ({ name, label: labelOf(name), lines: names.length > 1 ? 3 : 5 }));
}

/** Return the request for what a model says of rows. */
export function request(rows, model) {
  return { path: "v1/predict", body: { texts: texts(rows, model) } };
}

/** Return the answer to each row. */
export function answers(reply) {
  return reply.predictions;
}

/** Return the texts of rows as the server reads them: a text each, or a list where several are read together. */
export function texts(rows, model) {
  const names = textFields(model).map((field) => field.name);
  return rows.map((row) => (names.length > 1 ? names.map((name) => row[name]) : row[names[0]]));
}
