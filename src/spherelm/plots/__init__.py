"""Charts: described once, drawn as SVG and as PNG; and what pages are made of."""
