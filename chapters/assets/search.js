// Search: the book's own index, statements and titles first; the page that a hit opens marks the words that were found.
(function () {
  "use strict";
  // What a reader is most likely to look for, and how much more than its words each part of a place counts.
  const KIND = { Theorem: 2, Page: 1.8, Proposition: 1.4, Lemma: 1.4, Corollary: 1.4, Definition: 1.5, Section: 1.2, Symbol: 1.1, Figure: 0.8, Exercise: 0.7, Python: 0.5, Source: 0.6, Equation: 0.5 };
  const TITLE = 6, PAGE = 1.5, TEXT = 2, PREFIX = 0.4, SYNONYM = 0.85, COMPANION = 0.85, ENDINGS = 8;
  const MOST = 30, IN_DIALOG = 8, FAINT = 12, OF_ONE_PAGE = 4, EXCERPT = 34, LONGEST_FORMULA = 70;
  const EMPTY = new Set("a an and are as at be by can do does for from have how i in is it its many much my of on or so than that the there this to was what when where which why with you".split(" "));
  const NOT_SAID = /\\(?:operatorname|math[a-z]+|begin|end|split|gathered|aligned|left|right|[bB]igg?[lr]?|text|d?frac|var(?=[a-z]))/g;
  const FORMULA = /^\\[([]/;
  const GREEK = "αalpha βbeta γgamma δdelta εepsilon ζzeta ηeta θtheta κkappa λlambda μmu νnu ξxi πpi ρrho σsigma τtau φvarphi ϕphi χchi ψpsi ωomega ⊗otimes ⊙odot ∂partial ∑sum";
  const letters = new Map(GREEK.split(" ").map((pair) => [pair[0], ` ${pair.slice(1).replace("var", "")} `]));
  const asked = new URLSearchParams(location.search);

  // A text as words in their simplest form: no accents, Greek letters by name, singular.
  function words(text) {
    const plain = text.replace(NOT_SAID, " ").normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
    return (plain.replace(/[^\x00-\x7f]/g, (sign) => letters.get(sign) ?? " ").match(/\d+(?:\.\d+)+|[a-z0-9]+/g) ?? []).map(singular);
  }

  function singular(word) {
    if (word.length < 4 || !word.endsWith("s") || /(ss|us|is)$/.test(word)) return word;
    return word.endsWith("ices") ? word.slice(0, -4) + "ix" : word.endsWith("ies") ? word.slice(0, -3) + "y" : word.slice(0, -1);
  }

  function prepared({ rows, synonyms }) {
    const pages = new Map(rows.filter(([kind]) => kind === "Page").map(([, name, address]) => [address, name]));
    const places = rows.map(([kind, name, address, text]) => {
      const page = address.split("#")[0], counts = new Map(), body = words(text);
      for (const word of body) counts.set(word, (counts.get(word) ?? 0) + 1);
      const named = kind === "Python" ? name.replace(/([a-z])(?=[A-Z])/g, "$1 ") + " " + name : name;
      const spoken = pages.get(page) ?? "";
      const title = words(named), main = title.filter((word) => !EMPTY.has(word) && !/^\d/.test(word));
      const weight = (KIND[kind] ?? 1) * (page.endsWith("-deeper.html") ? COMPANION : 1);
      const joint = ` ${title.join(" ")} / ${body.join(" ")} `;
      return { kind, name, address, text, page, weight, counts, joint, pageName: spoken, title: new Set(title), pageTitle: new Set(words(spoken)), spoken: ` ${main.join(" ")} `, length: main.length };
    });
    const rarity = new Map(); // in how many places each word occurs
    for (const { counts, title } of places) for (const word of new Set([...counts.keys(), ...title])) rarity.set(word, (rarity.get(word) ?? 0) + 1);
    const groups = synonyms.map((names) => names.map((name) => words(String(name))));
    for (const word of groups.flat(2)) if (!rarity.has(word)) rarity.set(word, 0);
    return { places, rarity, vocabulary: [...rarity.keys()], groups };
  }

  // How many letters are to be changed, added, left out or exchanged with their neighbor; more than two count as three.
  function distance(one, other) {
    if (Math.abs(one.length - other.length) > 2) return 3;
    let before = [], above = [...Array(other.length + 1).keys()];
    for (let i = 1; i <= one.length; i++) {
      const row = [i];
      for (let j = 1; j <= other.length; j++) {
        const same = one[i - 1] === other[j - 1];
        row[j] = Math.min(above[j] + 1, row[j - 1] + 1, above[j - 1] + !same);
        if (i > 1 && j > 1 && one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1]) row[j] = Math.min(row[j], before[j - 2] + 1);
      }
      [before, above] = [above, row];
    }
    return Math.min(3, above[other.length]);
  }

  // The word itself where the book has it or words that begin with it, else the likeliest that differs by two letters.
  function spelled(word, { rarity, vocabulary }) {
    if (word.length < 4 || rarity.has(word) || vocabulary.some((known) => known.startsWith(word))) return word;
    const near = vocabulary.filter((known) => known.length > 3).map((known) => [distance(word, known), known]);
    const [best] = near.filter(([far]) => far <= (word.length < 6 ? 1 : 2)).sort(([a, one], [b, other]) => a - b || rarity.get(other) - rarity.get(one));
    return best ? best[1] : word;
  }

  function occursAt(part, whole) {
    return whole.findIndex((_, start) => part.every((word, i) => whole[start + i] === word));
  }

  // What was asked for, and the same in the other names of what it speaks of: [words, weight, name that must occur].
  function readings(query, groups) {
    const found = [[query, 1, ""]];
    for (const group of groups) {
      for (const name of group) {
        const start = occursAt(name, query);
        if (start < 0) continue;
        for (const other of group) {
          const said = [...query.slice(0, start), ...other, ...query.slice(start + name.length)];
          if (other.join() !== name.join()) found.push([said, SYNONYM, ` ${other.join(" ")} `]);
        }
      }
    }
    return found.map(([said, ...rest]) => [said.some((word) => !EMPTY.has(word)) ? said.filter((word) => !EMPTY.has(word)) : said, ...rest]);
  }

  // Each word counts the more, the fewer places have it, and a place that lacks some of the words falls far behind.
  function score(place, terms, phrase) {
    let sum = 0, covered = 0, whole = 0, titled = 0;
    for (const { forms, idf } of terms) {
      let title = 0, page = 0, text = 0;
      for (const [form, weight] of forms) {
        const times = place.counts.get(form);
        if (times) text = Math.max(text, (weight * times) / (times + 2));
        if (place.title.has(form)) title = Math.max(title, weight);
        if (place.pageTitle.has(form)) page = Math.max(page, weight);
      }
      whole += idf;
      if (title + page + text) covered += idf;
      if (title) titled += 1;
      sum += idf * (TITLE * title + PAGE * page + TEXT * text);
    }
    if (!sum) return 0;
    const together = terms.length < 2 ? 1 : place.spoken.includes(phrase) ? 1.6 : place.joint.includes(phrase) ? 1.25 : 1;
    return sum * (covered / whole) ** 3 * (1 + titled / Math.max(place.length, terms.length)) * together * place.weight;
  }

  // A word, and the commonest that begin with it.
  function term(word, { rarity, vocabulary, places }) {
    const common = (one, other) => rarity.get(other) - rarity.get(one);
    const longer = word.length < 3 ? [] : vocabulary.filter((known) => known !== word && known.startsWith(word)).sort(common).slice(0, ENDINGS);
    const times = rarity.get(word) || longer.reduce((sum, known) => sum + rarity.get(known), 0);
    return { forms: [[word, 1], ...longer.map((known) => [known, PREFIX])], idf: Math.log(1 + places.length / (1 + times)) };
  }

  function search(query, index) {
    const asked = words(query), said = asked.map((word) => spelled(word, index)), best = new Map();
    for (const [reading, weight, name] of readings(said, index.groups)) {
      const terms = reading.map((word) => term(word, index)), phrase = ` ${reading.join(" ")} `;
      for (const place of index.places) {
        if (!place.joint.includes(name)) continue;
        const points = weight * score(place, terms, phrase);
        if (points > (best.get(place)?.points ?? 0)) best.set(place, { place, points, reading });
      }
    }
    const perPage = new Map(), ranked = [...best.values()].sort((one, other) => other.points - one.points);
    const hits = ranked.filter(({ place: { page }, points }) => {
      perPage.set(page, (perPage.get(page) ?? 0) + 1);
      return perPage.get(page) <= OF_ONE_PAGE && points > ranked[0].points / FAINT;
    });
    return { said, hits: hits.slice(0, MOST), corrected: said.filter((word, i) => word !== asked[i]) };
  }

  // Some words of a place around those that were found, which are marked, with its formulas.
  function excerpt(text, reading) {
    const parts = text.match(/\\\([^]*?\\\)[^\s\\]*|\\\[[^]*?\\\][^\s\\]*|[^\s\\]+|\\/g) ?? [];
    const isFound = (part) => !FORMULA.test(part) && words(part).some((word) => reading.some((one) => word.startsWith(one)));
    const found = parts.map(isFound), near = (start) => found.slice(start, start + EXCERPT).filter(Boolean).length;
    let from = 0;
    for (let start = 0; start < parts.length - EXCERPT / 2; start++) if (found[start] && near(start) > near(from)) from = start;
    from = Math.max(0, from < EXCERPT / 2 ? 0 : from - 6);
    const line = document.createElement("p");
    line.className = "context";
    if (from) line.append("… ");
    parts.slice(from, from + EXCERPT).forEach((part, i) => line.append(found[from + i] ? marked(part) : formulaOr(part), " "));
    if (from + EXCERPT < parts.length) line.append("…");
    return line;
  }

  function element(name, className, text) {
    const one = document.createElement(name);
    one.className = className;
    one.textContent = text;
    return one;
  }

  const marked = (part) => element("mark", "", part);

  function formulaOr(part) {
    if (!FORMULA.test(part)) return part;
    const end = part.search(/\\[)\]]/);
    return end > LONGEST_FORMULA ? "…" : element("span", "math", `\\(${part.slice(2, end)}\\)${part.slice(end + 2)}`);
  }

  function hit({ place, reading }, root) {
    const item = document.createElement("li"), link = element("a", "", place.name || place.text.slice(0, 70) + " …");
    const [page, anchor] = place.address.split("#");
    link.href = `${root}${page}?find=${encodeURIComponent(reading.join(" "))}${anchor ? "#" + anchor : ""}`;
    const where = element("p", "hit-place", place.kind === "Page" ? "" : place.pageName);
    where.prepend(element("span", "hit-kind", place.kind === "Python" ? "Library" : place.kind));
    item.append(where, link, excerpt(place.text, reading));
    return item;
  }

  function answer(query, index, box, root = "", most = MOST) {
    const list = document.createElement("ol"), { said, hits, corrected } = search(query, index);
    const count = hits.length === 1 ? "One place found" : `${hits.length || "No"} places found`;
    const line = element("p", "search-summary", corrected.length ? `${count} for “${said.join(" ")}”.` : `${count}.`);
    line.setAttribute("role", "status");
    list.append(...hits.slice(0, most).map((one) => hit(one, root)));
    box.replaceChildren(...(query.trim() ? [line, list] : []));
    bookScripts.typeset(list);
  }

  function begin() {
    const box = document.getElementById("search-results"), fields = document.querySelectorAll("form.bd-search input");
    if (!box || !window.bookSearch) return;
    const index = prepared(window.bookSearch), field = [...fields].find((one) => one.closest(".bd-search-container"));
    let timer = 0;
    field.value = asked.get("q") ?? "";
    answer(field.value, index, box);
    field.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        history.replaceState(null, "", "?q=" + encodeURIComponent(field.value));
        answer(field.value, index, box);
      }, 150);
    });
  }

  // In the dialog of every page: the index comes with the first letter, and hits stand below as one types.
  function typing() {
    const form = document.querySelector("#pst-search-dialog form"), box = element("div", "search-typed", "");
    if (!form) return;
    const root = document.documentElement.dataset.content_root ?? "", input = form.querySelector("input");
    let index, timer = 0, asked = false;
    form.after(box);
    function show() {
      if (!window.bookSearch) return;
      index ??= prepared(window.bookSearch);
      answer(input.value, index, box, root, IN_DIALOG);
    }
    input.addEventListener("input", () => {
      if (!asked && !window.bookSearch) {
        const script = document.createElement("script");
        Object.assign(script, { src: `${root}_static/search-index.js`, onload: show });
        document.head.append(script);
        asked = true;
      }
      clearTimeout(timer);
      timer = setTimeout(show, 150);
    });
    form.parentElement.addEventListener("keydown", (event) => { // arrows walk through the hits
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], stops = [input, ...box.querySelectorAll("li > a")];
      const next = stops[stops.indexOf(document.activeElement) + step];
      if (!next) return;
      event.preventDefault();
      next.focus();
    });
  }

  // On the page that a hit opened: its words as they were asked for, one after the other, or else each by itself.
  function pattern(parts, joint) {
    return new RegExp(parts.map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(joint), "gi");
  }

  function textNodes(article) {
    const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT, (node) =>
      node.parentElement.closest("mjx-container, script, style, .headerlink")
        ? NodeFilter.FILTER_REJECT
        : NodeFilter.FILTER_ACCEPT
    );
    const nodes = [];
    while (walker.nextNode()) nodes.push(walker.currentNode);
    return nodes;
  }

  function mark(node, wanted) {
    const marks = [];
    for (const match of [...node.data.matchAll(wanted)].reverse()) {
      const range = document.createRange();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const span = document.createElement("span");
      span.className = "highlighted";
      range.surroundContents(span);
      marks.unshift(span);
    }
    return marks;
  }

  function markWords(article) {
    const parts = asked.get("find").split(/\s+/).filter((word) => word.length > 1), nodes = textNodes(article);
    const wanted = parts.length && [pattern(parts, "[\\s-]+"), pattern(parts, "|")].find((form) => nodes.some((node) => node.data.search(form) >= 0));
    if (!wanted) return;
    const marks = nodes.flatMap((node) => mark(node, wanted));
    const first = marks.find((span) => span.offsetParent);
    first?.closest("[hidden]")?.dispatchEvent(new Event("beforematch", { bubbles: true })); // a covered answer
    if (first && !location.hash) first.scrollIntoView({ block: "center" });
  }

  document.addEventListener("DOMContentLoaded", begin);
  document.addEventListener("DOMContentLoaded", typing);

  window.addEventListener("load", function () {
    const article = document.querySelector("article.bd-article");
    if (article && asked.get("find")) markWords(article);
  });
})();
