"""`python -m remesh`: the command line from a checkout, without an installed script."""

from remesh.cli.main import main

if __name__ == "__main__":
    main()
