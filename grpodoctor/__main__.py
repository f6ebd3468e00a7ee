"""`python -m grpodoctor`."""

from grpodoctor.cli.main import main

main()
