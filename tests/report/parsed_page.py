"""A page as a parser sees it: do its tags nest, what does it load, what does it say?"""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Checks that tags nest, and keeps what is looked at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self.strong: list[str] = []
        self.scopeless = 0
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.scopeless += tag == "th" and "scope" not in dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.loads += [str(v) for k, v in attrs if k in ("src", "href", "srcset", "data", "action")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            return
        self.text += data
        if "td" in self.open and self.open[-1] == "strong":
            self.strong.append(data)
