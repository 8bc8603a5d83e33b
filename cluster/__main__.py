"""`python -m cluster` is `specstorm`."""

from cluster.cli.main import main

if __name__ == "__main__":
    main()
