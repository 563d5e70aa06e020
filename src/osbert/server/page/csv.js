// CSV, read and written as RFC 4180 has it.

/** What is wrong with a file, in words for its owner. */
export class BadFile extends Error {}

/** Most characters of a line that a message shows. */
const MOST = 300;
const DELIMITERS = [",", ";", "\t", "|"];

/** Return the encoding of a file's bytes: UTF-8, or UTF-16 where a byte order mark says so. */
export function encodingOf([first, second]) {
  return first === 0xff && second === 0xfe ? "utf-16le" : first === 0xfe && second === 0xff ? "utf-16be" : "utf-8";
}

/** Return the text of a file's bytes. Raises BadFile. */
export function decode(bytes) {
  try {
    return new TextDecoder(encodingOf(bytes), { fatal: true }).decode(new Uint8Array(bytes));
  } catch {
    throw new BadFile("The file is not UTF-8 text. Save it in UTF-8 and choose it again.");
  }
}

/** Return a text as bytes, in UTF-16 with its mark where the text came in that. */
export function encode(text, encoding) {
  if (encoding === "utf-8") return new TextEncoder().encode(text);
  const bytes = new DataView(new ArrayBuffer(2 * text.length + 2));
  const units = `\ufeff${text}`;
  for (let place = 0; place < units.length; place += 1) bytes.setUint16(2 * place, units.charCodeAt(place), encoding === "utf-16le");
  return bytes;
}

/** Return {header, names, delimiter, newline, rows: [{line, cells}]}; empty lines are no rows. Raises BadFile, naming the line.
 *
 * `names`: the columns' names as the file has them; in `header` each has one, without spaces around it.
 * The delimiter is the one of , ; tab and | that the first line has most of outside of quotes.
 */
export function read(text) {
  const content = text.startsWith("\ufeff") ? text.slice(1) : text;
  const delimiter = separator(content);
  const [head, ...rows] = records(content, delimiter);
  if (!head) throw new BadFile("The file is empty.");
  const header = head.cells.map((name, place) => name.trim() || `column ${place + 1}`);
  return { header, names: head.cells, delimiter, newline: /\r?\n/.exec(content)?.[0] ?? "\r\n", rows };
}

/** Return rows of cells as CSV, by default with the line end that RFC 4180 asks for; null and undefined are empty. */
export function write(rows, delimiter = ",", newline = "\r\n") {
  const line = (cells) => (cells.length === 1 && !cells[0] ? '""' : cells.map((cell) => quoted(cell, delimiter)).join(delimiter));
  return rows.map((cells) => `${line(cells)}${newline}`).join("");
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
        throw badLine(text, place, line, "something stands behind a closing quote. A quote within quotes is written twice.");
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

/** Return what is wrong at a place of a text, with the line that it is in. */
function badLine(text, place, line, told) {
  const [shown] = text.slice(text.lastIndexOf("\n", place - 1) + 1).split(/[\r\n]/, 1);
  return new BadFile(`Line ${line}: ${told}\n${shown.slice(0, MOST)}${shown.length > MOST ? "…" : ""}`);
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
    if (quote < 0) throw badLine(text, start, line, "a quote is opened and never closed.");
    value += text.slice(place, quote);
    place = quote + 1;
    if (text[place] !== '"') break;
    value += '"';
    place += 1;
  }
  const lines = (text.slice(start, place).match(/\r\n|\r|\n/g) ?? []).length;
  return { value, next: place, lines };
}
