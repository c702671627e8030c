// Starts a deck: typesets it, cuts what is taller than a slide into several, then hands it to reveal.js.
(function () {
  "use strict";
  const WIDTH = 1280, HEIGHT = 720, MARGIN = 30, HALF = 560, SMALLEST_TEXT = 18, SIZES = [40, 37, 34, 31, 28, 26, 24];
  const PIECES = "p:not(.admonition-title), div.math, li, tr, pre";

  // The innermost pieces that can go to the next slide: no piece lies in another one.
  function pieces(section) {
    const all = Array.from(section.querySelectorAll(".body :is(" + PIECES + ")"));
    return all.filter((piece) => !all.some((other) => other !== piece && piece.contains(other)));
  }

  function overflows(section) {
    const body = section.querySelector(".body");
    return body && body.getBoundingClientRect().bottom > section.getBoundingClientRect().top + HEIGHT - MARGIN;
  }

  // The largest type in which the slide holds its text; the smallest if none does.
  function grow(section) {
    const body = section.querySelector(".body");
    if (!body || body.querySelector("img")) return;
    for (const size of SIZES) {
      body.style.fontSize = size + "px";
      if (!overflows(section)) return;
    }
  }

  function number(section) {
    section.querySelectorAll("ol").forEach(function (list) {
      Array.from(list.children).forEach((item, i) => (item.value = i + (list.start || 1)));
    });
  }

  // A sentence whose formula is the next piece.
  function unfinished(piece) {
    return /[,:]$|\b(is|has|and|with|let|then)$/i.test(piece.textContent.trim());
  }

  // Moves pieces from the end to a copy of the slide until the rest fits.
  function cut(section) {
    if (!overflows(section)) return;
    const all = pieces(section), rest = section.cloneNode(true), copies = pieces(rest);
    let kept = all.length;
    while (kept > 1 && (overflows(section) || unfinished(all[kept - 1]))) remove(all[--kept]);
    if (kept === all.length || kept === 0) return;
    copies.slice(0, kept).forEach(remove);
    grow(section);
    rest.querySelectorAll("aside.notes").forEach((notes) => notes.remove());
    rest.classList.add("continued");
    section.after(rest);
    grow(rest);
    cut(rest);
  }

  // Takes a piece away, and what it leaves empty.
  function remove(piece) {
    const parent = piece.parentElement;
    piece.remove();
    if (!parent.classList.contains("body") && !parent.textContent.trim()) remove(parent);
  }

  // The height that is left for a slide's body.
  function roomFor(section) {
    const beside = section.classList.contains("beside");
    const top = section.querySelector(".body").getBoundingClientRect().top - section.getBoundingClientRect().top;
    return HEIGHT - (beside ? top : MARGIN + top);
  }

  // A picture as large as the slide allows; one whose text would be too small is shown in parts instead.
  function fit(image) {
    const section = image.closest("section");
    const control = image.closest("figure") ? 70 : 0;
    const width = Number(image.getAttribute("width")) || image.naturalWidth;
    const height = Number(image.getAttribute("height")) || image.naturalHeight;
    const row = control ? Array.from(image.parentElement.querySelectorAll("img")) : [image]; // a frame's panels
    const all = row.length > 1 ? row.reduce((sum, panel) => sum + Number(panel.getAttribute("width")), 0) : width;
    const needed = SMALLEST_TEXT / Number(image.dataset.text);
    let room = roomFor(section) - control, across = WIDTH - 2 * MARGIN;
    if (!control && height * needed > room && width * needed < HALF) {
      section.classList.add("beside"); // a tall one: its heading stands beside it
      room = roomFor(section);
      across = WIDTH / 2 - MARGIN;
    }
    const whole = Math.min(across / all, room / height);
    const scale = control ? whole : Math.max(whole, Math.min(needed, (WIDTH - 2 * MARGIN) / width));
    image.style.width = Math.floor(width * scale) + "px";
    image.style.height = Math.ceil(height * scale) + "px";
    if (height * scale > room + 1) inParts(image, room, height * scale);
  }

  function inParts(image, room, height) {
    const frame = document.createElement("div");
    frame.className = "part";
    frame.style.height = room + "px";
    image.replaceWith(frame);
    frame.append(image);
    const parts = Math.ceil(height / room);
    for (let part = 1; part < parts; part++) {
      const step = document.createElement("span");
      step.className = "fragment";
      step.dataset.shift = Math.round(((height - room) * part) / (parts - 1));
      frame.after(step);
    }
  }

  function shift(event) {
    const section = event.fragment.closest("section");
    const shown = Array.from(section.querySelectorAll(".fragment.visible[data-shift]"));
    const image = section.querySelector(".part img");
    if (image) image.style.transform = "translateY(-" + Math.max(0, ...shown.map((e) => Number(e.dataset.shift))) + "px)";
  }

  // With the slider in focus the arrows move it; keys of clickers and the space bar go on.
  function keys(input) {
    input.addEventListener("keydown", function (event) {
      if (event.key === "PageDown" || event.key === " ") Reveal.next();
      else if (event.key === "PageUp") Reveal.prev();
      else if (event.key === "Escape") input.blur();
      else return;
      event.preventDefault();
      event.stopPropagation(); // reveal.js would go on once more
    });
  }

  function arrived(event) {
    const input = event.currentSlide.querySelector("input[type=range]");
    if (input) input.focus({ preventScroll: true });
    else if (document.activeElement) document.activeElement.blur();
  }

  async function start() {
    const slides = document.querySelector(".slides");
    slides.classList.add("measuring");
    await MathJax.startup.promise;
    await Promise.all(Array.from(document.images, (image) => image.decode().catch(() => {})));
    slides.querySelectorAll(".body img[data-text]").forEach(fit);
    slides.querySelectorAll("section").forEach(number);
    slides.querySelectorAll("section").forEach(grow);
    slides.querySelectorAll("section").forEach(cut);
    slides.classList.remove("measuring");
    document.querySelectorAll("input[type=range]").forEach(keys);
    Reveal.on("slidechanged", arrived);
    Reveal.on("ready", arrived);
    Reveal.on("fragmentshown", shift);
    Reveal.on("fragmenthidden", shift);
    await Reveal.initialize({
      width: WIDTH, height: HEIGHT, margin: 0, center: false, hash: true, slideNumber: "c/t",
      transition: "none", plugins: [RevealNotes],
    });
    document.documentElement.dataset.ready = "true";
  }

  document.addEventListener("DOMContentLoaded", start);
})();
