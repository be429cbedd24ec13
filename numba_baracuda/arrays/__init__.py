"""Arrays of every framework as addresses with a form; memory for results; streams."""
