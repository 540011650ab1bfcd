"""`python -m sipguard`."""

from sipguard.cli.entry import main

main()
