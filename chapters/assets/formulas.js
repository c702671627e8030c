// A formula that is wider than its column can be pushed aside, also by the keyboard: it is a stop of the tab key.
(function () {
  "use strict";

  const sized = new ResizeObserver((seen) => {
    for (const { target: formula } of seen) {
      if (formula.scrollWidth > formula.clientWidth) formula.tabIndex = 0;
      else formula.removeAttribute("tabindex");
    }
  });

  addEventListener("load", () => {
    for (const formula of document.querySelectorAll('article mjx-container[display="true"]')) sized.observe(formula);
  });
})();
