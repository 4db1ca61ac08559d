"""The supervisor on the machine: standard library only, Python 3.10. See remote/README.md."""
