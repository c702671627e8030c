// Light or dark before anything is drawn. The theme decides after the first picture; until then its colors and
// borders are not defined and the logo stands twice, so that the text jumped.
(function () {
  "use strict";
  const page = document.documentElement;
  if (page.dataset.theme !== "auto") return;
  page.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
})();
