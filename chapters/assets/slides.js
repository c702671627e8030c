// Starts a deck: typesets it, cuts what is taller than a slide into several, then hands it to reveal.js.
(function () {
  "use strict";
  const WIDTH = 1280, HEIGHT = 720, MARGIN = 30, HALF = 560, SMALLEST_TEXT = 18, SIZES = [40, 37, 34, 31, 28, 26, 24];
  const WORDS = 64, LINES = 80; // that a room reads at once: of a statement, and of a list's short lines
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
    const wide = () => Array.from(body.querySelectorAll("pre")).some((pre) => pre.scrollWidth > pre.clientWidth);
    body.classList.add("grown");
    const fits = SIZES.find((size) => (body.style.fontSize = size + "px") && !overflows(section) && !wide());
    body.classList.toggle("grown", Boolean(fits));
  }

  function number(section) {
    section.querySelectorAll("ol").forEach(function (list) {
      Array.from(list.children).forEach((item, i) => (item.value = i + (list.start || 1)));
    });
  }

  // The words of a sentence, a formula among them as one; what is no sentence is not read word by word.
  function words(piece) {
    if (!piece.matches("p, li")) return 0;
    const copy = piece.cloneNode(true);
    copy.querySelectorAll("mjx-container").forEach((formula) => formula.replaceWith(" formula "));
    return (copy.textContent.match(/\S*\w\S*/g) || []).length;
  }

  const sum = (numbers) => numbers.reduce((total, one) => total + one, 0);

  // A paragraph too long for a slide becomes one for each of its sentences.
  function part(piece) {
    if (!piece.matches("p") || words(piece) <= WORDS) return;
    let last = piece.cloneNode(false);
    const all = [last];
    for (const node of Array.from(piece.childNodes)) {
      const texts = node.nodeType === Node.TEXT_NODE ? node.data.split(/(?<=[.?!]|^)\s+(?=[A-Z]|$)/) : [node];
      texts.forEach(function (text, i) {
        if (i && /[.?!]$/.test(last.textContent)) all.push((last = piece.cloneNode(false)));
        last.append(text);
      });
    }
    piece.replaceWith(...all.filter((one) => one.textContent.trim()));
  }

  // What stays on one slide: a formula with its sentence, and what goes on with what it goes on from.
  function units(section) {
    const found = [];
    pieces(section).forEach(function (piece, i) {
      const goesOn = piece.matches("div.math") || (piece.matches("p") && /^\s*[a-z]/.test(piece.firstChild.data || ""));
      if (i && goesOn) found[found.length - 1].push(piece);
      else found.push([piece]);
    });
    return found;
  }

  // The slide of each unit: as few slides as can be, and these as evenly filled as can be; 1 is a full one.
  function spread(loads) {
    const best = [{ cost: 0, ends: [] }];
    for (let end = 1; end <= loads.length; end++)
      for (let start = end - 1, load = 0; start >= 0; start--) {
        load += loads[start];
        if (load > 1 && start < end - 1) break;
        const cost = best[start].cost + 1000 + load * load; // one slide less is worth any unevenness
        if (!best[end] || cost < best[end].cost) best[end] = { cost, ends: [...best[start].ends, end] };
      }
    return loads.map((_, unit) => best[loads.length].ends.findIndex((end) => unit < end));
  }

  // A slide with more than a room reads at once, or more than fits, becomes several.
  function cut(section) {
    const all = units(section), read = all.map((unit) => sum(unit.map(words)));
    const most = section.matches(".list") ? LINES : WORDS;
    if (all.length < 2 || (sum(read) <= most && !overflows(section))) return;
    section.querySelector(".body").style.fontSize = SIZES.at(-1) + "px";
    const room = section.getBoundingClientRect().top + HEIGHT - MARGIN - all[0][0].getBoundingClientRect().top;
    const high = all.map((unit) => sum(unit.map((piece) => piece.getBoundingClientRect().height + 12)));
    const slides = spread(all.map((unit, i) => Math.max(read[i] / most, high[i] / room)));
    const count = slides.at(-1) + 1, copies = Array.from({ length: count }, () => section.cloneNode(true));
    section.replaceWith(...copies);
    copies.forEach(function (copy, slide) {
      units(copy).forEach((unit, i) => slides[i] !== slide && unit.forEach(remove));
      const heading = copy.querySelector("h2");
      (heading.querySelector("a") || heading).dataset.part = slide + 1 + "\u00a0of\u00a0" + count;
      grow(copy);
    });
  }

  // The question above its answer, if both are read at once.
  function ask(section) {
    const asked = section.querySelector(".admonition.tip");
    if (section.matches(".output") && asked) {
      grow(section);
      const small = parseFloat(asked.parentElement.style.fontSize) < 28;
      if (small || sum(pieces(section).map(words)) > WORDS) asked.remove();
    }
  }

  // Little text stands a little lower.
  function settle(section) {
    const body = section.querySelector(".body");
    if (!body || body.querySelector("img")) return;
    const left = section.getBoundingClientRect().top + HEIGHT - MARGIN - body.getBoundingClientRect().bottom;
    body.style.marginTop = Math.max(0, Math.min(80, left / 3)) + "px";
  }

  // What a picture's caption says first, beside the picture or below it, where there is room.
  function tell(section) {
    const seen = section.querySelector(".seen"), at = section.getBoundingClientRect();
    if (!seen) return;
    const shown = Array.from(section.querySelectorAll(".body :is(img, .part)")).map((one) => one.getBoundingClientRect());
    const right = Math.max(...shown.map((box) => box.right)) - at.left;
    const control = section.querySelector(".ssm-slider-control");
    const bottom = (control ? control.getBoundingClientRect().bottom : Math.max(...shown.map((box) => box.bottom))) - at.top;
    const tall = section.matches(".beside") && section.querySelector("h2").getBoundingClientRect();
    const top = (tall ? tall.bottom : section.querySelector(".body").getBoundingClientRect().top) - at.top + 24;
    const left = tall ? tall.left - at.left : right + 36;
    const low = control ? control.getBoundingClientRect().top - at.top : HEIGHT - MARGIN;
    const places = [[left, top, WIDTH - 40 - left, low - top], [40, bottom + 12, 1110, HEIGHT - MARGIN - 12 - bottom]];
    for (const size of [30, 28, 26, 24])
      for (const [x, y, width, height] of places) {
        if (width < 300) continue;
        Object.assign(seen.style, {
          fontSize: size + "px", left: x - section.clientLeft + "px", top: y - section.clientTop + "px", width: width + "px",
        });
        if (seen.offsetHeight <= height) return;
      }
    seen.remove();
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
    slides.querySelectorAll(".statement .body p").forEach(part);
    for (const step of [number, tell, ask, grow, cut, settle]) slides.querySelectorAll("section").forEach(step);
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
