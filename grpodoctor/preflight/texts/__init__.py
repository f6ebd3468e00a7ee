"""Properties of texts: normal form, shared affixes, language, relation of prompts to answers."""
