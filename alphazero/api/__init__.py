"""What `import alphazero as az` gives; docs/python.md tells of it."""
