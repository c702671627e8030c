// Starts a deck: typesets it, fits text and picture of each slide to 1280 by 720, then hands it to reveal.js.
(function () {
  "use strict";
  const WIDTH = 1280, HEIGHT = 720, MARGIN = 36, GAP = 20, SIZES = [32, 30, 28, 26, 24];
  const PRINTED = /print-pdf/.test(location.search), FRAMES = 4, APART = 48, LEGIBLE = 18;

  const box = (node) => node.getBoundingClientRect();
  const bottom = (section) => box(section).top + HEIGHT - MARGIN - (section.querySelector(".source") ? 34 : 0);

  // The largest type in which the text fits into the width and height; the smallest if none does.
  function set(text, width, limit) {
    text.style.width = width + "px";
    for (const size of SIZES) {
      text.style.fontSize = size + "px";
      const wide = Array.from(text.querySelectorAll("pre, mjx-container, table")).some((one) => one.scrollWidth > width + 1);
      if (box(text).bottom <= limit && !wide) return size;
    }
    return 0;
  }

  // Width and height of a picture on the page, its slider with it.
  function measure(shown) {
    const images = Array.from(shown.querySelectorAll("img"));
    const row = shown.querySelector(".ssm-slider") ? Array.from(images[0].parentElement.querySelectorAll("img")) : [images[0]];
    const control = shown.querySelector(".ssm-slider-control") ? 74 : 0;
    const width = row.reduce((sum, one) => sum + Number(one.getAttribute("width")), 0);
    return { images, width, height: Number(row[0].getAttribute("height")), control };
  }

  // One picture and one text: below each other or side by side, whichever leaves the picture larger.
  function arrange(section) {
    const body = section.querySelector(".body"), shown = body && body.querySelector(".shown");
    if (!body) return;
    const text = document.createElement("div");
    text.className = "text";
    const rest = Array.from(body.childNodes).filter((node) => node !== shown);
    text.append(...rest);
    body.prepend(text);
    const across = WIDTH - 2 * MARGIN - 8, limit = bottom(section);
    if (!shown || !shown.querySelector("img")) {
      if (set(text, across, limit) || !swap(text)) return;
      if (PRINTED) text.querySelector(".ask").remove(); // no room for both
      set(text, across, limit);
      return;
    }
    const asks = swap(text), ask = text.querySelector(".ask"), answer = text.querySelector(".answer");
    const waits = asks && !PRINTED && shown.matches(".fragment");
    if (waits) ask.hidden = true; // it goes when the picture comes, so it may lie where the picture will be
    const { images, width, height, control } = measure(shown);
    let top = box(body).top, words = Boolean(text.textContent.trim());
    const choices = [], alone = () => Math.min(across / width, (limit - top - control) / height);
    if (!words) choices.push({ beside: false, scale: alone() });
    else {
      for (const size of [28, 26, 24]) {
        text.style.width = across + "px";
        text.style.fontSize = size + "px";
        const room = limit - box(text).bottom - GAP - control;
        choices.push({ beside: false, size, scale: Math.min(across / width, room / height) });
      }
      for (const column of [420, 480, 540]) {
        const size = set(text, column, limit);
        const room = limit - top - control;
        if (size) choices.push({ beside: true, size, column, scale: Math.min((across - column - GAP) / width, room / height) });
      }
    }
    let best = choices.reduce((a, b) => (b.scale > a.scale * 1.08 ? b : a));
    const tiny = Math.min(...images.map((one) => Number(one.dataset.text))) * best.scale < LEGIBLE;
    if (asks && tiny && !PRINTED) { // question, answer, and then the picture, each with the room to itself
      best = { beside: false, scale: alone() };
      text.classList.add("before");
      shown.classList.add("fragment");
      shown.dataset.fragmentIndex = 1;
      answer.classList.add("fade-in-then-out");
    }
    body.classList.toggle("beside", best.beside);
    text.style.width = (best.column || across) + "px";
    if (best.size) text.style.fontSize = best.size + "px";
    for (const image of images) {
      image.style.width = Math.floor(Number(image.getAttribute("width")) * best.scale) + "px";
      image.style.height = Math.ceil(Number(image.getAttribute("height")) * best.scale) + "px";
    }
    if (!words) text.remove();
    if (!waits) return;
    ask.hidden = false;
    if (text.matches(".before")) return;
    ask.style.top = text.querySelector(".answer").offsetTop + "px";
    body.append(ask);
  }

  // The answer takes the place of its question.
  function swap(text) {
    const ask = text.querySelector(".ask"), answer = text.querySelector(".answer"), place = document.createElement("div");
    if (!ask || !answer) return false;
    if (!PRINTED) place.className = "swap";
    ask.replaceWith(place);
    place.append(ask, answer);
    if (PRINTED) return true;
    ask.classList.add("fragment", "fade-out");
    for (const part of [ask, answer, ...text.parentElement.querySelectorAll(".shown.fragment")]) part.dataset.fragmentIndex = 0;
    return true;
  }

  // On paper a slider is a few of its frames, two by two.
  function multiply(figure) {
    const frames = Array.from(figure.querySelectorAll(".ssm-slider-frames > div"));
    const count = Math.min(FRAMES, frames.length);
    const kept = Array.from({ length: count }, (_, i) => frames[Math.round((i * (frames.length - 1)) / Math.max(1, count - 1))]);
    for (const frame of frames) {
      frame.hidden = !kept.includes(frame);
      frame.style.display = ""; // the slider on the page has written "none" into all but one
    }
    figure.classList.add("printed");
    const { images, width, height } = measure(figure.parentElement), section = figure.closest("section");
    const across = WIDTH - MARGIN - 4 - (box(figure).left - box(section).left) - APART, down = bottom(section) - box(figure).top - GAP;
    const scale = Math.min(across / width, down / height) / 2;
    for (const image of images) {
      image.style.width = Math.floor(Number(image.getAttribute("width")) * scale) + "px";
      image.style.height = Math.floor(Number(image.getAttribute("height")) * scale) + "px";
    }
  }

  // Every key presents the deck, also where a slider has the focus; Shift and an arrow move the slider of the slide.
  function keys(event) {
    const focused = document.activeElement, way = /^Arrow(Up|Right)?/.exec(event.key);
    const field = "input[type=number], select:not(.ssm-slider-control select)";
    const typed = focused.matches(".run label input, .choices input"); // a bet, a show of hands: then the next key
    if (!event.isTrusted || (focused.matches(field) && !(typed ? /^(Page|Arrow(Left|Right))/ : /^Page/).test(event.key))) return;
    if (focused.matches("select") && /^( |Enter|F4)$/.test(event.key)) return; // opens the menu
    const moved = [...Reveal.getCurrentSlide().querySelectorAll("input[type=range], .ssm-slider-control select")];
    if (event.shiftKey && way) move(moved.find((one) => one.offsetParent), event.key, way[1]);
    else if (focused.matches("input, select") && event.key !== "Tab") {
      focused.blur(); // reveal.js leaves keys to a field that has the focus
      if (!way && !/^(Page(Up|Down)|Home|End)$/.test(event.key)) return;
      Reveal.triggerKey(event.keyCode); // the slider would take these before reveal.js hears of them
    } else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }

  function move(input, key, forward) {
    if (!input || !input.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }))) return; // a live view moves
    if (input.options) input.selectedIndex = Math.min(Math.max(input.selectedIndex + (forward ? 1 : -1), 0), input.length - 1);
    else if (forward) input.stepUp();
    else input.stepDown();
    input.dispatchEvent(new Event("input"));
  }

  // The slides of a shorter lecture: ?length=50, or one half of the lecture of 75 minutes, ?length=1of2.
  function cut(slides) {
    const chosen = new URLSearchParams(location.search).get("length") || "", half = /^([12])of2$/.exec(chosen);
    const select = slides.querySelector(".length select"), all = Array.from(slides.querySelectorAll("section[data-minutes]"));
    const length = half ? 75 : Number(chosen) || Infinity;
    const second = all.findIndex((one) => "second" in one.dataset);
    let minute = 0;
    all.forEach((section, i) => {
      if (Number(section.dataset.length) > length || (half && (i >= second) !== (half[1] === "2"))) return section.remove();
      minute += Number(section.dataset.minutes);
      const clock = section.querySelector(".clock"); // students have neither notes nor lengths
      if (clock) clock.textContent = section.dataset.minutes + " min, until minute " + minute + ".";
    });
    if (!select) return;
    if (Array.from(select.options).some((option) => option.value === chosen)) select.value = chosen;
    if (PRINTED) return select.closest(".length").remove();
    select.addEventListener("change", () => { location.search = select.value ? "?length=" + select.value : ""; });
  }

  // A show of hands: the choices of a question, one on a line; a number typed beside a choice becomes a bar.
  function choices(ask) {
    const line = Array.from(ask.querySelectorAll("p")).pop(), words = line.innerHTML.split(" · ");
    if (words.length < 2) return;
    const list = document.createElement("ul");
    list.className = "choices";
    for (const word of words) {
      const item = document.createElement("li"), hands = document.createElement("input");
      item.innerHTML = "<span>" + word + "</span>";
      Object.assign(hands, { type: "number", min: 0, placeholder: "hands" });
      hands.setAttribute("aria-label", "hands for " + item.textContent);
      hands.addEventListener("input", () => count(list));
      hands.addEventListener("keydown", (event) => { if (event.key === "Enter") hands.blur(); });
      if (!PRINTED) item.append(hands);
      list.append(item);
    }
    line.replaceWith(list);
  }

  function count(list) {
    const fields = Array.from(list.querySelectorAll("input")), most = Math.max(1, ...fields.map((one) => Number(one.value)));
    for (const one of fields) one.parentElement.style.setProperty("--share", Number(one.value) / most);
  }

  // The heads of the page's model in the place of their picture, at a step of *Swap a head*.
  function swapHeads(shown) {
    Object.assign(shown.dataset, { swap: "slide", step: shown.dataset.heads });
    Swap.board(shown);
  }

  async function start() {
    const slides = document.querySelector(".slides");
    cut(slides);
    slides.querySelectorAll(".ask").forEach(choices);
    if (PRINTED) slides.querySelectorAll(".cover").forEach((one) => one.remove());
    if (window.Stage) Stage.prepare(slides, PRINTED);
    slides.classList.add("measuring");
    await MathJax.startup.promise;
    await Promise.all(Array.from(document.fonts, (font) => font.load().catch(() => {}))); // or words grow after they were fitted
    await Promise.all(Array.from(document.images, (image) => image.decode().catch(() => {})));
    slides.querySelectorAll("section").forEach(arrange);
    if (PRINTED) document.querySelectorAll(".ssm-slider").forEach(multiply);
    slides.classList.remove("measuring");
    if (window.Lab && !PRINTED) Lab.enliven(); // as large as the pictures that were drawn
    if (window.Swap && !PRINTED) slides.querySelectorAll("[data-heads]").forEach(swapHeads);
    document.addEventListener("keydown", keys, true);
    await Reveal.initialize({
      width: WIDTH, height: HEIGHT, margin: 0, center: false, controls: false, hash: true, pdfSeparateFragments: false,
      slideNumber: "c/t", transition: "none", plugins: [RevealNotes],
    });
    Reveal.on("fragmentshown", ({ fragment }) => fragment.closest(".run")?.run());
    Reveal.registerKeyboardShortcut("Shift + &#8592;/&#8593/&#8594;/&#8595;", "Move the slider"); // as ? lists them
    document.documentElement.dataset.ready = "true";
  }

  document.addEventListener("DOMContentLoaded", start);
})();
