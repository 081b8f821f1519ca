"""The page at `/`: whole HTML from the summary, and the script and styles that bring it to life."""
