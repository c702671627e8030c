// What is folded opens when a link points into it, and on paper; what has moved to another page is found there.
(function () {
  "use strict";

  function open(element) {
    for (let node = element; node; node = node.parentElement) {
      if (node.tagName === "DETAILS") node.open = true;
      if (node.classList.contains("toggle-hidden")) node.querySelector(".toggle-button")?.click();
    }
  }

  // The reference was one page once: its table leads on to the entry, or to the class whose member it is.
  function lead(name) {
    const links = Array.from(document.querySelectorAll(".api-reference a"));
    for (let known = name; known; known = known.slice(0, Math.max(0, known.lastIndexOf(".")))) {
      const link = links.find((one) => one.hash === "#" + known);
      if (link) return location.replace(link.href.replace(link.hash, "#" + name));
    }
  }

  function follow() {
    if (location.hash.includes("=")) return; // no place of the page, but an experiment of the laboratory
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return lead(decodeURIComponent(location.hash.slice(1)));
    open(target.matches("div.cell") ? (target.querySelector("details.hide > :last-child") ?? target) : target);
    target.scrollIntoView();
  }

  function print() {
    document.querySelectorAll(".bd-article :is(details:not([open]), .toggle-hidden)").forEach(open);
  }

  // A button that opens something says what: the proof of which statement, the solution of which exercise.
  function nameButtons() {
    const PROVED = ":is(.theorem, .lemma, .proposition, .corollary) > .admonition-title > .caption-number";
    let statement = "";
    for (const one of document.querySelectorAll(".bd-article :is(.proof" + PROVED + ", .toggle-button)")) {
      const words = one.parentElement.textContent.trim();
      if (one.matches(".caption-number")) statement = "Proof of " + one.textContent.trim() + ".";
      else one.setAttribute("aria-label", statement ? words.replace(/^Proof\./, statement) : words);
    }
  }

  addEventListener("load", nameButtons);
  addEventListener("load", follow);
  addEventListener("hashchange", follow);
  addEventListener("beforeprint", print);
})();
