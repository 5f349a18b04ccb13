"""Charts: described once, drawn as SVG and as PNG."""
