// The pieces of the texts that a model read.

import { counted, element } from "./elements.js";

/** More pieces than these are shown when asked for. */
const MANY = 80;

/** Special pieces, as BERT and as RoBERTa write them. */
const SPECIAL = /^(\[[A-Z]+\d*\]|<\/?[a-z]+>)$/;

/** Return a list of the pieces of each sequence that was read, closed when it is long; null when there are none. */
export function pieces(told) {
  const sequences = (told ?? []).flat();
  if (!sequences.length) return null;
  const total = sequences.reduce((sum, sequence) => sum + sequence.length, 0);
  const among = sequences.length > 1 ? ` in ${counted(sequences.length, "sequence")}` : "";
  return element(
    "details",
    { class: "pieces", open: total <= MANY },
    element("summary", {}, `The ${counted(total, "piece")} that ${total === 1 ? "was" : "were"} read${among}`),
    sequences.map((sequence) => element("ol", { class: "chips", dir: "auto" }, sequence.map(chip))),
  );
}

function chip(piece) {
  const kind = SPECIAL.test(piece) ? "special" : piece.startsWith("##") ? "goes-on" : null;
  return element("li", { class: kind }, piece);
}
