"""Facts about tile IR, which targets decide by: found once, changed by nobody."""
