"""What a page holds, read as a browser would."""

from html.parser import HTMLParser

EMPTY = {"meta", "img", "br", "path", "use", "image", "rect", "line", "circle"}


class ParsedPage(HTMLParser):
    """tags: (name, attributes) in order. text: all of it. open: what is not closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in EMPTY:
            assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        self.text += data

    def all(self, tag, name):
        """The values of an attribute of all tags of a name."""
        return [attributes[name] for found, attributes in self.tags if found == tag and name in attributes]

    @property
    def sections(self):
        return self.all("section", "id")
