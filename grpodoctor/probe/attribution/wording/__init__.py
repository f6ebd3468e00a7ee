"""Names, sentences and the verdict of an attribution."""
