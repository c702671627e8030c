// Predict boxes: a list in the box becomes buttons, and the text up to the next section is covered until one is
// pressed. Nothing is stored. Without JavaScript, on paper and in notebooks the answer follows the question.
(function () {
  "use strict";
  const COVER = "predict-covered", SHOW = "Show the answer";

  function isBox(node) {
    return node.matches("div.admonition") && node.querySelector(".admonition-title")?.textContent.trim() === "Predict";
  }

  // What one answer uncovers: the siblings up to and with the next question, or up to the next section.
  function answerOf(box) {
    const found = [];
    for (let node = box.nextElementSibling; node && node.tagName !== "SECTION"; node = node.nextElementSibling) {
      found.push(node);
      if (isBox(node)) break;
    }
    return found;
  }

  function cover(node, on) {
    node.classList.toggle(COVER, on);
    node.inert = on;
  }

  function uncover(box, words) {
    answerOf(box).forEach((node) => cover(node, false));
    const said = box.querySelector(".predict-said");
    if (said) said.textContent = words;
  }

  function button(className) {
    const one = document.createElement("button");
    one.type = "button";
    one.className = className;
    return one;
  }

  function prepare(box) {
    const choices = [...box.querySelectorAll(":scope > ul > li")];
    const show = button("predict-show");
    show.textContent = SHOW;
    show.addEventListener("click", () => uncover(box, "The answer follows."));
    for (const choice of choices) {
      const one = button("predict-choice");
      one.append(...[...choice.childNodes].flatMap((node) => (node.nodeName === "P" ? [...node.childNodes] : [node])));
      one.setAttribute("aria-pressed", "false");
      one.addEventListener("click", () => {
        for (const { firstChild } of choices) firstChild.setAttribute("aria-pressed", String(firstChild === one));
        uncover(box, "Compare your choice with what follows.");
      });
      choice.replaceChildren(one);
    }
    const said = document.createElement("span");
    said.className = "predict-said";
    said.setAttribute("role", "status");
    const line = document.createElement("p");
    line.className = "predict-line";
    line.append(show, said);
    box.append(line);
    box.classList.add("predict");
    answerOf(box).forEach((node) => cover(node, true));
  }

  // A link to something that is covered, and to anything in it, uncovers the way to it.
  function follow() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target?.closest("." + COVER)) return;
    for (const box of document.querySelectorAll("div.predict")) {
      if (box.parentElement.contains(target)) uncover(box, "");
    }
  }

  function begin() {
    [...document.querySelectorAll("article.bd-article div.admonition")].filter(isBox).forEach(prepare);
    follow();
  }

  addEventListener("hashchange", follow);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
