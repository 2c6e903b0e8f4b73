"""`python -m prolip` is `prolip`."""

from prolip.cli import main

if __name__ == "__main__":
    main()
