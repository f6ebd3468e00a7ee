"""Reports of runs, probes and preflights as text, Markdown, HTML and JSON."""
