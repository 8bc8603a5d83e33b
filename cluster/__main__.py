"""Entry point of `python -m cluster`, which is `specstorm`."""

from cluster.cli.main import main

if __name__ == "__main__":
    main()
