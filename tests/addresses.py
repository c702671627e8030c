"""Which addresses a built page fetches by itself, and which of them lie on another host."""

# What a browser fetches as soon as the page opens: tags with an address, and relations of links.
FETCHED = "script img iframe source video audio embed object track input".split()
FETCHED_LINKS = set("stylesheet icon shortcut preload prefetch modulepreload preconnect dns-prefetch".split())


def leaves_the_site(address):
    return address.startswith(("http:", "https:", "//", "ftp:"))


def fetched(page):
    """(tag, address) of everything that the browser fetches by itself when it opens the page."""
    for node in page.find_all(FETCHED):
        address = node.get("data" if node.name == "object" else "src")
        more = (candidate.split()[0] for candidate in node.get("srcset", "").split(",") if candidate.strip())
        yield from ((node.name, found) for found in (address, *more) if found)
    for node in page.find_all("link"):
        if FETCHED_LINKS & set(node.get("rel", [])):
            yield "link", node.get("href", "")
