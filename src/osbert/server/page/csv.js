// CSV, read and written as RFC 4180 has it.

/** What is wrong with a file, in words for its owner. */
export class BadFile extends Error {}

const DELIMITERS = [",", ";", "\t", "|"];

/** Return the text of a file's bytes: UTF-8, or UTF-16 where a byte order mark says so. */
export function decode(bytes) {
  const array = new Uint8Array(bytes);
  const mark = array[0] === 0xff && array[1] === 0xfe ? "utf-16le" : array[0] === 0xfe && array[1] === 0xff ? "utf-16be" : "utf-8";
  try {
    return new TextDecoder(mark, { fatal: true }).decode(array);
  } catch {
    throw new BadFile("The file is not UTF-8 text. Save it as CSV in UTF-8 and choose it again.");
  }
}

/** Return {header, delimiter, rows: [{line, cells}]}; empty lines are no rows. Raises BadFile, naming the line.
 *
 * The delimiter is the one of , ; tab and | that the first line has most of outside of quotes.
 */
export function read(text) {
  const content = text.startsWith("\ufeff") ? text.slice(1) : text;
  const delimiter = separator(content);
  const [head, ...rows] = records(content, delimiter);
  if (!head) throw new BadFile("The file is empty.");
  const header = head.cells.map((name, place) => name.trim() || `column ${place + 1}`);
  return { header, delimiter, rows };
}

/** Return rows of cells as CSV with the line end that RFC 4180 asks for; null and undefined are empty. */
export function write(rows, delimiter = ",") {
  const line = (cells) => (cells.length === 1 && !cells[0] ? '""' : cells.map((cell) => quoted(cell, delimiter)).join(delimiter));
  return rows.map((cells) => `${line(cells)}\r\n`).join("");
}

/** Return names, with a number behind each that is among those taken. */
export function free(names, taken) {
  const all = new Set(taken);
  return names.map((wanted) => {
    let name = wanted;
    for (let number = 2; all.has(name); number += 1) name = `${wanted} ${number}`;
    all.add(name);
    return name;
  });
}

function quoted(cell, delimiter) {
  const text = String(cell ?? "");
  const must = text.includes(delimiter) || /["\r\n]|^\s|\s$/.test(text);
  return must ? `"${text.replaceAll('"', '""')}"` : text;
}

function separator(text) {
  const counts = new Map(DELIMITERS.map((sign) => [sign, 0]));
  let inside = false;
  for (const sign of text) {
    if (sign === '"') inside = !inside;
    else if (!inside && (sign === "\n" || sign === "\r")) break;
    else if (!inside && counts.has(sign)) counts.set(sign, counts.get(sign) + 1);
  }
  return DELIMITERS.reduce((best, sign) => (counts.get(sign) > counts.get(best) ? sign : best));
}

function records(text, delimiter) {
  const found = [];
  const end = text.length;
  let place = 0;
  let line = 1;
  while (place < end) {
    const began = line;
    const begins = place;
    const cells = [];
    let more = true;
    while (more) {
      const field = text[place] === '"' ? quotedField(text, place, line) : plainField(text, place, delimiter);
      cells.push(field.value);
      line += field.lines;
      place = field.next;
      more = text[place] === delimiter;
      if (more) place += 1;
      else if (place < end && text[place] !== "\n" && text[place] !== "\r") {
        throw new BadFile(`Line ${line}: something stands behind a closing quote. A quote within quotes is written twice.`);
      }
    }
    if (place < end) {
      place += text[place] === "\r" && text[place + 1] === "\n" ? 2 : 1;
      line += 1;
    }
    if (cells.length > 1 || cells[0] !== "" || text[begins] === '"') found.push({ line: began, cells });
  }
  return found;
}

function plainField(text, start, delimiter) {
  let next = start;
  while (next < text.length && text[next] !== delimiter && text[next] !== "\n" && text[next] !== "\r") next += 1;
  return { value: text.slice(start, next), next, lines: 0 };
}

function quotedField(text, start, line) {
  let value = "";
  let place = start + 1;
  for (;;) {
    const quote = text.indexOf('"', place);
    if (quote < 0) throw new BadFile(`Line ${line}: a quote is opened and never closed.`);
    value += text.slice(place, quote);
    place = quote + 1;
    if (text[place] !== '"') break;
    value += '"';
    place += 1;
  }
  const lines = (text.slice(start, place).match(/\r\n|\r|\n/g) ?? []).length;
  return { value, next: place, lines };
}
