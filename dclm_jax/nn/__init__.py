"""Small pure functions that models are made of; WORKSPACE.md has the legend of axis letters."""
