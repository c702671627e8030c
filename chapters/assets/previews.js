// A reference shows what it refers to while the pointer rests on it, while it has the focus, or after a long press.
// The index is a script and is loaded with the first of them: a page opened from the disk can load nothing else.
(function () {
  "use strict";
  const REST = 250, LEAVE = 250, PRESS = 450, GAP = 6; // milliseconds, and pixels
  const REFERENCE = "article.bd-article a[href]:not(.headerlink, .buttons a, .solution > .admonition-title a)";
  const base = new URL(document.documentElement.dataset.content_root, location.href).href;
  const scripts = {};
  let tip, current = null, shown = null, timer = 0, at = 0, pressed = null;

  function load(path) {
    return (scripts[path] ??= new Promise((done) => {
      const script = document.createElement("script");
      script.src = base + path;
      script.onload = done;
      document.head.append(script);
    }));
  }

  // Formulas that a script wrote; those of a page come typeset. None of them is a stop of the tab key.
  async function typeset(node) {
    if (!/\\[([]/.test(node.textContent)) return;
    window.MathJax ??= { startup: { typeset: false } };
    await load("_static/mathjax/tex-chtml.js");
    await (MathJax.startup.promise = MathJax.startup.promise.then(() => MathJax.typesetPromise([node])));
    node.querySelectorAll("[tabindex]").forEach((one) => one.removeAttribute("tabindex"));
  }

  // What the index calls the place to which a link, or this page, leads.
  function addressOf({ href }) {
    const url = new URL(href.baseVal ?? href, location.href); // a link in a drawing has its address as it is written
    url.search = "";
    return url.href.startsWith(base) ? decodeURIComponent(url.href.slice(base.length)) : "";
  }

  function fill([name, html], address, index) {
    const [page] = address.split("#"), here = addressOf(location).split("#")[0], title = document.createElement("p"), text = document.createElement("div");
    title.className = "preview-title";
    title.textContent = name;
    const place = document.createElement("span");
    place.textContent = page !== address && page !== here ? index[page][0] : "";
    title.append(place);
    text.innerHTML = html;
    const ending = document.documentElement.dataset.theme === "dark" ? ".dark.png" : ".png"; // a figure has both
    for (const image of text.querySelectorAll("img")) Object.assign(image, { src: base + image.dataset.src.replace(/\.png$/, ending), alt: "" });
    tip.replaceChildren(title, text);
  }

  // Below the line of the reference; above it, where there is more room.
  function place(link) {
    const lines = [...link.getClientRects()], line = lines.find(({ top, bottom }) => top <= at && at <= bottom) ?? lines[0];
    const origin = tip.offsetParent.getBoundingClientRect(), below = innerHeight - line.bottom;
    const up = below < tip.offsetHeight + 2 * GAP && line.top > below;
    tip.style.maxHeight = `${(up ? line.top : below) - 2 * GAP}px`;
    const left = Math.max(GAP, Math.min(line.left, document.documentElement.clientWidth - tip.offsetWidth - GAP));
    tip.style.left = `${left - origin.left}px`;
    tip.style.top = `${(up ? line.top - GAP - tip.offsetHeight : line.bottom + GAP) - origin.top}px`;
  }

  async function show(link) {
    current = link;
    link.removeAttribute("title"); // else the browser shows a second one
    await load("_static/previews-index.js");
    const address = addressOf(link), found = window.bookPreviews[address];
    if (current !== link) return;
    hide();
    if (!found) return;
    current = link;
    fill(found, address, window.bookPreviews);
    tip.style.maxHeight = "";
    tip.hidden = false;
    await typeset(tip);
    if (current !== link) return;
    place(link);
    link.setAttribute("aria-describedby", tip.id);
    tip.classList.add("shown");
    shown = link;
  }

  function hide() {
    clearTimeout(timer);
    shown?.removeAttribute("aria-describedby");
    tip.classList.remove("shown");
    tip.hidden = true;
    current = shown = null;
  }

  function later(act, wait) {
    clearTimeout(timer);
    timer = setTimeout(act, wait);
  }

  function begin() {
    const article = document.querySelector("article.bd-article");
    if (!article) return;
    tip = document.createElement("div");
    Object.assign(tip, { id: "preview", className: "preview", role: "tooltip", hidden: true });
    document.getElementById("main-content").append(tip);
    const left = (event) => event.pointerType === "mouse" && later(hide, LEAVE);
    const reference = (event) => event.target.closest?.(REFERENCE);
    article.addEventListener("pointerover", (event) => {
      const link = reference(event);
      if (!link || event.pointerType !== "mouse") return;
      at = event.clientY;
      if (link === shown) clearTimeout(timer);
      else later(() => show(link), REST);
    });
    article.addEventListener("pointerout", (event) => reference(event) && left(event));
    tip.addEventListener("pointerenter", () => clearTimeout(timer));
    tip.addEventListener("pointerleave", left);
    article.addEventListener("focusin", (event) => {
      at = -1;
      if (reference(event)?.matches(":focus-visible")) show(reference(event));
    });
    article.addEventListener("focusout", () => tip.matches(":hover") || hide());
    // A finger: a long press shows, and the tap that ends it does not follow the link.
    article.addEventListener("pointerdown", (event) => {
      const link = reference(event);
      pressed = null;
      if (link && event.pointerType === "touch") later(() => ((pressed = link), (at = event.clientY), show(link)), PRESS);
    });
    for (const end of ["pointerup", "pointercancel"]) article.addEventListener(end, () => pressed || clearTimeout(timer));
    article.addEventListener("contextmenu", (event) => event.pointerType === "touch" && reference(event) && event.preventDefault());
    article.addEventListener("click", (event) => pressed && reference(event) === pressed && event.preventDefault());
    addEventListener("pointerdown", (event) => tip.contains(event.target) || event.target.closest?.(REFERENCE) || hide());
    addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !current) return;
      event.stopImmediatePropagation(); // Present mode goes on
      hide();
    }, true);
    addEventListener("resize", hide);
  }

  window.bookScripts = { load, typeset };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
