"""Pieces of a built page as Markdown, written so that viewers without MyST get them right."""

from bs4 import BeautifulSoup

from ssmbook._book.plain_markdown import markdown

ADDRESS = "https://example.org/book/chapters/a/b.html"
NUMBER = '<span class="eqno">(2.1)<a class="headerlink">#</a></span>'
FORMULA = f'<div class="math" id="equation-e">{NUMBER}\\[\n a\n =b \\]</div>'
STATEMENT = f"""
<div class="proof theorem ours admonition" id="thm-a">
<p class="admonition-title"><span class="caption-number">Theorem 2.1 </span> (A <em>b</em> name)</p>
<section class="theorem-content"><p>Let <span class="math">\\(x_1\n&lt; 2\\)</span>.</p>
<ol><li><p>One</p>{FORMULA}<p>and more.</p></li><li><p>Two</p></li></ol></section></div>
"""
PROOF = '<div class="proof admonition"><p>Proof. By <a href="../c.html#thm-b">Theorem 1.1</a>.</p></div>'


def of(html):
    return markdown(BeautifulSoup(html, "html.parser").find_all(recursive=False), ADDRESS)


def test_a_statement_is_a_quote_with_its_number_and_formulas_on_one_line():
    assert of(STATEMENT).splitlines() == [
        "> **Theorem 2.1** (A b name) *\\[ours\\]*",
        ">",
        "> Let $x_1 < 2$.",
        ">",
        "> 1. One",
        ">",
        ">    $$a =b \\tag{2.1}$$",
        ">",
        ">    and more.",
        "> 2. Two",
    ]


def test_a_formula_on_its_own_stands_on_lines_of_its_own():
    assert of(FORMULA) == "$$\na =b \\tag{2.1}\n$$"


def test_a_proof_says_where_it_begins_and_ends():
    assert of(PROOF) == "*Proof.* By [Theorem 1.1](https://example.org/book/chapters/c.html#thm-b). ∎"
    assert of(PROOF.replace("</p></div>", f"</p>{FORMULA}</div>")).endswith("$$\n\n∎")


def test_boxes_without_a_number_and_boxes_that_fold():
    box = '<div class="tip admonition"><p class="admonition-title">Predict</p><p>How many?</p></div>'
    assert of(box) == "> **Predict.**\n>\n> How many?"
    folded = of(box.replace("tip", "dropdown"))
    assert folded == "<details>\n<summary><strong>Predict.</strong></summary>\n\nHow many?\n\n</details>"


def test_what_markdown_would_read_as_its_own_is_escaped():
    assert of("<p>2 * 3 * 4 costs $5 in a_b or _x_ [not a link] 1 &lt; 2</p>") == (
        r"2 \* 3 \* 4 costs \$5 in a_b or \_x\_ \[not a link\] 1 \< 2"
    )
    assert of("<p>1. The tails fall</p>") == r"1\. The tails fall"
    assert of("<h2>8.1. Counting</h2>") == "## 8.1. Counting"


def test_a_bar_in_a_formula_does_not_end_a_cell_of_a_table():
    row = '<tr><td><span class="math">\\(|a|\\le\\|b\\|\\)</span></td><td>x</td></tr>'
    table = f"<table><thead><tr><th>p</th><th>q</th></tr></thead><tbody>{row}</tbody></table>"
    assert of(table).splitlines()[2] == r"| $\vert a\vert \le\Vert b\Vert$ | x |"


def test_a_split_around_an_aligned_formula_goes_and_another_one_stays():
    aligned = r"\begin{aligned} a&=b\\ c&=d \end{aligned}"
    assert of(f'<span class="math">\\(\\begin{{split}} {aligned} \\end{{split}}\\)</span>') == f"${aligned}$"
    two = f"{aligned}\\\\ {aligned}"
    assert "split" in of(f'<span class="math">\\(\\begin{{split}} {two} \\end{{split}}\\)</span>')
