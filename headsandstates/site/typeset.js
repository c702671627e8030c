// Typesets formulas without a browser: [[tex, is a display], ...] as JSON on standard input, {html, css} on standard
// output. The only argument is the folder of MathJax.
"use strict";
const fs = require("fs");
const [, , folder] = process.argv;
const parts = ["adaptors/liteDOM", "input/tex-full", "output/chtml", "a11y/assistive-mml"];
global.MathJax = {
  loader: { load: parts, paths: { mathjax: folder }, require },
  chtml: { fontURL: "mathjax/output/chtml/fonts/woff-v2" }, // seen from the style sheet
  startup: { typeset: false },
};
require(`${folder}/startup.js`);

async function typeset() {
  await MathJax.loader.load(...parts);
  await MathJax.startup.promise;
  const { adaptor } = MathJax.startup, html = [];
  for (const [tex, display] of JSON.parse(fs.readFileSync(0, "utf8"))) {
    html.push(adaptor.outerHTML(await MathJax.tex2chtmlPromise(tex, { display })));
  }
  process.stdout.write(JSON.stringify({ html, css: adaptor.textContent(MathJax.chtmlStylesheet()) }));
}

typeset().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
