"""How results of the workbench look in a terminal."""
