"""A page of the built book as one file: styles, scripts, fonts and pictures inside, links to the book."""

import re
from base64 import b64encode
from mimetypes import guess_type
from urllib.parse import unquote, urljoin, urlsplit

from bs4 import BeautifulSoup, Tag

URL = re.compile(r"""url\(\s*["']?([^"')]+?)["']?\s*\)""")
MATHJAX_FONT = re.compile(r"%%URL%%/(\w[\w-]*\.woff)")
MATHJAX_FONTS = "output/chtml/fonts/woff-v2"


def portable(path, address):
    """The text of the page ``path``, which opens alone; ``address`` is where it is published."""
    page = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
    for link in page.select("link[rel=stylesheet]"):
        link.replace_with(_inside("style", _style(path.parent / link["href"])))
    for script in page.select("script[src]"):  # they were deferred, so their place is the end
        page.body.append(_inside("script", _script(path.parent / script.extract()["src"])))
    for node in page.select("img[src], link[rel=icon]"):
        attribute = "src" if node.name == "img" else "href"
        if not urlsplit(node[attribute]).scheme:
            node[attribute] = _data(path.parent / unquote(node[attribute]))
    for link in page.select("a[href]"):
        link["href"] = link["href"] if link["href"].startswith("#") else urljoin(address, link["href"])
    return str(page)


def _inside(name, text):
    node = Tag(name=name)
    node.string = text
    return node


def _style(path):
    def inlined(match):
        data = match[1].startswith(("data:", "#"))
        return match[0] if data else f"url({_data(path.parent / match[1].partition('?')[0])})"

    return URL.sub(inlined, path.read_text(encoding="utf-8"))


def _script(path):
    text = path.read_text(encoding="utf-8").replace("</script", r"<\/script")
    return MATHJAX_FONT.sub(lambda font: _data(path.parent / MATHJAX_FONTS / font[1]), text)


def _data(path):
    kind = guess_type(path.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{b64encode(path.read_bytes()).decode()}"
