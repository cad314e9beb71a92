"""Graphs as packages hand them on: nodes, what their calls do, calls of torch functions, how inputs are related."""
