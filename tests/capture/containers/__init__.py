"""Every method, operator and builtin on every builtin container and literal, captured and run: it does what Python does."""
