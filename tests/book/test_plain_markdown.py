"""Pieces of a built page as Markdown, written so that viewers without MyST get them right."""

from bs4 import BeautifulSoup

from headsandstates.site.plain_markdown import markdown

ADDRESS = "https://example.org/book/chapters/a/b.html"
NUMBER = '<span class="eqno">(2.1)<a class="headerlink">#</a></span>'
FORMULA = f'<div class="math" id="equation-e">{NUMBER}\\[\n a\n =b \\]</div>'


def of(html):
    return markdown(BeautifulSoup(html, "html.parser").find_all(recursive=False), ADDRESS)


def test_a_formula_on_its_own_stands_on_lines_of_its_own():
    assert of(FORMULA) == "$$\na =b \\tag{2.1}\n$$"


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
