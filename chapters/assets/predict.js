// Predict boxes: a list in the box becomes buttons, or, if its only item begins with "a number", a field with a
// Check button. The text up to the next section is covered until one is pressed or any number is checked. Nothing is
// stored. Without JavaScript, on paper and in notebooks the answer follows the question.
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

  // The words of an item of a list, which may be a paragraph.
  function wordsOf(item) {
    return [...item.childNodes].flatMap((node) => (node.nodeName === "P" ? [...node.childNodes] : [node]));
  }

  // "a number (in percent)" becomes a label, a field and a button. Any number will do; a reader may write 1,024 or 50 %.
  function numberField(box, item) {
    const form = document.createElement("form"), label = document.createElement("label"), check = button("predict-check");
    const field = document.createElement("input");
    const isNumber = (words) => /\d/.test(words) && Number.isFinite(Number(words.replace(/[\s,%]/g, "").replace("−", "-")));
    field.inputMode = "decimal";
    field.autocomplete = "off";
    field.size = 8;
    label.append(...wordsOf(item), " ", field);
    check.type = "submit";
    check.textContent = "Check";
    form.noValidate = true;
    form.append(label, check);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const words = field.value.trim(), good = isNumber(words);
      field.setAttribute("aria-invalid", String(!good));
      if (good) uncover(box, `You said ${words}. Compare it with what follows.`);
      else {
        box.querySelector(".predict-said").textContent = "Please enter a number.";
        field.focus();
      }
    });
    item.replaceChildren(form);
  }

  function prepare(box) {
    const items = [...box.querySelectorAll(":scope > ul > li")];
    const number = items.length === 1 && /^a number\b/.test(items[0].textContent.trim());
    const choices = number ? [] : items;
    if (number) numberField(box, items[0]);
    const show = button("predict-show");
    show.textContent = SHOW;
    show.addEventListener("click", () => uncover(box, "The answer follows."));
    for (const choice of choices) {
      const one = button("predict-choice");
      one.append(...wordsOf(choice));
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
    if (location.hash.includes("=")) return; // no place of the page, but an experiment of the laboratory
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
