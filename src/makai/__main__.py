"""`python -m makai` is the `makai` command."""

from makai.cli.main import main

if __name__ == "__main__":
    main()
