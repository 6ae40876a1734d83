// Elements of the page, downloads, tables.

const attributes = (e, all) => {
  for (const [key, value] of Object.entries(all)) {
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else if (value === true) e.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) e.setAttribute(key, value);
  }
};
const present = (children) => children.flat(9).filter((c) => c !== null && c !== undefined && c !== false);

export function element(tag, given = {}, ...children) {
  const e = document.createElement(tag);
  attributes(e, given);
  for (const child of present(children)) e.append(child);
  return e;
}

export function svg(tag, given = {}, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  attributes(e, given);
  for (const child of present(children)) e.append(child);
  return e;
}

export const button = (text, onclick, more = {}) => element("button", { type: "button", onclick, ...more }, text);
export const note = (...children) => element("p", { class: "facts" }, children);
export const legend = (items) =>
  element("ul", { class: "legend" }, items.map(([name, fill, text]) => element("li", {}, element("i", { style: `background:${fill}` }), element("span", {}, name), text ? element("b", {}, text) : null)));

export function download(name, text, type = "text/plain") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** A text with a button that copies it. */
export function copyable(code) {
  const copy = button("copy", async () => {
    await navigator.clipboard.writeText(code.textContent);
    copy.textContent = "copied";
    setTimeout(() => (copy.textContent = "copy"), 1500);
  });
  return element("div", { class: "copyable" }, element("pre", { tabindex: 0 }, code), copy);
}

/** A table of rows; columns [{title, of, number, sort, exact}], sorted by a click on a head; `filter` says whether a row has a text. */
export function sortableTable(columns, rows, caption, filter) {
  let by = null;
  let down = true;
  let wanted = "";
  const body = element("tbody");
  const heads = columns.map((c) => element("th", { scope: "col", class: c.number ? "number" : "" }, button(c.title, () => sort(c))));
  const fill = () =>
    body.replaceChildren(...rows.filter((r) => wanted === "" || filter(r).includes(wanted)).map((r) => element("tr", {}, columns.map((c) => element("td", { class: c.number ? "number" : c.class, title: c.exact?.(r) }, c.of(r))))));
  function sort(column) {
    down = by === column ? !down : Boolean(column.number);
    by = column;
    const key = column.sort ?? column.of;
    rows = [...rows].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (down ? -1 : 1));
    heads.forEach((h, i) => (columns[i] === column ? h.setAttribute("aria-sort", down ? "descending" : "ascending") : h.removeAttribute("aria-sort")));
    fill();
  }
  fill();
  const search = filter && element("input", { type: "search", placeholder: "filter", "aria-label": `filter: ${caption}`, oninput: () => { wanted = search.value.toLowerCase(); fill(); } });
  return element("div", {}, filter ? element("div", { class: "row" }, search) : null,
    element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, element("table", {}, element("caption", { class: "hidden" }, caption), element("thead", {}, element("tr", {}, heads)), body)));
}
