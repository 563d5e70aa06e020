// A link that opens the page with a model and its texts. They stand behind the #, which no browser sends to a server.

/** Most characters of a link: more are cut by some that pass links on. */
const LONGEST = 8000;

/** Return the link to a model's texts by field, a text or a list each; null where it were too long. */
export function linkTo(view, model, values) {
  const asked = new URLSearchParams({ model });
  for (const [name, value] of Object.entries(values)) for (const text of [value].flat()) asked.append(name, text);
  const link = `#${view}?${asked}`;
  return link.length > LONGEST ? null : link;
}

/** Return {view, model, values} of the part of an address from its # on; model null where it is no such link. */
export function linked(hash) {
  const [view, ...rest] = hash.slice(1).split("?");
  const asked = new URLSearchParams(rest.join("?"));
  const names = [...new Set(asked.keys())].filter((name) => name !== "model");
  return { view, model: asked.get("model"), values: Object.fromEntries(names.map((name) => [name, asked.getAll(name)])) };
}
