"""`python -m sipguard`."""

from sipguard.cli.main import main

main()
