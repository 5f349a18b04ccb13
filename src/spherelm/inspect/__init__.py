"""What a trained network looks like inside: numbers first, then pictures, then one page."""
