// Files of annotation tools: the server finds their form, and gives each record back with what the model says in its place.

import { parseExactly } from "./json_rows.js";

/** Records from the beginning of a file by which its form is found. */
const EXAMPLES = 8;
/** What a record of a tool has and a plain row has not: lists, objects, or Prodigy's own marks. */
const NESTED = /[[{]|"_input_hash"/;
/** What the server names where the records are of no tool, or the model does not read such. */
const NOT_OURS = new Set(["records", "model"]);

/** Return what a file's tool is called and the kind that reads its records; null where it is of none, or not for the model. */
export async function annotated({ rows }, { kind, model, client }) {
  const raw = rows.slice(0, EXAMPLES).map((row) => row.raw);
  if (!kind.ofPrediction || model.fields?.length > 1 || !raw[0] || !raw.some((one) => NESTED.test(one.slice(1)))) return null;
  const examples = raw.map(parseExactly);
  let refused = null;
  for (const record of examples) {
    try {
      const { form } = await client.post("v1/annotate", { records: [record], examples, model: model.name });
      return { title: form, kind: recordKind(kind, examples) };
    } catch (error) {
      if (error.status === 404 || (error.status === 422 && NOT_OURS.has(error.field))) return null;
      if (error.status !== 422) throw error;
      refused = error; // of this record, such as a text that is too long: another one tells the form
    }
  }
  throw refused;
}

/** Return the kind for whole records: what it says is the kind's own, what it writes is the server's. */
function recordKind(kind, examples) {
  return {
    ...kind,
    size: 16,
    request: (records) => ({ path: "v1/annotate", body: { records, examples } }),
    answers: ({ texts, records, predictions }) =>
      predictions.map((one, place) => ({ own: kind.ofPrediction(one), text: texts[place], record: records[place] })),
    said: ({ own }) => kind.said(own),
    facets: ({ own }) => kind.facets(own),
    textOf: ({ text }) => text,
    whole: ({ record }) => record,
  };
}
