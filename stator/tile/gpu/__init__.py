"""Tile IR with layouts (`.tgir`): what a GPU's threads hold of each tile, and the passes that decide it."""
