// What is folded opens when a link points into it, and on paper.
(function () {
  "use strict";

  function open(element) {
    for (let node = element; node; node = node.parentElement) {
      if (node.tagName === "DETAILS") node.open = true;
      if (node.classList.contains("toggle-hidden")) node.querySelector(".toggle-button")?.click();
    }
  }

  function follow() {
    if (location.hash.includes("=")) return; // no place of the page, but an experiment of the laboratory
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    open(target.matches("div.cell") ? (target.querySelector("details.hide > :last-child") ?? target) : target);
    target.scrollIntoView();
  }

  function print() {
    document.querySelectorAll(".bd-article :is(details:not([open]), .toggle-hidden)").forEach(open);
  }

  addEventListener("load", follow);
  addEventListener("hashchange", follow);
  addEventListener("beforeprint", print);
})();
