"""The program on the machine that talks to object storage. See remote/README.md."""
