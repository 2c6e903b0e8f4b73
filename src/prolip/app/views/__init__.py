"""Views: results as HTML and SVG. Texts of users are escaped here; nothing is computed but positions and colors."""
