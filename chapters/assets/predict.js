// Predict boxes: a list in the box becomes buttons, or, if its only item begins with "a number", a field with a
// Check button. What answers the question is covered until one is pressed, any number is checked, or the browser finds
// words in it; the browser remembers what was said. Without JavaScript, on paper and in notebooks nothing is covered.
(function () {
  "use strict";
  const COVER = "predict-covered", VEIL = "predict-veiled", SHOW = "Show the answer", AGAIN = "Cover the answer again";
  const CARD = "Guess first, or show the answer", MORE = "… and why";
  const SAID = "predict", ALL = "predict-all"; // names of what is remembered
  const EXPLAINS = /^(In words|Why it matters)\./, ASKS = /^[^.:]*\?/;
  const EYE = "M288 96c-110 0-200 62-256 160 56 98 146 160 256 160s200-62 256-160C488 158 398 96 288 96zm0 272a112 112 0 1 1 0-224 112 112 0 0 1 0 224zm0-48a64 64 0 1 0 0-128 64 64 0 0 0 0 128z";
  // The browser's own search opens what is hidden until found; where it cannot, words are blurred and can be found.
  const FINDS = "onbeforematch" in document.documentElement;
  const questions = [];

  function isBox(node) {
    return node.matches("div.admonition") && node.querySelector(".admonition-title")?.textContent.trim() === "Predict";
  }

  // Where nothing may be stored, in some private windows, an answer is forgotten, and no more.
  function remembered(name) {
    try {
      return JSON.parse(localStorage.getItem(name));
    } catch {
      return null;
    }
  }

  function remember(name, value) {
    try {
      localStorage.setItem(name, JSON.stringify(value));
    } catch {
      return;
    }
  }

  // Of an output all is covered. A slider stays: its pictures are veiled until it is moved, for one may find out by
  // it, and the caption is covered.
  function coveredOf(output) {
    const ofSlider = output.querySelectorAll(".ssm-slider, figure:has(.ssm-slider) > figcaption");
    return ofSlider.length ? [...ofSlider] : [output];
  }

  // What answers a question: the next pictures and printed numbers, a paragraph on the way there (two on the way to a
  // picture) and one after them; where there are none the next paragraph. What stands between is never covered.
  function answerOf(box) {
    const before = [], shown = [];
    let isShown = false;
    for (let node = box.nextElementSibling; node && node.tagName !== "SECTION" && !isBox(node); node = node.nextElementSibling) {
      const output = node.querySelector(":scope > .cell_output"), next = node.nextElementSibling;
      if (output && !(before.length === 2 && node.querySelector(":scope > .cell_input"))) {
        isShown = true;
        shown.push(...coveredOf(output));
      } else if (node.matches("p:not(.attribution)") && !EXPLAINS.test(node.textContent)) {
        if (isShown && before.length && ASKS.test(node.textContent)) break; // the answer came first
        if (isShown) return [...before, ...shown, node, ...(next?.matches("ul, ol") ? [next] : [])];
        if (before.length === 2) break;
        before.push(node);
      } else if ((isShown || before.length) && !node.matches("p, .cell:not(:has(> .cell_input))")) break;
    }
    return isShown ? [...before, ...shown] : before.slice(0, 1);
  }

  function button(className, text) {
    const one = document.createElement("button");
    one.type = "button";
    one.className = className;
    one.textContent = text;
    return one;
  }

  function turn(question, open, words = "") {
    for (const piece of question.pieces) {
      if (piece.matches(".ssm-slider")) {
        piece.classList.toggle(VEIL, !open);
        continue;
      }
      piece.classList.toggle(COVER, !open);
      if (FINDS && !open) piece.setAttribute("hidden", "until-found");
      else piece.removeAttribute("hidden");
    }
    for (const card of question.cards) card.hidden = open;
    question.show.textContent = open ? AGAIN : SHOW;
    question.show.setAttribute("aria-expanded", String(open));
    question.said.textContent = words;
  }

  // What the reader said, null for a look at the answer; undefined forgets it.
  function say(question, value, words) {
    remember(SAID, { ...remembered(SAID), [question.name]: value });
    if (value === undefined) for (const one of question.box.querySelectorAll("[aria-pressed]")) one.setAttribute("aria-pressed", "false");
    turn(question, value !== undefined, words);
  }

  // The words of an item of a list, which may be a paragraph.
  function wordsOf(item) {
    return [...item.childNodes].flatMap((node) => (node.nodeName === "P" ? [...node.childNodes] : [node]));
  }

  // "a number (in percent)" becomes a label, a field and a button. Any number will do; a reader may write 1,024 or 50 %.
  function numberField(question, item, before) {
    const form = document.createElement("form"), label = document.createElement("label"), check = button("predict-check", "Check");
    const field = document.createElement("input");
    const isNumber = (words) => /\d/.test(words) && Number.isFinite(Number(words.replace(/[\s,%]/g, "").replace("−", "-")));
    field.inputMode = "decimal";
    field.autocomplete = "off";
    field.size = 8;
    field.value = before ?? "";
    label.append(...wordsOf(item), " ", field);
    check.type = "submit";
    form.noValidate = true;
    form.append(label, check);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const words = field.value.trim(), good = isNumber(words);
      field.setAttribute("aria-invalid", String(!good));
      if (good) say(question, words, `You said ${words}. Compare it with what follows.`);
      else {
        question.said.textContent = "Please enter a number.";
        field.focus();
      }
    });
    item.replaceChildren(form);
  }

  function choiceButtons(question, items, before) {
    const choices = items.map((item, i) => {
      const one = button("predict-choice", "");
      one.append(...wordsOf(item));
      one.setAttribute("aria-pressed", String(i === before));
      one.addEventListener("click", () => {
        for (const other of choices) other.setAttribute("aria-pressed", String(other === one));
        say(question, i, "Compare your choice with what follows.");
      });
      item.replaceChildren(one);
      return one;
    });
  }

  // In the place of what is covered: a card that can be turned, one for pieces that follow each other.
  function cardsOf(question) {
    const pieces = question.pieces.filter((piece) => !piece.matches(".ssm-slider"));
    const follows = (piece, last) => [last, last?.closest(".cell")].includes(piece.previousElementSibling);
    return pieces.filter((piece, i) => !i || !follows(piece, pieces[i - 1])).map((piece, i) => {
      const card = button("predict-card", i ? MORE : CARD);
      card.addEventListener("click", () => {
        say(question, null, "");
        piece.tabIndex = -1; // the card that had the focus is gone
        piece.focus({ preventScroll: true });
      });
      piece.before(card);
      return card;
    });
  }

  // A hand on a veiled slider lifts its veil.
  function lift({ target, key }) {
    if (key !== "Tab" && key !== "Shift") target.closest("." + VEIL)?.classList.remove(VEIL);
  }

  function prepare(box) {
    const items = [...box.querySelectorAll(":scope > ul > li")], page = location.pathname.split("/").pop();
    const show = button("predict-show", SHOW), said = document.createElement("span"), line = document.createElement("p");
    const question = { box, show, said, name: `${page} ${questions.length}`, pieces: answerOf(box) };
    const before = remembered(SAID)?.[question.name];
    question.cards = cardsOf(question);
    if (items.length === 1 && /^a number\b/.test(items[0].textContent.trim())) numberField(question, items[0], before);
    else choiceButtons(question, items, before);
    show.hidden = !question.pieces.length; // the next section answers
    show.addEventListener("click", () => {
      const open = show.getAttribute("aria-expanded") === "true";
      say(question, open ? undefined : null, open ? "" : "The answer follows.");
    });
    said.className = "predict-said";
    said.setAttribute("role", "status");
    line.className = "predict-line";
    line.append(show, said);
    box.append(line);
    box.classList.add("predict");
    questions.push(question);
    turn(question, before !== undefined || remembered(ALL) === true);
  }

  function uncover(node) {
    for (const question of questions) if (question.pieces.some((piece) => piece.contains(node))) say(question, null, "");
  }

  // A link to something that is covered, or to anything in it, uncovers it.
  function follow() {
    if (location.hash.includes("=")) return; // no place of the page, but an experiment of the laboratory
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const covered = target?.closest("." + COVER) ?? target?.querySelector("." + COVER);
    if (covered && !target.matches("section")) uncover(covered);
  }

  // For those who only read, one switch for every page, beside that of the colors.
  function addSwitch() {
    const all = button("btn btn-sm predict-all", "");
    const mark = () => {
      const on = remembered(ALL) === true;
      all.setAttribute("aria-pressed", String(on));
      all.title = on ? "Answers are shown on every page; cover them again" : "Show the answers on every page";
      return on;
    };
    all.setAttribute("aria-label", "Show all answers");
    all.innerHTML = `<svg class="icon fa-lg" aria-hidden="true" viewBox="0 0 576 512"><path fill-rule="evenodd" d="${EYE}"/></svg>`;
    all.addEventListener("click", () => {
      remember(ALL, all.getAttribute("aria-pressed") !== "true");
      const on = mark(), said = remembered(SAID) ?? {};
      for (const question of questions) turn(question, on || question.name in said);
    });
    mark();
    document.querySelector(".article-header-buttons .theme-switch-button")?.before(all);
  }

  function begin() {
    [...document.querySelectorAll("article.bd-article div.admonition")].filter(isBox).forEach(prepare);
    if (!questions.length) return;
    addSwitch();
    for (const name of ["input", "keydown", "pointerdown"]) document.addEventListener(name, lift);
    document.addEventListener("beforematch", ({ target }) => uncover(target));
    follow();
  }

  addEventListener("hashchange", follow);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
