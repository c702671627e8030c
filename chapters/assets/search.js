// Search: an excerpt of prose for each hit; the page that a hit opens marks the words and starts at the first.
// (The theme loads the search on every page, so that Sphinx takes each for the search page and marks nothing.)
(function () {
  "use strict";
  const NOT_PROSE = "h1, pre, .headerlink, script, style, .cell, div.math, .toctree-wrapper, .footnote-list";
  const EXCERPT = 240;
  const asked = new URLSearchParams(location.search);

  function words(query) {
    return query.split(/\s+/).filter((word) => word.length > 1);
  }

  function pattern(parts, joint) {
    return new RegExp(parts.map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(joint), "gi");
  }

  // The words as they were asked for, one after the other; where these do not occur, each word by itself.
  function find(query, occurs) {
    const parts = words(query);
    return parts.length && [pattern(parts, "\\s+"), pattern(parts, "|")].find(occurs);
  }

  function prose(page, anchor) {
    const article = page.querySelector("article.bd-article");
    if (!article) return "";
    article.querySelectorAll(NOT_PROSE).forEach((node) => node.remove());
    article.querySelectorAll(".math").forEach(function (formula) {
      const tex = formula.textContent.replace(/^\\\(|\\\)$/g, "");
      formula.textContent = /[\\{}]/.test(tex) ? "…" : tex;
    });
    const part = (anchor && article.querySelector(anchor)) || article;
    return part.textContent.replace(/\s+/g, " ").trim();
  }

  function excerpt(text, query) {
    const found = find(query, (wanted) => text.search(wanted) >= 0);
    const start = Math.max((found ? text.search(found) : 0) - EXCERPT / 2, 0);
    const from = start && text.indexOf(" ", start) + 1;
    const end = from + EXCERPT < text.length ? text.lastIndexOf(" ", from + EXCERPT) : text.length;
    return (from ? "… " : "") + text.slice(from, end) + (end < text.length ? " …" : "");
  }

  function prepareHits(list) {
    const query = asked.get("q") || "";
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = location.protocol !== "file:"; // browsers forbid it there
    Search.makeSearchSummary = function (html, keywords, anchor) {
      const summary = document.createElement("p");
      summary.className = "context";
      summary.textContent = excerpt(prose(new DOMParser().parseFromString(html, "text/html"), anchor), query);
      return summary;
    };
    new MutationObserver(function () {
      list.querySelectorAll("li > a").forEach(function (link) {
        const target = new URL(link.href);
        if (target.searchParams.has("highlight")) return;
        target.searchParams.set("highlight", query);
        link.href = target.href;
      });
    }).observe(list, { childList: true, subtree: true });
  }

  function textNodes(article) {
    const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT, (node) =>
      node.parentElement.closest("mjx-container, script, style, .headerlink")
        ? NodeFilter.FILTER_REJECT
        : NodeFilter.FILTER_ACCEPT
    );
    const nodes = [];
    while (walker.nextNode()) nodes.push(walker.currentNode);
    return nodes;
  }

  function mark(node, wanted) {
    const marks = [];
    for (const match of [...node.data.matchAll(wanted)].reverse()) {
      const range = document.createRange();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const span = document.createElement("span");
      span.className = "highlighted";
      range.surroundContents(span);
      marks.unshift(span);
    }
    return marks;
  }

  function markWords(article) {
    const nodes = textNodes(article);
    const wanted = find(asked.get("highlight"), (form) => nodes.some((node) => node.data.search(form) >= 0));
    if (!wanted) return;
    const marks = nodes.flatMap((node) => mark(node, wanted));
    const first = marks.find((span) => span.offsetParent);
    if (first && !location.hash) first.scrollIntoView({ block: "center" });
  }

  document.addEventListener("DOMContentLoaded", function () {
    const list = document.getElementById("search-results");
    if (list) prepareHits(list);
  });

  window.addEventListener("load", async function () {
    const article = document.querySelector("article.bd-article");
    if (!article || !asked.get("highlight")) return;
    // Formulas first: marks inside their source would break them, and typeset they move the text.
    if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
    markWords(article);
  });
})();
