// Light or dark before anything is drawn. The theme decides after the first picture; until then its colors and
// borders are not defined and the logo stands twice, so that the text jumped. For the same reason the text is seen when
// its letters are there, or after two seconds; they are asked for at once.
(function () {
  "use strict";
  const page = document.documentElement;
  page.classList.add("waiting");
  const came = performance.getEntriesByType("navigation")[0]; // not by Back or a reload, which return to a place
  page.classList.toggle("from-top", !location.hash && came?.type === "navigate");
  const show = () => page.classList.remove("waiting");
  setTimeout(show, 2000);
  const asked = (location.protocol === "file:" ? [] : ["serif-normal", "sans-normal"]).map((font) => {
    const link = document.createElement("link");
    Object.assign(link, { rel: "preload", as: "font", crossOrigin: "", href: `${page.dataset.content_root ?? ""}_static/fonts/${font}.woff2` });
    document.head.append(link);
    return new Promise((done) => { link.onload = link.onerror = done; });
  });
  // A frame comes when the style sheet is there, which names the letters.
  Promise.all(asked).then(() => requestAnimationFrame(() => {
    const letters = ["Heads Serif", "Heads Sans"].map((family) => document.fonts.load(`1em "${family}"`));
    Promise.allSettled(letters).then(show);
  }));
  if (page.dataset.theme !== "auto") return;
  page.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
})();
