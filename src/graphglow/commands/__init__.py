"""The commands, a module and a function each; flags come from the function's signature."""
