// Elements of the page, made of text nodes alone: nothing that anyone says is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element. Attributes named on... are listeners; true sets an empty attribute, false and null set none. */
export function element(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** Return an SVG element, as `element` does. */
export function drawing(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

/** Put children in place of everything that an element holds. */
export function fill(parent, ...children) {
  parent.replaceChildren(...nodes(children));
  return parent;
}

function furnish(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...nodes(children));
  return made;
}

function nodes(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

let given = 0;

/** Return an id that nothing else on the page has. */
export function freshId(name) {
  given += 1;
  return `${name}-${given}`;
}

/** Return a label with its control below it, and a hint that is read with it. */
export function labelled(control, label, hint = "") {
  control.id ||= freshId("control");
  const parts = [element("label", { for: control.id }, label), control];
  if (hint) {
    const note = element("p", { class: "hint", id: `${control.id}-hint` }, hint);
    control.setAttribute("aria-describedby", note.id);
    parts.push(note);
  }
  return element("div", { class: "field" }, parts);
}

/** Return a table in a frame with a name, which can be scrolled by keyboard where the table is larger. */
export function framed(name, table) {
  return element("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": name }, table);
}

/** Return a number with its thousands set apart, and its noun: "1 row", "2,000 rows". */
export function counted(number, noun, nouns = `${noun}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : nouns}`;
}

/** Return a share as a percentage with as many digits as tell it from 0 and from 1. */
export function percent(share) {
  const shown = share * 100;
  if (share > 0 && shown < 0.1) return "under 0.1%";
  if (share < 1 && shown > 99.9) return "over 99.9%";
  return `${shown.toFixed(1)}%`;
}
