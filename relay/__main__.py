"""`python -m relay`: the command line."""

from relay.cli.app import main

if __name__ == "__main__":
    main()
