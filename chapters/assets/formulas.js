// Formulas are typeset a moment after the text has come, and lines then move. So the text is shown once the formulas
// on the first screens are typeset, or after three seconds; the others follow where nobody looks yet.
(function () {
  "use strict";
  if (!window.MathJax) return; // a page without formulas
  const page = document.documentElement;

  function show() {
    page.classList.remove("typesetting");
  }

  function isNear(formula) {
    const top = formula.getBoundingClientRect().top;
    return top > -innerHeight && top < 2 * innerHeight;
  }

  page.classList.add("typesetting");
  setTimeout(show, 3000);
  MathJax.startup = {
    async pageReady() {
      await MathJax.typesetPromise(Array.from(document.querySelectorAll(".math")).filter(isNear));
      await document.fonts.ready;
      show();
      await MathJax.startup.defaultPageReady();
    },
  };
})();
