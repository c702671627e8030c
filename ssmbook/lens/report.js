// What a report does beyond being read: sorting, values under the pointer, LaTeX and SVG. It reads well without.
(() => {
  "use strict";

  const make = (tag, given) => Object.assign(document.createElement(tag), given);
  const said = document.body.appendChild(make("div", { id: "say", role: "status", hidden: true }));

  /** A button, with a press that says in place of its name how it went. */
  function tool(name, press) {
    const button = make("button", { type: "button", className: "tool", textContent: name });
    button.addEventListener("click", async () => {
      button.textContent = await press(button);
      setTimeout(() => (button.textContent = name), 2000);
    });
    return button;
  }

  // Tables ------------------------------------------------------------------------------------------------

  const words = (cell) => cell.textContent.trim();
  const value = (cell) => parseFloat(words(cell).replace(/,/g, ""));

  /** Order by numbers where a column has them, then by names; what is missing comes last either way. */
  function sort(table, at, sign) {
    const body = table.tBodies[0], rows = [...body.rows];
    const numeric = rows.every((row) => words(row.cells[at]) === "–" || /^-?[\d.,]/.test(words(row.cells[at])));
    rows.sort((one, other) => {
      const [a, b] = [one.cells[at], other.cells[at]];
      if (!numeric) return sign * words(a).localeCompare(words(b), "en", { numeric: true });
      const [x, y] = [value(a), value(b)];
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
      return sign * (x - y);
    });
    body.append(...rows);
  }

  const ESCAPED = {
    "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "→": "$\\to$", "–": "--",
    "\u00a0": "~", "“": "``", "”": "''", "’": "'", "≥": "$\\ge$",
  };
  const tex = (text) => text.replace(/[\\~^→–\u00a0“”’≥]|[&%$#_{}]/g, (one) => ESCAPED[one] ?? `\\${one}`);

  /** The table as it is sorted now, for the package booktabs. */
  function latex(table) {
    const lines = [...table.rows].map((row) => [...row.cells].map((cell) => tex(words(cell))).join(" & ") + " \\\\");
    const align = [...table.tHead.rows[0].cells].map((cell) => (cell.style.textAlign === "right" ? "r" : "l"));
    const caption = table.caption ? `% ${words(table.caption)}\n` : "";
    return `${caption}\\begin{tabular}{${align.join("")}}\n\\toprule\n${lines[0]}\n\\midrule\n` +
      `${lines.slice(1).join("\n")}\n\\bottomrule\n\\end{tabular}\n`;
  }

  async function copy(text, button) {
    try {
      await navigator.clipboard.writeText(text);
      return "Copied";
    } catch {  // not allowed here: the text is shown, selected
      const shown = make("textarea", { value: text, readOnly: true, rows: 6 });
      shown.setAttribute("aria-label", "The text to copy");
      button.after(shown);
      shown.select();
      return "Selected below";
    }
  }

  for (const table of document.querySelectorAll("table")) {
    for (const head of table.tHead.rows[0].cells) {
      const button = make("button", { type: "button", textContent: words(head) });
      button.addEventListener("click", () => {
        const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", order);
        sort(table, head.cellIndex, order === "ascending" ? 1 : -1);
      });
      head.replaceChildren(button);
    }
    table.parentElement.after(tool("Copy as LaTeX", (button) => copy(latex(table), button)));
  }

  // Pictures ----------------------------------------------------------------------------------------------

  const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "font-family", "font-size", "text-anchor"];

  /** The picture as a file of its own, each shape with its colors as they are now. */
  function save(svg, name) {
    const copied = svg.cloneNode(true), copies = [copied, ...copied.querySelectorAll("*")];
    [svg, ...svg.querySelectorAll("*")].forEach((shape, i) => {
      const style = getComputedStyle(shape);
      for (const key of KEPT) copies[i].setAttribute(key, style.getPropertyValue(key));
    });
    copied.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copied.querySelector(".here")?.remove();
    const text = new XMLSerializer().serializeToString(copied);
    const href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    make("a", { href, download: `${name.replace(/[^\w-]+/g, "-").slice(0, 60)}.svg` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
    return "Saved";
  }

  /** Show what is said beside a box of the window. */
  function say(text, box) {
    said.textContent = text;
    said.hidden = false;
    const left = Math.min(box.left, innerWidth - said.offsetWidth - 4);
    const below = box.bottom + 6 + said.offsetHeight < innerHeight;
    said.style.left = `${Math.max(4, left)}px`;
    said.style.top = `${below ? box.bottom + 6 : box.top - said.offsetHeight - 6}px`;
  }

  /** The places of a picture that say something: of a heat map its cells, elsewhere what carries words. */
  function places(svg) {
    if (!svg.dataset.values) {
      return [...svg.querySelectorAll("[data-say]")].map((node) => {
        const { x, y, width, height } = node.getBBox();
        return { x, y, width, height, words: node.dataset.say };
      });
    }
    const [width, height, left] = svg.dataset.cell.split(",").map(Number);
    const [names, columns] = [svg.dataset.rows.split("\t"), svg.dataset.columns.split("\t")];
    return svg.dataset.values.split(";").flatMap((row, i) => (row ? row.split(",") : []).map((number, j) => ({
      x: left + j * width, y: i * height, width, height,
      words: `${names[i]} ← ${columns[j]}: ${number} (${svg.dataset.what})`,
    })));
  }

  function speak(svg) {
    let known, at = -1;
    const here = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    here.setAttribute("class", "here");

    function show(next) {
      at = next;
      for (const key of ["x", "y", "width", "height"]) here.setAttribute(key, known[at][key]);
      svg.append(here);
      say(known[at].words, here.getBoundingClientRect());
    }
    function hide() {
      said.hidden = true;
      here.remove();
    }
    function point(event) {
      known ??= places(svg);
      const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const under = known.findLastIndex((one) =>
        x >= one.x - 1 && x < one.x + one.width + 1 && y >= one.y - 1 && y < one.y + one.height + 1);
      if (under >= 0) show(under);
      else hide();
    }
    function step(event) {
      known ??= places(svg);
      if (event.key === "Escape") hide();
      const across = { ArrowRight: 1, ArrowLeft: -1 }[event.key], down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!across && !down) return;
      event.preventDefault();
      const now = known[Math.max(at, 0)];
      const next = across || !svg.dataset.values ? at + (across ?? down)
        : known.findIndex((one) => one.x === now.x && Math.abs(one.y - now.y - down * now.height) < 0.5);
      if (known[next]) show(next);
    }
    svg.tabIndex = 0;
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
    svg.addEventListener("focus", () => {
      known ??= places(svg);
      if (svg.matches(":focus-visible") && known.length) show(Math.max(at, 0));
    });
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", step);
  }

  for (const figure of document.querySelectorAll("figure")) {
    const svg = figure.querySelector("svg");
    speak(svg);
    figure.append(tool("Save as SVG", () => save(svg, svg.getAttribute("aria-label"))));
  }
  addEventListener("scroll", () => (said.hidden = true), { passive: true });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
})();
