"""The commands, a function each; flags come from the function's signature."""
