// What is chosen of a text's attention: the picture, the measure, the heads and the words; each change is told.

import { MEASURES } from "./attention_numbers.js";
import { element, fill, labelled } from "./elements.js";

export const VIEWS = { lines: "Lines", map: "Map", grid: "All heads", neurons: "Neurons" };
const BETWEEN = { all: "All words", "01": "From A to B", "10": "From B to A", "00": "Within A", 11: "Within B" };

/** Return {node, update} of the controls of a state; `changed(names)` is called with what was changed of it. */
export function controls(state, record, changed) {
  const set = (values) => {
    Object.assign(state, values);
    changed(Object.keys(values));
  };
  const views = element("div", { class: "at-views", role: "radiogroup", "aria-label": "Picture" });
  fill(views, Object.entries(VIEWS).map(([name, title]) => {
    const input = element("input", { type: "radio", name: "at-view", value: name, checked: name === state.view, onchange: () => set({ view: name }) });
    return element("label", {}, input, element("span", {}, title));
  }));
  const measure = choice(titles(MEASURES), state.measure, (value) => set({ measure: value }));
  const unit = choice({ words: "Words", pieces: "Pieces" }, state.unit, (value) => set({ unit: value, rows: [], cell: null }));
  const between = choice(BETWEEN, state.between, (value) => set({ between: value }));
  const layers = Object.fromEntries(Array.from({ length: record.layers }, (_, layer) => [layer, `Layer ${layer + 1}`]));
  const layer = choice(layers, state.layer, (value) => set({ layer: Number(value), heads: state.heads.map(([, head]) => [Number(value), head]).slice(0, record.heads) }));
  const specials = element("input", { type: "checkbox", checked: state.specials, onchange: () => set({ specials: specials.checked }) });
  const shown = element("label", { class: "at-tick" }, specials, "Special pieces");
  const heads = element("div", { class: "at-heads", role: "group", "aria-label": "Heads, whose mean is shown" });
  const settings = element("div", { class: "at-settings" }, labelled(measure, "Show"), labelled(unit, "By"), record.texts.length > 1 && labelled(between, "Between"), labelled(layer, "Layer"), shown);
  const node = element("div", { class: "at-controls" }, views, settings, heads);

  /** Show the state, which a picture may have changed. `only`: the heads there are, as "layer head", null for all. */
  function update(only = null) {
    layer.value = state.layer;
    unit.disabled = measure.disabled = state.view === "neurons";
    const alone = state.view === "neurons";
    const own = (head) => state.heads.some(([at, one]) => at === state.layer && one === head);
    const button = (head) => {
      const missing = only !== null && !only.has(`${state.layer} ${head}`);
      const press = () => {
        const others = state.heads.filter(([at, one]) => at !== state.layer || one !== head);
        const next = alone || !own(head) ? [...(alone ? [] : others), [state.layer, head]] : others;
        set({ heads: next.length ? next : [[state.layer, head]] });
      };
      return element("button", { type: "button", "aria-pressed": String(own(head)), disabled: missing || state.measure === "rollout", "aria-label": `Head ${head + 1}`, onclick: press }, head + 1);
    };
    const all = Array.from({ length: record.heads }, (_, head) => [state.layer, head]);
    const every = element("button", { type: "button", class: "at-every", disabled: alone || state.measure === "rollout", onclick: () => set({ heads: all }) }, "Mean of all");
    const focused = [...heads.querySelectorAll("button")].indexOf(document.activeElement);
    fill(heads, element("span", {}, "Heads"), all.map(([, head]) => button(head)), every);
    if (focused >= 0) heads.querySelectorAll("button")[focused]?.focus();
  }

  return { node, update };
}

/** Return {node, update} of the list from which any number of words are chosen as queries, by pointer or keyboard. */
export function wordList(toggle) {
  const list = element("div", { class: "at-words", role: "listbox", "aria-multiselectable": "true", "aria-label": "Words whose attention is shown", onkeydown: move, onclick: click });
  const options = () => [...list.children];
  let shown = null;

  function click(event) {
    const place = options().indexOf(event.target.closest("[role=option]"));
    if (place < 0) return;
    focus(place);
    toggle(place);
  }

  function move(event) {
    const all = options();
    const at = all.indexOf(document.activeElement);
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -all.length, End: all.length };
    if (event.key === " " || event.key === "Enter") toggle(at);
    else if (event.key in steps) focus(Math.min(all.length - 1, Math.max(0, at + steps[event.key])));
    else return;
    event.preventDefault();
  }

  function focus(place) {
    for (const option of options()) option.tabIndex = -1;
    const option = options()[place];
    option.tabIndex = 0;
    option.focus();
  }

  function update({ names, texts }, rows) {
    if (shown !== names) {
      fill(list, names.map((name, place) => element("div", { role: "option", tabindex: place ? -1 : 0, dir: "auto", class: texts[place] < 0 ? "at-special" : null }, name)));
      shown = names;
    }
    options().forEach((option, place) => option.setAttribute("aria-selected", String(rows.includes(place))));
  }

  return { node: list, update };
}

function titles(table) {
  return Object.fromEntries(Object.entries(table).map(([name, { title }]) => [name, title]));
}

function choice(options, chosen, changed) {
  const made = Object.entries(options).map(([value, title]) => element("option", { value, selected: value === String(chosen) }, title));
  const select = element("select", { autocomplete: "off", onchange: () => changed(select.value) }, made);
  return select;
}
