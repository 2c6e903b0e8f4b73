"""Views: results as HTML and SVG. Every text of a user is escaped here, and nothing is computed but positions of ink."""
