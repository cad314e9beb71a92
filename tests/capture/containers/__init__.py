"""Every method, operator and builtin on every builtin container and literal, captured: it does what Python does."""
