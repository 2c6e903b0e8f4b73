"""What is written on a figure."""

from xml.etree import ElementTree


def svg_texts(path):
    """The texts of an SVG, line by line, as they are drawn."""
    root = ElementTree.parse(path).getroot()
    return ["".join(text.itertext()).strip() for text in root.iter("{http://www.w3.org/2000/svg}text")]


def svg_text(path):
    """All of it in one line."""
    return " ".join(svg_texts(path))
