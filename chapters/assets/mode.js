// Light or dark before anything is drawn. The theme decides after the first picture; until then its colors and
// borders are not defined and the logo stands twice, so that the text jumped. For the same reason the text is seen when
// its letters are there (face.js), or after two seconds; they are asked for at once.
(function () {
  "use strict";
  const page = document.documentElement;
  page.classList.add("waiting");
  const came = performance.getEntriesByType("navigation")[0]; // not by Back or a reload, which return to a place
  page.classList.toggle("from-top", !location.hash && came?.type === "navigate");
  setTimeout(() => page.classList.remove("waiting"), 2000);
  for (const font of location.protocol === "file:" ? [] : ["serif-normal", "sans-normal"]) {
    const link = document.createElement("link");
    Object.assign(link, { rel: "preload", as: "font", crossOrigin: "", href: `${page.dataset.content_root}_static/fonts/${font}.woff2` });
    document.head.append(link);
  }
  if (page.dataset.theme !== "auto") return;
  page.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
})();
