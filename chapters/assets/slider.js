// Moves the frames of every figure that headsandstates.sliders wrote into the page. Needs nothing and asks nobody.
(function () {
  "use strict";

  function activate(figure) {
    const input = figure.querySelector(".ssm-slider-control :is(input, select)");
    const output = figure.querySelector("output");
    const frames = Array.from(figure.querySelectorAll(".ssm-slider-frames > div"));
    if (!input || !frames.length || figure.dataset.active) return;
    figure.dataset.active = "true";
    const words = document.createElement("figcaption"); // the frame's own words, for those who see it
    words.setAttribute("aria-hidden", "true"); // the frames are a live region: they are read out already
    figure.append(words);

    function turn() {
      const current = Math.min(Math.max(Number(input.value), 0), frames.length - 1);
      frames.forEach(function (frame, i) {
        frame.style.display = i === current ? "" : "none";
      });
      const value = frames[current].dataset.value;
      words.textContent = frames[current].querySelector("img").alt;
      if (!output) return; // a menu shows and says its choice
      output.value = value;
      input.setAttribute("aria-valuetext", value);
    }

    // The other frames wait until a hand comes near.
    const hurry = () => figure.querySelectorAll(`img.only-${document.documentElement.dataset.theme}`)
      .forEach((image) => { image.loading = "eager"; });
    for (const name of ["focusin", "pointerenter"]) figure.addEventListener(name, hurry, { once: true });
    input.disabled = false;
    input.addEventListener("input", turn);
    turn();
  }

  function activateAll() {
    document.querySelectorAll("figure.ssm-slider").forEach(activate);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", activateAll);
  else activateAll();
})();
