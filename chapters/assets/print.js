// Paper is light: a page in dark mode is printed in the light one and is dark again afterwards.
(function () {
  "use strict";
  const page = document.documentElement;
  let before;
  addEventListener("beforeprint", function () {
    before = page.dataset.theme;
    page.dataset.theme = "light";
  });
  addEventListener("afterprint", function () {
    page.dataset.theme = before;
  });
})();
