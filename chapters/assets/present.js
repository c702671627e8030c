// Present: the page for a room. Large text in a wide column, and keys that step from box to box and picture.
(function () {
  "use strict";
  const page = document.documentElement;
  const STOPS = "h1, h2, h3, div.admonition, div.proof, figure, div.cell_output:has(img), div.cell_output:has(table)";
  const ON = ["ArrowRight", "PageDown"], BACK = ["ArrowLeft", "PageUp"];
  const KEY = "present", TEXT = "Present: large text; arrow keys step, Escape ends";
  const SCREEN = "M24 48h464v48h-24v232H280v40l84 96h-64l-44-52-44 52h-64l84-96v-40H48V96H24z M96 96v184h320V96z";
  const GAP = 8;

  // Headings, boxes and pictures from top to bottom; what lies in another one is passed with it.
  function stops() {
    const all = Array.from(document.querySelectorAll("article.bd-article :is(" + STOPS + ")"));
    return all.filter((one) => one.checkVisibility() && !one.parentElement.closest(STOPS));
  }

  // Where the page begins below the bar.
  function line() {
    return document.querySelector(".bd-header-article").getBoundingClientRect().bottom + GAP;
  }

  // A statement that is taller than the screen is set smaller, as far as three fifths, and is then seen whole.
  function fit(stop) {
    for (let zoom = 1; zoom > 0.59; zoom -= 0.05) {
      stop.style.zoom = zoom;
      if (stop.getBoundingClientRect().height <= innerHeight - line()) return;
    }
  }

  function step(direction) {
    const top = line(), all = stops();
    const where = (stop) => stop.getBoundingClientRect().top - top;
    const next = direction > 0 ? all.find((stop) => where(stop) > 2) : all.filter((stop) => where(stop) < -2).pop();
    if (!next) return;
    if (next.matches("div.proof")) fit(next);
    scrollBy({ top: where(next), behavior: "instant" });
    next.tabIndex = -1;
    next.focus({ preventScroll: true });
  }

  function present(on) {
    const was = page.classList.contains("presenting");
    page.classList.toggle("presenting", on);
    button.setAttribute("aria-pressed", String(on));
    if (on) sessionStorage.setItem(KEY, "yes");
    else {
      sessionStorage.removeItem(KEY);
      if (was) stops().forEach((stop) => (stop.style.zoom = ""));
    }
  }

  // A slider and a field keep their arrow keys; what turns pages, as a presenter's remote does, always steps.
  function pressed(event) {
    const at = event.target, field = at.closest("input, textarea, select, [contenteditable]");
    if (event.altKey || event.ctrlKey || event.metaKey || at.closest("dialog[open]")) return;
    if (event.key === "Escape" && field) field.blur();
    else if (event.key === "Escape") present(false);
    else if (field && event.key.startsWith("Arrow")) return;
    else if (ON.includes(event.key)) step(1);
    else if (BACK.includes(event.key)) step(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  const button = document.createElement("button");
  button.type = "button";
  button.className = "btn btn-sm present-button";
  button.title = TEXT;
  button.setAttribute("aria-label", "Present");
  button.innerHTML = `<svg class="icon" aria-hidden="true" viewBox="0 0 512 512"><path fill-rule="evenodd" d="${SCREEN}"/></svg>`;
  button.addEventListener("click", () => present(!page.classList.contains("presenting")));

  function begin() {
    const bar = document.querySelector(".article-header-buttons");
    if (!bar) return;
    bar.prepend(button);
    addEventListener("keydown", (event) => page.classList.contains("presenting") && pressed(event), true);
    present(sessionStorage.getItem(KEY) === "yes");
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
