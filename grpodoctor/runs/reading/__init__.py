"""Reading runs: of the own recorder and of other frameworks, local and remote, once or live."""
