"""The built-in page at `/`: complete HTML made from the summary, with a script that keeps it fresh."""
