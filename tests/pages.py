"""What tests of pages share: texts that a page must show as they are, and a page as its elements."""

from __future__ import annotations

from html.parser import HTMLParser

PAYLOADS = [
    "<script>document.documentElement.dataset.pwned=1</script>",
    '"><img src=x onerror="document.documentElement.dataset.pwned=1">',
    "'><svg onload='document.documentElement.dataset.pwned=1'>",
    "javascript:alert(1)",
    "</style><script>document.documentElement.dataset.pwned=1</script>",
    "</title></head><body onload=document.documentElement.dataset.pwned=1>",
    "<!-- --!> <b>x</b>",
    "]]><a href='javascript:1'>x</a>",
    "&lt;script&gt; &#60;script&#62;",
    "{title} ${title} %s",
    "a\u202eevil\u2066 \u200b\x1b[31m\x00\ud800\U000e0041",
    "",
]
VOID = {"meta", "input"}


class Page(HTMLParser):
    """Elements with their attributes, the text, and whether every tag is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text, self.comments = "", 0
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute twice in {tag}"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID and "/" not in (self.get_starttag_text() or "")[-2:]:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data

    def handle_comment(self, data: str) -> None:
        self.comments += 1

    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """What the page is made of, without the marks for unseen characters."""
        return [(tag, tuple(attrs)) for tag, attrs in self.elements if attrs.get("class") != "mark"]

    def by_class(self, name: str) -> list[dict[str, str]]:
        return [attrs for _, attrs in self.elements if name in attrs.get("class", "").split()]
