// The page's contents in the sidebar where the margin takes their place, the chapter in sight when a drawer opens, and
// the picture of the first screen, which moves once by itself.
(function () {
  "use strict";

  // The sections that wait (face.css) follow one by one when nothing else is to be done.
  function follow() {
    const waiting = [...document.querySelectorAll(".bd-article > section > section")];
    const idle = window.requestIdleCallback ?? ((done) => setTimeout(done, 50));
    idle(function next() {
      const section = waiting.shift();
      if (!section) return document.documentElement.classList.remove("from-top");
      section.style.contentVisibility = "visible";
      idle(next);
    });
  }

  function contents() {
    const now = document.querySelector(".bd-links li.current > a.current");
    const links = document.querySelectorAll("#pst-page-toc-nav > ul > li > a, #pst-page-toc-nav > ul > li > ul > li > a");
    if (!now || !links.length || now.nextElementSibling?.matches(".here")) return;
    const list = document.createElement("ul");
    list.className = "here";
    for (const link of links) {
      const copy = link.cloneNode(true);
      copy.removeAttribute("class");
      list.append(document.createElement("li"));
      list.lastChild.append(copy);
    }
    now.after(list);
    document.addEventListener("click", ({ target }) => {
      if (target.closest(".primary-toggle")) setTimeout(() => now.scrollIntoView({ block: "center" }), 50);
    });
  }

  let stopped = false;
  for (const name of ["pointerdown", "keydown", "beforeprint"]) addEventListener(name, () => { stopped = true; }, true);

  // From end to end and back to where it stood, in six seconds; a hand, a key or the wish for less motion stops it.
  function move() {
    const input = document.querySelector(".buttons ~ .cell .ssm-slider[data-active] input[type=range]");
    if (!input || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const [low, high, home] = [Number(input.min), Number(input.max), Number(input.value)];
    let began = 0;
    function step(time) {
      began ||= time;
      const share = Math.min((time - began) / 6000, 1), there = 0.75;
      const eased = (x) => (1 - Math.cos(Math.PI * x)) / 2;
      if (stopped) return;
      input.value = share < there
        ? home + (low - home) * eased(Math.min(3 * share, 1)) + (high - low) * eased(Math.max((share - 1 / 3) / (there - 1 / 3), 0))
        : high + (home - high) * eased((share - there) / (1 - there));
      input.dispatchEvent(new Event("input", { bubbles: true }));
      if (share < 1) requestAnimationFrame(step);
    }
    requestAnimationFrame(step);
  }

  addEventListener("DOMContentLoaded", contents);
  addEventListener("load", () => {
    setTimeout(follow, 500);
    setTimeout(move, 900);
  });
})();
