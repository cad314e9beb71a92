"""The value classes, one file a concept.

`registry.py` holds the empty tables (builders by type, replaced functions); the other files fill them
and `build.py`, the front door, imports them all. Value files never import `build.py`.
"""
