"""What building the book needs and the library does not: notebook tooling and Sphinx extensions."""
