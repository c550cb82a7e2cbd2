// Elements without markup: texts of the state are untrusted, so they are only ever text.

export const find = (selector) => document.querySelector(selector);

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setClass(node, name) {
  if (node.className !== name) node.className = name;
}

// Children by key, in order. `make(key)` makes a child once, `fill(child, key)` updates it.
export function keyed(parent, keys, make, fill) {
  const known = (parent.known ??= new Map()), wanted = new Set(keys);
  for (const [key, child] of known) {
    if (!wanted.has(key)) {
      child.remove();
      known.delete(key);
    }
  }
  let at = parent.firstChild;
  for (const key of keys) {
    let child = known.get(key);
    if (!child) known.set(key, (child = make(key)));
    if (child === at) at = at.nextSibling;
    else parent.insertBefore(child, at);
    fill(child, key);
  }
}

// A table of texts. `rows` are arrays of texts.
export function showTable(parent, head, rows) {
  const table = parent.querySelector("table") ?? element("table", { class: "numbers" }, element("thead"), element("tbody"));
  if (!table.parentNode) parent.append(table);
  fillRows(table.tHead, [head], "th");
  fillRows(table.tBodies[0], rows, "td");
}

function fillRows(parent, rows, name) {
  keyed(parent, rows.map((_, at) => at), () => element("tr"), (line, row) => {
    keyed(line, rows[row].map((_, at) => at), () => element(name), (cell, at) => setText(cell, rows[row][at]));
  });
}
